//go:build linux

package netif

import (
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// patience bounds the wait for a value, which normally takes no time.
const patience = 20 * time.Second

func ip(t *testing.T, command string, args ...any) {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(command, args...))
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// TestKernel compares addresses with those of a real kernel.
func TestKernel(t *testing.T) {
	netns.Enter(t, "ip")
	k := Kernel{}
	want := func(what string, get func() ([]netip.Addr, error), want ...string) {
		t.Helper()
		got, err := get()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(append([]string{}, want...), texts(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("Addrs of nothing", k.Addrs)
	want("NodeAddrs of nothing", k.NodeAddrs)
	ip(t, "link set lo up")
	ip(t, "address add 198.51.100.7/32 dev lo")
	ip(t, "link add veth0 type veth peer name veth1")
	ip(t, "link set veth0 up")
	ip(t, "link set veth1 up")
	for _, address := range []string{"203.0.113.1/24", "203.0.113.9/24", "10.0.0.1/8", "169.254.1.1/16", "2001:db8:1::1/64 nodad", "2001:db8:1::9/64 nodad", "fd00::1/64 nodad"} {
		ip(t, "address add %s dev veth0", address)
	}
	want("Addrs", k.Addrs, "10.0.0.1", "127.0.0.1", "169.254.1.1", "198.51.100.7", "203.0.113.1", "203.0.113.9", "::1", "2001:db8:1::1", "2001:db8:1::9", "fd00::1")
	want("NodeAddrs without a default route", k.NodeAddrs, "10.0.0.1", "2001:db8:1::1", "203.0.113.1", "203.0.113.9", "2001:db8:1::9", "fd00::1")
	ip(t, "route add default via 203.0.113.2 src 203.0.113.9")
	ip(t, "-6 route add default via 2001:db8:1::2 dev veth0 src 2001:db8:1::9")
	want("NodeAddrs", k.NodeAddrs, "203.0.113.9", "2001:db8:1::9", "10.0.0.1", "203.0.113.1", "2001:db8:1::1", "fd00::1")
}

// TestKernelWatch expects a value after every change of a real kernel's addresses.
func TestKernelWatch(t *testing.T) {
	netns.Enter(t, "ip")
	k := Kernel{}
	ctx := t.Context()
	ip(t, "link set lo up")
	changed := k.Watch(ctx)
	add := netip.MustParseAddr("198.51.100.7")
	for i := range 6 {
		verb, present := "add", true
		if i%2 == 1 {
			verb, present = "delete", false
		}
		ip(t, "address %s %s/32 dev lo", verb, add)
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatalf("no value after ip address %s", verb)
		}
		have, err := k.Addrs()
		if err != nil || slices.Contains(have, add) != present {
			t.Fatalf("after ip address %s and a value: %v, %v", verb, have, err)
		}
	}
}

// TestKernelDevices follows interfaces as they come and go, and leaves out those on which no IP packets arrive.
func TestKernelDevices(t *testing.T) {
	netns.Enter(t, "ip")
	k := Kernel{}
	changed := k.WatchDevices(t.Context())
	want := func(names ...string) {
		t.Helper()
		var got []string
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			devices, err := k.Devices()
			if err != nil {
				t.Fatal(err)
			}
			if got = slices.Sorted(maps.Keys(devices)); slices.Equal(got, names) {
				return
			}
			select {
			case <-changed:
			case <-time.After(patience):
				t.Fatalf("no value, and the devices are %v, want %v", got, names)
			}
		}
		t.Errorf("the devices are %v, want %v", got, names)
	}
	ip(t, "link set lo up")
	want()
	ip(t, "link add veth0 type veth peer name veth1")
	ip(t, "link set veth0 up")
	want("veth0")
	ip(t, "link set veth1 up")
	want("veth0", "veth1")
	ip(t, "link add br0 type bridge")
	ip(t, "link set br0 up")
	want("br0", "veth0", "veth1")
	ip(t, "link set veth1 master br0")
	ip(t, "link set br0 down")
	want("veth0", "veth1")
	ip(t, "link delete veth0")
	want()
}
