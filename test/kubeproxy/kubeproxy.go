// Package kubeproxy compiles the program for tests that run it, once for all tests of a package:
//
//	func TestMain(m *testing.M) { kubeproxy.Main(m) }
//
//	func TestKernelStart(t *testing.T) { command := exec.Command(kubeproxy.Path(t), "--version") … }
package kubeproxy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// LatestHead begins a configuration file of the latest version.
const LatestHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n"

// Main runs the tests of a package, and removes what [Path] wrote.
func Main(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(dir())
	os.Exit(code)
}

// Path returns the path of kube-proxy: of the one in the environment variable KUBE_PROXY, as on a machine without a compiler
// (test/kernels), or of one that the first call compiles. The package's TestMain must call [Main].
func Path(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("KUBE_PROXY"); path != "" {
		return path
	}
	path, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var compiled = sync.OnceValues(func() (path string, err error) {
	if err := os.Mkdir(dir(), 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir(), "kube-proxy")
	out, err := exec.Command("go", "build", "-o", path, "github.com/seed-11a05479/kube-proxy/cmd/kube-proxy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile kube-proxy: %w\n%s", err, out)
	}
	return path, nil
})

// MustWrite writes a file, and panics if it cannot.
func MustWrite(path, content string) { Must(os.WriteFile(path, []byte(content), 0o600)) }

// Must panics if there is an error that is not what a test is about.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// dir is a folder of this process alone.
func dir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("kube-proxy-test-%d", os.Getpid()))
}
