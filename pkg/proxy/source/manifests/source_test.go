package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

var _ source.Source = (*Source)(nil)

// bench is a running Source, its directory and its log.
type bench struct {
	*testing.T
	dir     string
	builder *cluster.Builder
	source  *Source

	mu  sync.Mutex
	log []string
}

// patience limits how long a failing test waits.
const patience = 20 * time.Second

func run(t *testing.T, dir string) *bench { return runWith(t, dir, Options{}) }

func runWith(t *testing.T, dir string, options Options) *bench {
	b := &bench{T: t, dir: dir, builder: cluster.NewBuilder("n1")}
	logger := funcr.New(func(_, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.log = append(b.log, args)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	s := New(dir, "n1", options)
	s.resync = time.Hour // only events may make the tests pass
	b.source = s
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, b.builder) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Complete():
	case err := <-ended:
		ended <- nil
		t.Fatalf("Run ended: %v", err)
	case <-time.After(patience):
		t.Fatal("never complete")
	}
	return b
}

func (b *bench) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}

// names returns the Services with the number of their endpoints.
func (b *bench) names() string {
	var names []string
	for _, service := range b.builder.Snapshot().Services.All() {
		endpoints := 0
		for _, slice := range service.Slices {
			endpoints += len(slice.Endpoints)
		}
		names = append(names, fmt.Sprintf("%s=%d", service.Name.Name, endpoints))
	}
	return strings.Join(names, " ")
}

// want waits until the Builder has these Services, and checks that it had no others than those before meanwhile.
func (b *bench) want(want string) {
	b.Helper()
	before := b.names()
	b.until(fmt.Sprintf("Services %q", want), func() bool {
		now := b.names()
		if now != before && now != want {
			b.Fatalf("Services %q were used on the way from %q to %q", now, before, want)
		}
		return now == want
	})
}

func (b *bench) until(what string, met func() bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("timed out waiting for %s; the Services are %q, the log is\n%s", what, b.names(), strings.Join(b.logged(), "\n"))
		}
	}
}

func (b *bench) logged() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

// waitLog waits until the log has a line with all of the parts.
func (b *bench) waitLog(parts ...string) {
	b.Helper()
	b.until(fmt.Sprintf("a log line with %q", parts), func() bool {
		return slices.ContainsFunc(b.logged(), func(line string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		})
	})
}

// service is a manifest of a Service and its slice.
func service(name string, endpoints int) string {
	text := strings.ReplaceAll(goodService+"---\n"+goodSlice, "web", name)
	text = strings.TrimSuffix(text, "- addresses: [10.1.0.1]\n")
	for i := range endpoints {
		text += fmt.Sprintf("- addresses: [10.1.%d.%d]\n", i/250, i%250+1)
	}
	return text
}

