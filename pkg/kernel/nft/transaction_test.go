package nft_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
)

// TestEarlierError runs transactions with an operation that knftables does not accept, which it reports when they run: alone, and
// after one that it accepts. None runs nft to write.
func TestEarlierError(t *testing.T) {
	kernel, err := nft.Open(nf.IPv4, testTable)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	nft.Programs(t, "#!/bin/sh\ncase $* in --version) echo nftables v1.0.6;; *--check*) ;; *) exit 2;; esac\n")
	for _, table := range []nft.Table{kernel, nfttest.New(nf.IPv4, testTable)} {
		for _, accepted := range []int{0, 1} {
			tx := table.NewTransaction()
			for range accepted {
				tx.Add(&knftables.Table{Comment: new("# ERROR: no error")})
			}
			tx.Add(&knftables.Chain{})
			if err := table.Run(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "no name specified for chain") {
				t.Errorf("%T, after %d operations: %v", table, accepted, err)
			}
		}
	}
}

// TestNoOperation runs a transaction without operations, which does not need nft.
func TestNoOperation(t *testing.T) {
	kernel, err := nft.Open(nf.IPv4, testTable)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	t.Setenv("PATH", t.TempDir())
	if err := kernel.Run(t.Context(), kernel.NewTransaction()); err != nil {
		t.Error(err)
	}
}
