package nftables

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// countlessKernel is a kernel's table without the sizes of sets, as kernels before 6.18 or so return it.
type countlessKernel struct{ nft.Table }

func (c countlessKernel) Objects(ctx context.Context) (nf.Objects, error) {
	o, err := c.Table.Objects(ctx)
	for i := range o.Sets {
		o.Sets[i].Count = -1
	}
	return o, err
}

func (c countlessKernel) Again() (nft.Table, error) {
	again, err := c.Table.Again()
	return countlessKernel{again}, err
}

// TestKernelForeignElements has nft add an element to a set of more than 10,000, in both families.
func TestKernelForeignElements(t *testing.T) {
	for _, test := range []struct {
		family    nf.Family
		plan      *plan.Plan
		set       string
		key, rest string
	}{
		{nf.IPv4, clusters.NewSized(10_100, 1).Plan(), mapEndpoints, "198.51.100.1 . tcp . 443 . 0", " : 192.0.2.1 . 443"},
		{nf.IPv6, plan.Compute(clusters.WithExternalIPs(5_100), &plan.Options{}, nil), setUnserved, "2001:db8::1 . tcp . 443", ""},
	} {
		t.Run(test.family.String(), func(t *testing.T) {
			netns.Enter(t, "nft")
			kernel, err := nft.Open(test.family, TableName)
			if err != nil {
				t.Fatal(err)
			}
			b := newBackend(testOptions, countlessKernel{kernel})
			defer b.Close()
			mustSync(t, b, test.plan)
			set := test.family.String() + " " + TableName + " " + test.set
			for range 2 { // the notifications name the second one
				if out, err := exec.Command("nft", "add element "+set+" { "+test.key+test.rest+" }").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if details := found(t, b); len(details) != 1 || !strings.Contains(details[0], test.set) {
					t.Errorf("there is an element %s; found %q", test.key, details)
				}
				mustSync(t, b, test.plan)
				if out, err := exec.Command("nft", "get element "+set+" { "+test.key+" }").CombinedOutput(); err == nil {
					t.Errorf("it is still there: %s", out)
				}
			}
			holds(t, b, test.plan)
		})
	}
}
