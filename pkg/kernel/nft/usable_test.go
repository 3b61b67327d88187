package nft

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"
)

// TestNoProgram checks the errors if nft is not installed or fails, or is too old, of OpenUsable and of Run.
func TestNoProgram(t *testing.T) {
	table, err := Open(knftables.IPv4Family, testTable)
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
		_, opening := OpenUsable(t.Context(), testTable, knftables.IPv4Family, knftables.IPv6Family)
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

// TestNoAnswer runs programs that crash, and one that hangs: only a crash is called one, and a context ends a program.
func TestNoAnswer(t *testing.T) {
	for script, want := range map[string]error{"kill -SEGV $$": errCrash, "exec sleep 60": context.DeadlineExceeded} {
		const answers = "#!/bin/sh\ncase $1 in --version) echo nftables v1.0.6; exit 0;; esac\n"
		programs(t, answers+script+"\n")
		table, err := Open(knftables.IPv4Family, testTable)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		found := map[string]error{}
		limit, crashes := 100*time.Millisecond, errors.Is(want, errCrash)
		if crashes {
			limit = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, found["Rules"] = table.Rules(ctx)
		_, found["OpenUsable"] = OpenUsable(ctx, testTable, knftables.IPv4Family)
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

// TestHungStart runs transactions while a start of nft hangs: they wait for it, and start no other one. When it has ended, they
// run.
func TestHungStart(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RUNS", dir)
	programs(t, `#!/bin/sh
case $* in
--version) echo nftables v1.0.6; mktemp $RUNS/XXXXXX;;
*--check*) until test -e $RUNS/end; do sleep 0.01; done;;
esac
`)
	table, err := Open(knftables.IPv4Family, testTable)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	tx := table.NewTransaction()
	tx.Add(&knftables.Table{})
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := table.Run(ctx, tx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while nft hangs: %v", err)
		}
		cancel()
	}
	if err := os.WriteFile(dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := table.Run(t.Context(), tx); err != nil {
		t.Errorf("after that: %v", err)
	}
	runs, err := os.ReadDir(dir)
	if len(runs) != 2 || err != nil {
		t.Errorf("nft was started %d times, want 1 (%v)", len(runs)-1, err)
	}
}

// TestOldKernel opens a table where nft works and the kernel refuses what Linux 5.13 added, with and without the variable that
// disables the check.
func TestOldKernel(t *testing.T) {
	programs(t, `#!/bin/sh
case $1 in --version) echo "nftables v1.0.6 (Lester Gooch #5)"; exit 0;; esac
if grep -q '\* : drop'; then { echo "Error: Could not process rule: Invalid argument"; echo more; } >&2; exit 1; fi
`)
	for skip, says := range map[string][]string{
		"":  {"Linux 5.13", "Invalid argument: use a newer kernel or the iptables mode", anyKernel + "=1"},
		"1": nil,
	} {
		t.Setenv(anyKernel, skip)
		tables, err := OpenUsable(t.Context(), testTable, knftables.IPv4Family, knftables.IPv6Family)
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
