package iptables

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelTamperingAtAnyTime is the same with the kernel, while a running proxy changes a Service.
func TestKernelTamperingAtAnyTime(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock") // other tests use the machine's
	programs(t, func(t *testing.T, variant ipt.Variant, old bool) {
		for what, input := range meddlings() {
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
