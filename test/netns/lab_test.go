//go:build linux

package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary act as a helper process of a test instead of
// running the tests; see TestMain.
const roleVariable = "NETNS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		Main(m)
	case "check":
		fmt.Println(Check())
	case "require":
		os.Exit(m.Run()) // with -test.run=TestRequireHere or TestEnterHere
	default:
		playLab(role)
	}
}

// playLab builds a lab with a process in it, prints the namespaces and the process,
// and then fails or waits to be killed.
func playLab(end string) {
	lab, err := New(Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	sleeper := lab.Node1.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(sleeper.Process.Pid)
	for _, host := range lab.Hosts() {
		name, _ := os.Readlink(host.Path())
		fmt.Println(name)
	}
	fmt.Println("ready")
	if end == "panic" {
		panic("in the middle of a test")
	}
	select {}
}

// TestGone checks that nothing of a lab is left however its process ends.
func TestGone(t *testing.T) {
	Require(t)
	ends := map[string]func(*exec.Cmd) error{
		"panic":     func(*exec.Cmd) error { return nil },
		"interrupt": func(c *exec.Cmd) error { return c.Process.Signal(os.Interrupt) },
		"kill":      func(c *exec.Cmd) error { return c.Process.Kill() },
	}
	for end, act := range ends {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			player := exec.Command(os.Args[0])
			player.Env = append(os.Environ(), roleVariable+"="+end)
			output, err := player.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := player.Start(); err != nil {
				t.Fatal(err)
			}
			var printed []string
			for lines := bufio.NewScanner(output); lines.Scan() && lines.Text() != "ready"; {
				printed = append(printed, lines.Text())
			}
			if len(printed) != 9 { // a process, and eight namespaces
				_ = player.Process.Kill()
				t.Fatalf("the lab printed %q", printed)
			}
			if err := act(player); err != nil {
				t.Fatal(err)
			}
			if err := player.Wait(); err == nil {
				t.Fatal("the process exited with status 0")
			}
			sleeper, err := strconv.Atoi(printed[0])
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the process in the lab has exited", func() bool {
				return !running(sleeper)
			})
			eventually(t, "no process uses one of the namespaces", func() bool {
				return len(holders(t, printed[1:])) == 0
			})
		})
	}
}

// TestClose checks that Close leaves nothing either, although the process continues.
func TestClose(t *testing.T) {
	Require(t)
	lab, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, host := range lab.Hosts() {
		name, err := os.Readlink(host.Path())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if held := holders(t, names); len(held) == 0 {
		t.Fatal("the test does not detect users of a namespace")
	}
	if _, err := lab.Node1.Pods[0].Serve(TCP, 80); err != nil {
		t.Fatal(err)
	}
	sleeper := lab.Node1.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lab.Close(); err != nil {
		t.Fatalf("closed again: %v", err)
	}
	if running(sleeper.Process.Pid) {
		t.Error("the process in the lab still runs")
	}
	if held := holders(t, names); len(held) != 0 {
		t.Errorf("namespaces are still in use: %v", held)
	}
	if err := lab.Node1.Command("true").Run(); err == nil {
		t.Error("a command was started in a closed lab")
	}
}

// eventually waits for an asynchronous condition.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out after 10 s: %s", what)
		}
	}
}

