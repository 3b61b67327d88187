package arch

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// TestOtherSystems lists what the program consists of on the systems on which only its commands for configuration and audit
// work: a package that has no file there would break the release.
func TestOtherSystems(t *testing.T) {
	for _, system := range []string{"darwin", "windows"} {
		list := exec.Command("go", "list", "-deps", "../../cmd/kube-proxy")
		list.Env = append(os.Environ(), "GOOS="+system)
		if _, err := list.Output(); err != nil {
			failed, _ := errors.AsType[*exec.ExitError](err)
			t.Errorf("%s: %v; move what needs Linux to a file with //go:build linux:\n%s", system, err, failed.Stderr)
		}
	}
}
