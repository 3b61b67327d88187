package faults

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestRefusedServices has the rules of some Services refused, with and without a name, when all rules are new, and when only some
// are: everything else is programmed by the same Sync, in a number of writes that grows with the logarithm of the rules.
func TestRefusedServices(t *testing.T) {
	const many = 600
	want := []string{"default/service-300/TCP", "default/service-33/TCP"}
	for name, anonymous := range map[string]bool{"named": false, "not named": true} {
		t.Run(name, func(t *testing.T) {
			eachMachine(t, func(t *testing.T, m machine) {
				m.refuse(anonymous, endpointOf(33), endpointOf(300))
				c := clusters.NewSized(many, 1)
				b := open(t, m)
				result := program(t, b, c.Plan())
				all, of := served(m, 33)
				if !slices.Equal(ports(result), want) || all != many-2 || of != 0 || result.Refused[0].Kept {
					t.Errorf("quarantined %v, and %d endpoints served; want %v and %d", result.Refused, all, want, many-2)
				}
				if most := 140; m.writes() > most { // 2 x 2 x (log2(600) + 5) + those without refusals
					t.Errorf("%d writes, want at most %d", m.writes(), most)
				}
				if cause := result.Refused[0].Cause; !strings.Contains(cause.Error(), "refused by a test") && !errors.Is(cause, unix.EINVAL) {
					t.Errorf("the cause is %v", cause)
				}

				before := m.writes()
				c.Set(5, -1)
				result = program(t, b, c.Plan())
				if all, _ = served(m, 5); !slices.Equal(ports(result), want) || all != many-2 || result.Failed > 0 {
					t.Errorf("a change of another Service: quarantined %v, %d endpoints, %d failed attempts", ports(result), all, result.Failed)
				}
				if n := m.writes() - before; n > 4 {
					t.Errorf("a change of another Service took %d writes", n)
				}

				m.refuse(false)
				result = program(t, open(t, m), c.Plan())
				if all, _ = served(m, 5); len(result.Refused) > 0 || all != many {
					t.Errorf("after a restart, without refusals: quarantined %v, %d endpoints", ports(result), all)
				}
			})
		})
	}
}

// TestEarlierRulesStay has a change of a Service refused: its earlier rules stay in force, until they are refused too.
func TestEarlierRulesStay(t *testing.T) {
	eachMachine(t, func(t *testing.T, m machine) {
		c := clusters.NewSized(20, 1)
		b := open(t, m)
		program(t, b, c.Plan())
		added := netip.AddrPortFrom(endpointOf(7).Addr().Next(), 8080)
		m.refuse(false, added)
		if _, isNFT := m.(nftMachine); isNFT {
			m.refuse(false, endpointOf(7)) // elements are refused by the Service's address; the present one is not written again
		}
		c.Set(7, 2)
		c.Set(8, 2)
		result := program(t, b, c.Plan())
		all, of := served(m, 7)
		if !slices.Equal(ports(result), []string{"default/service-7/TCP"}) || !result.Refused[0].Kept || of != 1 || all != 21 {
			t.Errorf("quarantined %+v, %d endpoints of it and %d in all; want its earlier one and 21", result.Refused, of, all)
		}
	})
}

// TestEarlierAddressMoved has a change refused by which a Service gives an address away, and then a change of the Service that
// has it now: the rules stay as they are, so the address stays with the second one.
func TestEarlierAddressMoved(t *testing.T) {
	eachMachine(t, func(t *testing.T, m machine) {
		synctest.Test(t, func(t *testing.T) {
			c := clusters.NewSized(20, 1)
			set := func(number, endpoints int, addrs ...netip.Addr) {
				c.Set(number, endpoints)
				s, _ := c.Services.Get(clusters.NameAt(number))
				s.External = &cluster.External{LoadBalancerIPs: addrs}
			}
			moved := netip.MustParseAddr("203.0.113.1")
			set(7, 1, moved)
			b := open(t, m)
			program(t, b, c.Plan())

			second := func(number int) netip.AddrPort { return netip.AddrPortFrom(endpointOf(number).Addr().Next(), 8080) }
			m.refuse(false, second(7))
			set(7, 2)
			set(8, 1, moved)
			program(t, b, c.Plan())
			before := m.dump()

			m.refuse(false, second(7), second(8))
			set(8, 2, moved)
			for range 10 {
				result := program(t, b, c.Plan())
				if want := []string{"default/service-7/TCP", "default/service-8/TCP"}; !slices.Equal(ports(result), want) {
					t.Fatalf("quarantined %v, want %v", result.Refused, want)
				}
				if changed := clusters.ChangedLines(before, m.dump()); len(changed) > 0 {
					t.Fatalf("changed\n%s", strings.Join(changed, "\n"))
				}
			}
		})
	})
}