// running reports whether the process exists and is not a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// holders returns the users of the namespaces, given as "net:[4026532000]": threads
// inside, open files, or mounts.
func holders(t *testing.T, names []string) []string {
	t.Helper()
	var held []string
	for _, pattern := range []string{"/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			target, err := os.Readlink(path)
			if err == nil && slices.Contains(names, target) {
				held = append(held, path)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(string(mounts), name) {
			held = append(held, "a mount of "+name)
		}
	}
	return held
}

// TestRequire checks that without the right to create namespaces a test is skipped,
// and fails in CI; both messages say what to do.
func TestRequire(t *testing.T) {
	Require(t)
	for _, c := range []struct{ ci, want string }{{"", "--- SKIP"}, {"true", "--- FAIL"}} {
		output := withoutRights(t, []string{"-test.v", "-test.run=TestRequireHere"}, roleVariable+"=require", "CI="+c.ci)
		if !strings.Contains(output, c.want) || !strings.Contains(output, "run it as root") {
			t.Errorf("CI=%q: want %s and what to do, got:\n%s", c.ci, c.want, output)
		}
	}
	if output := withoutRights(t, nil, roleVariable+"=check"); !strings.Contains(output, "operation not permitted") {
		t.Errorf("Check without rights: %s", output)
	}
	if err := Check("nft-of-another-world"); err == nil || !strings.Contains(err.Error(), "nft-of-another-world is not installed") {
		t.Errorf("Check with a missing tool: %v", err)
	}
}

// TestRequireHere is run by TestRequire without rights.
func TestRequireHere(t *testing.T) { Require(t) }

// TestEnter checks that a subtest, which is not in the namespace of its test, is not in the machine's either, and that Enter
// fails in a process that is.
func TestEnter(t *testing.T) {
	Enter(t)
	namespace := func() string {
		name, err := os.Readlink(currentNamespace)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	machine, entered := os.Getenv(machineVariable), namespace()
	if machine == "" || machine == entered {
		t.Errorf("the test runs in %s, and the machine's namespace is %q", entered, machine)
	}
	t.Run("subtest", func(t *testing.T) {
		if own := namespace(); own == machine || own == entered {
			t.Errorf("the subtest runs in %s; the machine's namespace is %s, and the test's is %s", own, machine, entered)
		}
	})
	for _, unmoved := range []string{"", entered} {
		player := exec.Command(os.Args[0], "-test.v", "-test.run=^TestEnterHere$")
		player.Env = append(os.Environ(), roleVariable+"=require", machineVariable+"="+unmoved)
		output, err := player.CombinedOutput()
		if err == nil || !strings.Contains(string(output), "call netns.Main in the package's TestMain") {
			t.Errorf("Enter in the machine's namespace %q: %v\n%s", unmoved, err, output)
		}
	}
}

// TestEnterHere is run by TestEnter.
func TestEnterHere(t *testing.T) { Enter(t) }

// withoutRights runs the test binary without CAP_SYS_ADMIN and returns its output.
func withoutRights(t *testing.T, arguments []string, environment ...string) string {
	t.Helper()
	output := make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its rights
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			output <- err.Error()
			return
		}
		player := exec.Command(os.Args[0], arguments...)
		player.Env = append(os.Environ(), environment...)
		text, _ := player.CombinedOutput() // it may fail, depending on its role
		output <- string(text)
	}()
	return <-output
}

func TestHostByName(t *testing.T) {
	lab := Start(t, Options{PodsPerNode: 1})
	for _, name := range []string{"gateway", "client", "node1", "node2", "pod1a", "pod2a"} {
		if host, err := lab.Host(name); err != nil || host.Name != name {
			t.Errorf("Host(%q) = %v, %v", name, host, err)
		}
	}
	if _, err := lab.Host("pod1b"); err == nil || !strings.Contains(err.Error(), "pod2a") {
		t.Errorf("the error for an unknown host does not list the hosts: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, pods := range []int{-1, 201} {
		if lab, err := New(Options{PodsPerNode: pods}); err == nil {
			lab.Close()
			t.Errorf("no error for %d pods per node", pods)
		}
	}
	for _, nodes := range []int{1, 10} {
		if lab, err := New(Options{Nodes: nodes}); err == nil {
			lab.Close()
			t.Errorf("no error for %d nodes", nodes)
		}
	}
	if got := []string{letters(0), letters(25), letters(26), letters(199)}; !slices.Equal(got, []string{"a", "z", "aa", "gr"}) {
		t.Errorf("suffixes of pod names are %q", got)
	}
}

// TestInterfaces checks the interface names that the detect-local modes match.
func TestInterfaces(t *testing.T) {
	Require(t, "ip")
	for _, c := range []struct {
		network PodNetwork
		bridge  bool
	}{{Bridged, true}, {Routed, false}} {
		lab := Start(t, Options{PodNetwork: c.network})
		links, err := lab.Node1.Command("ip", "-br", "link").Output()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{Bridge: c.bridge, Uplink + "@": true, "vethpod1a@": true, "vethpod1b@": true} {
			if got := strings.Contains(string(links), name); got != want {
				t.Errorf("network %v: interface %s there: %v, want %v\n%s", c.network, name, got, want, links)
			}
		}
		if got := lab.Node1.Pods[0].Interface; got != "vethpod1a" {
			t.Errorf("the pod's interface is %q", got)
		}
	}
}

func TestCommand(t *testing.T) {
	lab := Start(t, Options{})
	for _, node := range lab.Nodes() {
		output, err := node.Command("cat", "/proc/self/net/fib_trie").Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(output), node.IPv4.String()) {
			t.Errorf("a command in %s does not see %v", node, node.IPv4)
		}
	}
	if _, err := lab.Client.Command("sh", "-c", "echo why not >&2; exit 3").Output(); err == nil || !strings.Contains(err.Error(), "why not") {
		t.Errorf("the error does not contain the standard error: %v", err)
	}
	if err := lab.Client.Command("no-such-command").Run(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a command that does not exist: %v", err)
	}
	sleeper := lab.Client.Command("sh", "-c", "sleep 1000 & wait")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sleeper.Kill(), sleeper.Kill()); err != nil {
		t.Fatal(err)
	}
	if status := sleeper.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("a killed command ended by %v", status)
	}
	if err := sleeper.Wait(); err == nil {
		t.Error("waiting again returned another result")
	}
}

