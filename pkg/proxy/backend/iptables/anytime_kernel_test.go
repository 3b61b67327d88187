package iptables

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelTamperingAtAnyTime is the same with the kernel, while a running proxy changes a Service, for a change of each kind: of rules that
// are written at the time, of others, of the filter table's, and of what leads to them.
func TestKernelTamperingAtAnyTime(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock") // other tests use the machine's
	programs(t, func(t *testing.T, variant ipt.Variant, old bool) {
		all := meddlings()
		for _, what := range []string{"replaces the Service that changes", "empties a Service that stays", "refuses everything", "removes a jump", "returns before our rules"} {
			input := all[what]
			if input == "" {
				t.Fatalf("no such change: %s", what)
			}
			t.Run(what, func(t *testing.T) {
				amidSync(t, "running", "a change", func(t *testing.T) *meddled {
					netns.Enter(t, "iptables-"+string(variant))
					door, err := ipt.Open(t.Context(), ipt.IPv4, variant)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = door.Close() })
					return newMeddled(door, old, func() error {
						program := exec.Command("iptables-"+string(variant)+"-restore", "--noflush")
						program.Stdin = strings.NewReader(input)
						return program.Run()
					})
				})
			})
		}
	})
}