// TestFolder changes files in the ways in which people and programs do.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for _, leftover := range []string{".hidden.yaml", "a.yaml~", "a.yaml.bak", "#a.yaml#", "README.md"} {
		if err := os.WriteFile(filepath.Join(dir, leftover), []byte("nonsense: ["), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "inside.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := run(t, dir)
	b.want("")
	b.write("a.yaml", service("a", 1))
	b.want("a=1")
	b.write("b.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"b"},"spec":{"clusterIP":"10.0.0.2","ports":[{"port":1}]}}`)
	b.want("a=1 b=0")
	b.write("a.yaml", service("a", 3))
	b.want("a=3 b=0")

	t.Log("an atomic rename")
	b.write("a.tmp", service("a", 4))
	if err := os.Rename(filepath.Join(dir, "a.tmp"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	b.want("a=4 b=0")

	t.Log("a file written slowly and in steps: empty, a part that does not parse, the rest")
	file, err := os.Create(filepath.Join(dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := service("a", 5)
	for _, part := range []string{"", text[:30], text[30:]} {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * quiet)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	b.want("a=5 b=0")

	t.Log("removed files remove their objects")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	b.want("b=0")
	b.write("b.json", "") // an empty file says nothing; see TestBadFile
	b.write("c.yaml", service("c", 1))
	b.want("b=0 c=1")
	b.write("c.yaml", "# none\n")
	b.want("b=0")
}

// TestBadFile checks that the objects of a file with errors are kept, that the errors are logged, and that other files are read.
func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("nonsense: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	b := run(t, dir)
	b.waitLog("bad.yaml:1: not YAML", "Manifest has errors")
	b.write("good.yaml", service("a", 1))
	b.want("a=1")
	b.write("good.yaml", service("a", 2)+"unknown: field\n")
	b.waitLog("good.yaml:22: unknown field", "Manifest has errors")
	if errs := b.source.Errors(); len(errs) != 2 || !strings.Contains(errs[0], "bad.yaml:1: not YAML") || !strings.Contains(errs[1], "good.yaml:22: unknown field") {
		t.Errorf("the errors are %q", errs)
	}
	b.write("bad.yaml", service("b", 1))
	b.want("a=1 b=1")
	b.waitLog("Manifest is valid again", "bad.yaml")
	if errs := b.source.Errors(); len(errs) != 1 {
		t.Errorf("the errors are %q", errs)
	}
	b.write("good.yaml", "")
	b.waitLog("good.yaml:1: the file is empty")
	if err := os.Remove(filepath.Join(dir, "good.yaml")); err != nil {
		t.Fatal(err)
	}
	b.want("b=1")

	t.Log("what cannot be read is no reason to forget")
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", bad); err != nil {
		t.Fatal(err)
	}
	b.waitLog("bad.yaml", "dangling link")
	if err := os.Mkdir(filepath.Join(dir, "nowhere"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("c.yaml", service("c", 1))
	b.want("c=1") // now bad.yaml is a directory
}

// TestBadObject checks that the last valid version of an invalid object is kept while others change, that nothing is removed
// while a file has errors, and that other kinds are ignored and logged.
func TestBadObject(t *testing.T) {
	b := run(t, t.TempDir())
	b.write("all.yaml", service("a", 1)+"---\n"+service("b", 1)+"---\n"+service("c", 1))
	b.want("a=1 b=1 c=1")
	badB := strings.Replace(service("b", 3), "port: 80\n", "port: 99999\n", 1)
	b.write("all.yaml", service("a", 2)+"---\n"+strings.Split(badB, "---\n")[0])
	b.waitLog("all.yaml:30: Service default/b: spec.ports[0].port: 99999", "Manifest has errors")
	b.want("a=2 b=1 c=1")
	b.write("all.yaml", service("a", 2)+"---\napiVersion: apps/v1\nkind: Deployment\n")
	b.want("a=2")
	b.waitLog("Ignoring objects in a manifest", "all.yaml", "Deployment (apps/v1) in line")
}

// TestBadFileOnce checks that an error is logged once, not with every event.
func TestBadFileOnce(t *testing.T) {
	b := run(t, t.TempDir())
	b.write("bad.yaml", "nonsense: [")
	b.waitLog("Manifest has errors")
	for i := range 5 {
		b.write("good.yaml", service("a", i+1))
		b.want(fmt.Sprintf("a=%d", i+1))
	}
	count := 0
	for _, line := range b.logged() {
		if strings.Contains(line, "Manifest has errors") {
			count++
		}
	}
	if count != 1 {
		t.Errorf("logged %d times:\n%s", count, strings.Join(b.logged(), "\n"))
	}
}

// TestSameObject checks that the first file by name is used if two files contain an object.
func TestSameObject(t *testing.T) {
	b := run(t, t.TempDir())
	b.write("b.yaml", service("web", 2))
	b.want("web=2")
	b.write("a.yaml", service("web", 1))
	b.want("web=1")
	b.waitLog("b.yaml: Service default/web is ignored, because a.yaml contains it too")
	if err := os.Remove(filepath.Join(b.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	b.want("web=2")
}

// TestConfigMap swaps content the way kubelet does in a mounted ConfigMap: files are links through ..data, a
// link that is renamed over.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	swap := func(version, text string) {
		t.Helper()
		do(os.Mkdir(filepath.Join(dir, version), 0o755))
		do(os.WriteFile(filepath.Join(dir, version, "web.yaml"), []byte(text), 0o644))
		do(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		do(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	swap("..2026_1", service("web", 1))
	do(os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")))
	b := run(t, dir)
	b.want("web=1")
	for i := range 3 {
		swap(fmt.Sprintf("..2026_%d", i+2), service("web", i+2))
		do(os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i+1))))
		b.want(fmt.Sprintf("web=%d", i+2))
	}
}

// TestFolderReplaced replaces the directory, and removes it for a while.
func TestFolderReplaced(t *testing.T) {
	top := t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"v1", "v2"} {
		do(os.Mkdir(filepath.Join(top, name), 0o755))
		do(os.WriteFile(filepath.Join(top, name, "a.yaml"), []byte(service("a", i+1)), 0o644))
	}
	link := filepath.Join(top, "current")
	do(os.Symlink("v1", link))
	b := run(t, link)
	b.want("a=1")
	do(os.Symlink("v2", link+"_new"))
	do(os.Rename(link+"_new", link))
	b.want("a=2")
	b.write("a.yaml", service("a", 3))
	b.want("a=3")
	do(os.Remove(link))
	b.waitLog("keeping the objects that it contained")
	do(os.Symlink("v1", link))
	b.want("a=1")
	t.Log("moved away and back, it is the same directory")
	do(os.Remove(link))
	do(os.Rename(filepath.Join(top, "v2"), link))
	b.want("a=3")
	do(os.Rename(link, link+"_away"))
	do(os.WriteFile(filepath.Join(link+"_away", "a.yaml"), []byte(service("a", 4)), 0o644))
	do(os.Rename(link+"_away", link))
	b.want("a=4")
	b.write("a.yaml", service("a", 6))
	b.want("a=6")
	do(os.RemoveAll(link))
	do(os.Symlink("v1", link))
	b.until("the first directory's file", func() bool { return b.names() == "a=1" })
	do(os.Remove(filepath.Join(top, "v1", "a.yaml")))
	b.until("an empty directory", func() bool { return b.names() == "" })
	do(os.Remove(filepath.Join(top, "v1")))
	do(os.Mkdir(filepath.Join(top, "v1"), 0o755))
	b.write("a.yaml", service("a", 5))
	b.until("the new directory's file", func() bool { return b.names() == "a=5" })
}

// TestNode checks that the Node is made from the machine only while no file contains it.
func TestNode(t *testing.T) {
	var mu sync.Mutex
	var failure error
	machine := func() ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, failure
	}
	failure = errors.New("no netlink")
	b := runWith(t, t.TempDir(), Options{Addrs: machine})
	addresses := func(want string) {
		t.Helper()
		b.until("the node's addresses "+want, func() bool { return fmt.Sprint(b.builder.Snapshot().Node.Addresses) == want })
	}
	b.waitLog("find the machine's addresses", "no netlink")
	mu.Lock()
	failure = nil
	mu.Unlock()
	b.write("other.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.8}]}\n")
	addresses("[192.0.2.1 2001:db8::1]")
	b.write("own.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.9}]}\n")
	addresses("[192.0.2.9]")
	if err := os.Remove(filepath.Join(b.dir, "own.yaml")); err != nil {
		t.Fatal(err)
	}
	addresses("[192.0.2.1 2001:db8::1]")
	if b.builder.Snapshot().Node.Draining {
		t.Error("the machine's node is draining")
	}
}

// TestOtherNodes starts with the Node of another name only, and with this one too: only the former is logged.
func TestOtherNodes(t *testing.T) {
	for _, name := range []string{"n3", "n1"} {
		dir := t.TempDir()
		for _, node := range []string{"n2", name} {
			if err := os.WriteFile(filepath.Join(dir, node+".yaml"), []byte("apiVersion: v1\nkind: Node\nmetadata: {name: "+node+"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if logged := strings.Join(run(t, dir).logged(), "\n"); strings.Contains(logged, `"msg"="No manifest has a Node of this name; is it right?" "node"="n1" "nodes"=2 "first"=["n2" "n3"]`) != (name != "n1") {
			t.Errorf("with n2 and %s: %s", name, logged)
		}
	}
}

// TestNoFolder checks that Run fails if the directory does not exist.
func TestNoFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "none"): "no such file or directory; create it", file: "is a file; use the directory"} {
		err := New(path, "n1", Options{}).Run(context.Background(), cluster.NewBuilder("n1"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run(%s) gave the error %v, want %q", path, err, want)
		}
	}
}

// TestUnreadFolder checks that Run fails if the directory cannot be read at the start: without its objects, a proxy would remove the
// rules that are in force.
func TestUnreadFolder(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if err := os.Chmod(dir, 0o111); err != nil {
		t.Fatal(err)
	}
	s, ended := New(dir, "n1", Options{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread()                       // and ends with the goroutine
		if err := unix.Setfsuid(65534); err != nil { // root could read it
			t.Error(err)
		}
		ended <- s.Run(t.Context(), cluster.NewBuilder("n1"))
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, fs.ErrPermission) || s.isComplete() {
			t.Errorf("Run gave the error %v", err)
		}
	case <-s.Complete():
		t.Error("complete")
	}
}

// TestBadFileAtStart checks that Complete waits until errors of files are logged.
func TestBadFileAtStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("nonsense: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	if log := strings.Join(run(t, dir).logged(), "\n"); !strings.Contains(log, "Manifest has errors") {
		t.Errorf("logged before Complete: %s", log)
	}
}

// TestStrangeFiles checks that pipes, which would block, and large files are not read.
func TestStrangeFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large.yaml"), maxSize+1); err != nil {
		t.Fatal(err)
	}
	b := run(t, dir)
	b.waitLog("pipe.yaml is not a regular file")
	b.waitLog("large.yaml: larger than 256 MiB")
	b.write("a.yaml", service("a", 1))
	b.want("a=1")
}
