package ipt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// hangs replaces the programs of a variant, for this test, by scripts that answer only --version until a file exists.
func hangs(t *testing.T, variant Variant) (release string) {
	t.Helper()
	dir := t.TempDir()
	release = filepath.Join(dir, "release")
	for _, verb := range []string{"", "-save", "-restore"} {
		name := "iptables-" + string(variant) + verb
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\nwhile [ \"$1\" != --version ] && [ -d " + dir + " ] && [ ! -e " + release + " ]; do sleep 0.1; done\nexec " + path + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return release
}

// TestKernelHungPrograms calls each method that runs a program while the programs hang: it returns at the end of its context.
// Afterwards all of them work.
func TestKernelHungPrograms(t *testing.T) {
	for _, variant := range []Variant{NFT, Legacy} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Enter(t, "iptables-"+string(variant))
			release := hangs(t, variant)
			tables, err := Open(t.Context(), IPv4, variant)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tables.Close() })
			calls := map[string]func(context.Context) error{
				"Write": func(ctx context.Context) error {
					return tables.Write(ctx, &Transaction{Table: "nat", Chains: []Chain{{"KUBE-A", []Rule{Listed("-j RETURN")}}}})
				},
				"Save":  func(ctx context.Context) error { _, err := tables.Save(ctx, "nat"); return err },
				"Rules": func(ctx context.Context) error { _, err := tables.Rules(ctx, "nat", "PREROUTING"); return err },
				"Insert": func(ctx context.Context) error {
					return tables.Insert(ctx, "nat", ChainRule{"PREROUTING", Rule{Target: Return}})
				},
				"Append": func(ctx context.Context) error { return tables.Append(ctx, "nat", "SHARED", Rule{Target: Return}) },
				"Delete": func(ctx context.Context) error { return tables.Delete(ctx, "nat", "PREROUTING", Rule{Target: Accept}) },
			}
			for name, call := range calls {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				err := call(ctx)
				// A legacy table that does not exist is not read.
				if unread := variant == Legacy && name == "Save"; !errors.Is(err, context.DeadlineExceeded) && !unread {
					t.Errorf("%s returned %v, want %v", name, err, context.DeadlineExceeded)
				}
				cancel()
			}
			if err := os.WriteFile(release, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for name, call := range calls {
				if err := call(t.Context()); err != nil {
					t.Errorf("%s, afterwards: %v", name, err)
				}
			}
		})
	}
}