// TestEverythingRefused has every write refused without a name: no port is quarantined, because none can be to blame.
func TestEverythingRefused(t *testing.T) {
	eachMachine(t, func(t *testing.T, m machine) {
		c := clusters.NewSized(100, 1)
		fail := newFailing(1)
		b := newQuarantined(t, m, fail)
		fail.set(1, false, unix.EEXIST)
		results := b.Sync(t.Context(), c.Plan())
		if len(results[0].Refused) > 0 || results[0].Err == nil {
			t.Errorf("quarantined %v, error %v", ports(results[0]), results[0].Err)
		}
		if calls, _ := fail.counts(); calls > 100 {
			t.Errorf("%d operations", calls)
		}
		fail.set(0, false)
		program(t, b, c.Plan())
	})
}

// TestNothingWritten has every input of iptables refused, as without memory or without the lock's file, while one Service changes: it is
// not to blame, and its rules stay as they were.
func TestNothingWritten(t *testing.T) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) {
			m := newIPT(variant)
			refuse := func(all bool) {
				for _, fake := range m {
					fake.Refuse(func(string) error {
						if all {
							return &ipt.RestoreError{Family: ipt.IPv4, Output: "Cannot allocate memory"}
						}
						return nil
					})
				}
			}
			c := clusters.NewSized(20, 1)
			b := open(t, m)
			program(t, b, c.Plan())
			refuse(true)
			c.Set(7, 2)
			for range 3 {
				if result := b.Sync(t.Context(), c.Plan())[0]; result.Err == nil || len(result.Refused) > 0 {
					t.Errorf("quarantined %v, error %v; want no port and an error", ports(result), result.Err)
				}
			}
			if all, _ := served(m, 7); all != 20 {
				t.Errorf("%d endpoints are served, want the earlier 20", all)
			}
			refuse(false)
			program(t, b, c.Plan())
			if all, _ := served(m, 7); all != 21 {
				t.Errorf("afterwards %d endpoints are served, want 21", all)
			}
		})
	}
}

// TestMisleadingLines has iptables refuse two Services and blame a line of another one, or the line that dispatches to a
// Service and no line: only those at fault are quarantined.
func TestMisleadingLines(t *testing.T) {
	for name, test := range map[string]struct {
		bad   []string
		blame string
		want  []string
	}{
		"another line": {[]string{" 10.0.7.0:8080", " 10.0.33.0:8080"}, " 10.0.5.0:8080", []string{"default/service-33/TCP", "default/service-7/TCP"}},
		"dispatch":     {[]string{" -d 172.0.0.7/32 "}, "none", []string{"default/service-7/TCP"}},
	} {
		for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
			t.Run(name+"/"+string(variant), func(t *testing.T) {
				m := newIPT(variant)
				m[0].Refuse(func(input string) error {
					if !slices.ContainsFunc(test.bad, func(bad string) bool { return strings.Contains(input, bad) }) {
						return nil
					}
					refused := &ipt.RestoreError{Family: ipt.IPv4, Output: "refused by a test"}
					for line := range strings.Lines(input) {
						if strings.Contains(line, test.blame) {
							refused.Line, refused.Text = 1, strings.TrimSpace(line)
						}
					}
					return refused
				})
				c := clusters.NewSized(100, 1)
				result := program(t, open(t, m), c.Plan())
				if all, _ := served(m, 0); !slices.Equal(ports(result), test.want) || all != 100-len(test.want) {
					t.Errorf("quarantined %+v, %d endpoints served; want %v and %d", result.Refused, all, test.want, 100-len(test.want))
				}
				if strings.Contains(m.dump(), "TRIAL") {
					t.Error("the chain for trials was left behind")
				}
			})
		}
	}
}

// flushed is a table that another program deletes before the first elements are written.
type flushed struct {
	*nfttest.Fake
	once sync.Once
}

func (f *flushed) Commit(ctx context.Context, b *nf.Batch) (err error) {
	f.once.Do(func() { err = f.External().FlushRuleset() })
	if err != nil {
		return err
	}
	return f.Fake.Commit(ctx, b)
}

// TestFlushedAmidFirstSync has another program delete the table in the middle of the first Sync, which the kernel refuses for that reason:
// the only Service is not at fault.
func TestFlushedAmidFirstSync(t *testing.T) {
	m, c := newNFT(), clusters.NewSized(1, 1)
	watch := m[0].Watch()
	t.Cleanup(func() { _ = watch.Close() })
	b := proxy.NewQuarantine(nftables.New(nftables.Options{Mark: mark}, watch, &flushed{Fake: m[0]}))
	if result := program(t, b, c.Plan()); len(result.Refused) > 0 || result.Failed != 1 {
		t.Errorf("quarantined %v, %d failed attempts", result.Refused, result.Failed)
	}
	if all, _ := served(m, 0); all != 1 {
		t.Errorf("%d endpoints are served", all)
	}
}
