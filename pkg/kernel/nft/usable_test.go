package nft

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// TestNoProgram checks the errors if nft is not installed or fails, or is too old, of OpenUsable and of Run.
func TestNoProgram(t *testing.T) {
	table, err := Open(nf.IPv4, "kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	const install = "install nftables 1.0.1 or later"
	for _, test := range []struct{ script, says, advises string }{
		{"", "executable file not found", install},
		{"#!/bin/sh\necho nftables v0.9.8", "got nftables v0.9.8", install},
		{"#!/bin/sh\necho Operation not permitted >&2; exit 1", "exit status 1", "CAP_NET_ADMIN"},
	} {
		if test.script != "" {
			if err := os.WriteFile(dir+"/nft", []byte(test.script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		tx := table.NewTransaction()
		tx.Add(&knftables.Table{})
		_, opening := OpenUsable(t.Context(), "kube-proxy", nf.IPv4, nf.IPv6)
		for when, err := range map[string]error{"Run": table.Run(t.Context(), tx), "OpenUsable": opening} {
			advises := test.advises
			if when == "Run" && strings.Contains(test.script, "v0.9.8") {
				advises = "v1.0.1 or later" // knftables' words
			}
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), advises) {
				t.Errorf("%s with %q: %v", when, test.script, err)
			}
		}
	}
}

// programs puts a script in nft's place.
func programs(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/nft", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// oldNumber makes this thread's kernel call itself Linux 2.6. The thread ends with the test.
func oldNumber(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	const uname26 = 0x0020000 // UNAME26 of linux/personality.h
	if _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, uname26, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// TestNoAnswer runs programs that crash, and one that hangs: only a crash is called one, and a context ends a program.
func TestNoAnswer(t *testing.T) {
	for script, want := range map[string]error{"kill -SEGV $$": errCrash, "exec sleep 60": context.DeadlineExceeded} {
		const answers = "#!/bin/sh\ncase $1 in --version) echo nftables v1.0.6; exit 0;; esac\n"
		programs(t, answers+script+"\n")
		table, err := Open(nf.IPv4, "kube-proxy")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = table.Close() })
		found := map[string]error{}
		limit, crashes := 100*time.Millisecond, errors.Is(want, errCrash)
		if crashes {
			limit = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, found["Rules"] = table.Rules(ctx)
		_, found["OpenUsable"] = OpenUsable(ctx, "kube-proxy", nf.IPv4)
		tx := table.NewTransaction()
		tx.Add(&knftables.Table{})
		found["Run"] = table.Run(ctx, tx)
		cancel()
		for when, err := range found {
			if !errors.Is(err, want) || errors.Is(err, errCrash) != crashes {
				t.Errorf("%s with %q: %v", when, script, err)
			}
		}
	}
}

// TestOldKernel opens a table where nft works and a kernel with an old number refuses what Linux 5.13 added, with and without the
// variable that disables the check.
func TestOldKernel(t *testing.T) {
	oldNumber(t)
	programs(t, `#!/bin/sh
case $1 in --version) echo "nftables v1.0.6 (Lester Gooch #5)"; exit 0;; esac
if grep -q '\* : drop'; then { echo "Error: Could not process rule: Invalid argument"; echo more; } >&2; exit 1; fi
`)
	for skip, says := range map[string][]string{
		"":  {"Linux 5.13", "Invalid argument: use a newer kernel or the iptables mode", anyKernel + "=1"},
		"1": nil,
	} {
		t.Setenv(anyKernel, skip)
		tables, err := OpenUsable(t.Context(), "kube-proxy", nf.IPv4, nf.IPv6)
		for _, table := range tables {
			err = errors.Join(err, table.Close())
		}
		if says == nil && err != nil {
			t.Errorf("with %s=%s: %v", anyKernel, skip, err)
		}
		for _, words := range says {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("got %v, want %q", err, words)
			}
		}
	}
}
