package faults

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// mark is the packet mark of both modes.
const mark = 0x4000

// machine is the fake kernel of one mode, in both families.
type machine interface {
	// open returns a new backend on the doors, whose notices end with the test; wrap, if it is not nil, is applied to each.
	open(t testing.TB, fail *failing) backend.Backend
	// refuse has the rules with these endpoints refused; anonymously if the kernel does not name them.
	refuse(anonymous bool, endpoints ...netip.AddrPort)
	// dump returns the rules, writes the number of writes so far.
	dump() string
	writes() int
}

// machines returns a new one of each kind.
func machines() map[string]func() machine {
	return map[string]func() machine{
		"nftables":        func() machine { return newNFT() },
		"iptables nft":    func() machine { return newIPT(ipt.NFT) },
		"iptables legacy": func() machine { return newIPT(ipt.Legacy) },
	}
}

// eachMachine runs a test on each.
func eachMachine(t *testing.T, test func(t *testing.T, m machine)) {
	for name, create := range machines() {
		t.Run(name, func(t *testing.T) { test(t, create()) })
	}
}

type nftMachine []*nfttest.Fake

func newNFT() nftMachine {
	v4 := nfttest.New(nf.IPv4, nftables.TableName)
	return nftMachine{v4, nfttest.New(nf.IPv6, nftables.TableName).Beside(v4)}
}

func (m nftMachine) open(t testing.TB, fail *failing) backend.Backend {
	var tables []nft.Table
	for _, fake := range m {
		tables = append(tables, fail.table(fake))
	}
	watch := m[0].Watch()
	t.Cleanup(func() { _ = watch.Close() })
	return nftables.New(nftables.Options{Mark: mark}, watch, tables...)
}

func (m nftMachine) refuse(anonymous bool, endpoints ...netip.AddrPort) {
	for _, fake := range m {
		fake.Refuse(anonymous, func(object string, key []byte) unix.Errno {
			for _, e := range endpoints {
				if object == "set endpoints" && bytes.Contains(key, serviceOf(e).AsSlice()) {
					return unix.EINVAL
				}
			}
			return 0
		})
	}
}

func (m nftMachine) dump() string { return m[0].Dump() + m[1].Dump() }

func (m nftMachine) writes() int { return m[0].Stats().Writes + m[1].Stats().Writes }

type iptMachine []*ipttest.Fake

func newIPT(variant ipt.Variant) iptMachine {
	return iptMachine{ipttest.New(ipt.IPv4, variant), ipttest.New(ipt.IPv6, variant)}
}

// noSettings is a kernel without settings.
type noSettings struct{}

func (noSettings) Read(name string) (string, error) { return "", fmt.Errorf("no setting %s", name) }

func (noSettings) Write(name, _ string) error { return fmt.Errorf("no setting %s", name) }

func (m iptMachine) open(t testing.TB, fail *failing) backend.Backend {
	var doors []ipt.Tables
	for _, fake := range m {
		doors = append(doors, fail.tables(fake))
	}
	notices := ipttest.NewNotices(m...)
	t.Cleanup(func() { _ = notices.Close() })
	return iptables.New(iptables.Options{Mark: mark}, noSettings{}, notices, doors...)
}

func (m iptMachine) refuse(anonymous bool, endpoints ...netip.AddrPort) {
	for _, fake := range m {
		fake.Refuse(func(input string) error {
			number := 0
			for line := range strings.Lines(input) {
				number++
				for _, e := range endpoints {
					if !strings.HasSuffix(strings.TrimSpace(line), " "+e.String()) {
						continue
					}
					refused := &ipt.RestoreError{Family: ipt.IPv4, Output: "refused by a test"}
					if !anonymous {
						refused.Line, refused.Text = number, strings.TrimSpace(line)
					}
					return refused
				}
			}
			return nil
		})
	}
}

func (m iptMachine) dump() string { return m[0].Dump() + m[1].Dump() }

func (m iptMachine) writes() int { return m[0].Stats().Restores + m[1].Stats().Restores }

// endpointOf is the first endpoint of a Service of a clusters.Sized.
func endpointOf(number int) netip.AddrPort {
	return netip.AddrPortFrom(clusters.AddrAt(10<<24, number*256), 8080)
}

// serviceOf is the cluster IP of the Service with this endpoint.
func serviceOf(endpoint netip.AddrPort) netip.Addr {
	b := endpoint.Addr().As4()
	return clusters.AddrAt(172<<24, int(b[1])<<8|int(b[2]))
}

// served counts the endpoints of a clusters.Sized in the rules, and those of one Service.
func served(m machine, number int) (all, of int) {
	for line := range strings.Lines(m.dump()) {
		if !strings.Contains(line, "8080") {
			continue
		}
		all++
		if strings.Contains(line, "10."+strings.TrimPrefix(clusters.AddrAt(10<<24, number*256).String(), "10.")) {
			of++
		}
	}
	return all, of
}

// newQuarantined returns a backend with a quarantine, on doors that fail.
func newQuarantined(t testing.TB, m machine, fail *failing) *proxy.Quarantine {
	return proxy.NewQuarantine(m.open(t, fail))
}

// open returns a backend with a quarantine.
func open(t testing.TB, m machine) *proxy.Quarantine { return proxy.NewQuarantine(m.open(t, nil)) }

// program syncs, and returns the result in IPv4.
func program(t *testing.T, b backend.Backend, p *plan.Plan) backend.Result {
	t.Helper()
	results := b.Sync(context.Background(), p)
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("%s: %v", r.Family, r.Err)
		}
	}
	return results[0]
}

// ports returns the names of the quarantined ports.
func ports(r backend.Result) (names []string) {
	for _, refused := range r.Refused {
		names = append(names, refused.Port)
	}
	return names
}
