package ipt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// openKernel opens tables in a new namespace.
func openKernel(t testing.TB, family Family, variant Variant) *kernelTables {
	t.Helper()
	netns.Enter(t, "iptables-nft", "iptables-legacy", "ip")
	tables, err := Open(context.Background(), family, variant)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tables.Close(); err != nil {
			t.Error(err)
		}
	})
	return tables.(*kernelTables)
}

// in6 rewrites an input for IPv6.
func in6(input string) string {
	return strings.NewReplacer("10.0.0.1:80", "[fd00::1]:80", "10.0.0.0/8", "fd00::/8", "10.0.0.300/32", "fd00::10000/128", "0.0.0.5/0.0.0.15", "::5/::f",
		"255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "127.0.0.0/8", "::1/128", "icmp-port", "icmp6-port").Replace(input)
}

// TestKernelWatchesLock checks that a program is noticed by its lock, also after the file was deleted, and a change without
// the lock by the tables' sizes. Programs that only print rules are not noticed.
func TestKernelWatchesLock(t *testing.T) {
	tables := openKernel(t, IPv4, Legacy)
	lock := t.TempDir() + "/lock"
	t.Setenv("XTABLES_LOCKFILE", lock)
	notices, err := OpenLegacyNotices([]Family{IPv4}, "nat")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = notices.Close() })
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("iptables-legacy", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := func(when string, more bool) {
		t.Helper()
		if _, all := notices.Take(); all == more {
			t.Errorf("%s: noticed %t, want %t", when, !all, more)
		}
	}
	run("-t", "nat", "-A", "OUTPUT", "-d", "10.0.0.1", "-j", "ACCEPT")
	want("at first", true)
	want("when nothing happened", false)
	for range 2 {
		run("-t", "nat", "-R", "OUTPUT", "1", "-d", "10.0.0.2", "-j", "ACCEPT")
		want("after a change that keeps the size", true)
		want("when nothing happened", false)
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		want("the lock was deleted", true)
		want("without a lock", false)
	}
	t.Setenv("XTABLES_LOCKFILE", lock+"-of-another-mount")
	run("-t", "nat", "-A", "OUTPUT", "-d", "10.0.0.1", "-j", "ACCEPT")
	t.Setenv("XTABLES_LOCKFILE", lock)
	want("after a change of the size without the lock", true)
	if _, err := tables.Save(t.Context(), "nat"); err != nil {
		t.Fatal(err)
	}
	want("after Save", false)
	run("-t", "nat", "-A", "OUTPUT", "-d", "10.0.0.1", "-j", "ACCEPT")
	if err := notices.Pause(); err != nil {
		t.Fatal(err)
	}
	run("-t", "nat", "-F", "OUTPUT")
	if notices.Resume(1) {
		t.Error("it claims to know that nobody else wrote")
	}
	want("before a pause", true)
	want("in a pause", false)
}

// TestKernelLock holds the lock: the error must say so and what to do.
func TestKernelLock(t *testing.T) {
	tables := openKernel(t, IPv4, Legacy)
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	file, err := os.Create(os.Getenv("XTABLES_LOCKFILE"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	err = tables.Restore(context.Background(), "*nat\n:A - [0:0]\nCOMMIT\n")
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "fuser") {
		t.Errorf("the lock is held, and the error is %v", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := tables.Restore(context.Background(), "*nat\n:A - [0:0]\nCOMMIT\n"); err != nil {
		t.Error(err)
	}
}

// TestKernelDetect creates chains in the variants and checks which variant is detected.
func TestKernelDetect(t *testing.T) {
	for _, test := range []struct {
		name string
		// nft and legacy are what is in these variants.
		nft, legacy string
		want        Variant
	}{
		{"nothing", "", "", NFT},
		{"the kubelet's hint", "", "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n", Legacy},
		{"an older kubelet's", "", "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n", Legacy},
		{"both", "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n", "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n", NFT},
		{"a hint counts more than rules", "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n", "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n", Legacy},
		{"another proxy's rules", "", "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n", Legacy},
		{"external rules", "", "*nat\n:DOCKER - [0:0]\nCOMMIT\n", NFT},
	} {
		t.Run(test.name, func(t *testing.T) {
			netns.Enter(t, "iptables-nft", "iptables-legacy")
			for variant, input := range map[Variant]string{NFT: test.nft, Legacy: test.legacy} {
				tables, err := Open(context.Background(), IPv4, variant)
				if err != nil {
					t.Fatal(err)
				}
				if input != "" {
					err = tables.(*kernelTables).Restore(context.Background(), input)
				}
				if err := errors.Join(err, tables.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := Detect(context.Background()); err != nil || got != test.want {
				t.Errorf("found %s, %v; want %s", got, err, test.want)
			}
			if test.legacy == "" && legacyTableExists(IPv4, "mangle") {
				t.Error("reading created a legacy table")
			}
		})
	}
}