// TestDo checks that the thread returns to its namespace, also after nested calls and
// a panic, and that errors are returned.
func TestDo(t *testing.T) {
	lab := Start(t, Options{})
	here := func() string {
		name, err := os.Readlink(currentNamespace)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := here()
	err := lab.Node1.Do(func() error {
		node := here()
		if node == home {
			t.Error("Do did not enter the namespace")
		}
		_ = lab.Client.Do(func() error {
			if here() == node {
				t.Error("a Do in a Do did not enter the other namespace")
			}
			return nil
		})
		if here() != node {
			t.Error("the inner Do did not return to the outer namespace")
		}
		return fs.ErrInvalid
	})
	if !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("Do returned %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = lab.Node1.Do(func() error { panic("inside") })
	}()
	if here() != home {
		t.Error("a panic in Do left the thread in the namespace")
	}
}

func TestAddressesAndRoutes(t *testing.T) {
	t.Parallel()
	lab := Start(t, Options{})
	if _, err := lab.Node1.Serve(TCP, 80); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"172.18.0.77/24", "fd00:172:18::77/64", "198.51.100.7/32", "2001:db8::7/128"} {
		prefix := netip.MustParsePrefix(address)
		probe := Probe{From: lab.Client, To: netip.AddrPortFrom(prefix.Addr(), 80)}
		if prefix.IsSingleIP() {
			if got := probe.Send(); got.Verdict != Dropped {
				t.Errorf("%v without a route: %v", probe, got)
			}
			if err := lab.Client.RouteVia(lab.Node1.Host, prefix); err != nil {
				t.Fatal(err)
			}
		}
		if err := lab.Node1.AddAddress(prefix); err != nil {
			t.Fatal(err)
		}
		if got := probe.Send(); got.Verdict != Answered || got.Endpoint != "node1" || got.Reached != probe.To {
			t.Errorf("%v with the address: %v", probe, got)
		}
		if err := lab.Node1.DelAddress(prefix); err != nil {
			t.Fatal(err)
		}
		if got := probe.Send(); got.Verdict == Answered {
			t.Errorf("%v after the address was removed: %v", probe, got)
		}
	}
	if err := lab.Client.Unroute(netip.MustParsePrefix("198.51.100.7/32")); err != nil {
		t.Error(err)
	}
	if err := lab.Client.Unroute(netip.MustParsePrefix("198.51.100.7/32")); err == nil {
		t.Error("no error for the removal of a missing route")
	}
}

// TestSockets checks Dial, Listen and ListenPacket.
func TestSockets(t *testing.T) {
	lab := Start(t, Options{})
	listener, err := lab.Node2.Listen("tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			fmt.Fprintf(connection, "hello %v", connection.RemoteAddr())
			connection.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	connection, err := lab.Node1.Dial(ctx, "tcp", netip.AddrPortFrom(lab.Node2.IPv6, 8080).String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	greeting, err := bufio.NewReader(connection).ReadString(0)
	if want := "hello " + connection.LocalAddr().String(); greeting != want {
		t.Errorf("read %q (%v), want %q", greeting, err, want)
	}
	datagrams, err := lab.Node2.ListenPacket("udp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	if got := (Probe{From: lab.Node1.Host, To: netip.AddrPortFrom(lab.Node2.IPv4, 8080), Protocol: UDP}).Send(); got.Verdict != Dropped {
		t.Errorf("a datagram to a closed port: %v", got)
	}
}
