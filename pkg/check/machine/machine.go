//go:build linux

// Package machine reads the machine for the checks of a node, by the doors to the kernel.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/firewall"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
)

// pageTimeout bounds a request to the proxy, and pageLimit what is read of its answer.
const (
	pageTimeout = 3 * time.Second
	pageLimit   = 64 << 10
)

// Variants returns the variants of iptables that have chains of Kubernetes.
func Variants(ctx context.Context) ([]string, error) {
	holding, err := ipt.Holding(ctx, []ipt.Family{ipt.IPv4, ipt.IPv6}, []string{"nat", "filter", "mangle"}, func(_, chain string) bool { return strings.HasPrefix(chain, "KUBE-") })
	var names []string
	for _, variant := range holding {
		names = append(names, string(variant))
	}
	return names, err
}

// Chains returns the base chains of nf_tables, and those of the legacy variant of iptables.
func Chains(ctx context.Context) ([]check.Chain, error) {
	chains, err := firewall.Chains(ctx)
	var all []check.Chain
	for _, c := range chains {
		all = append(all, check.Chain{Name: c.Family + " " + c.Table + " " + c.Name, Hook: c.Hook, Drops: c.Drops, Rules: c.Rules})
	}
	failed := []error{err}
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		policies, err := ipt.Policies(ctx, family)
		failed = append(failed, err)
		for _, builtIn := range []struct{ chain, hook string }{{"INPUT", "input"}, {"FORWARD", "forward"}} {
			if p, ok := policies[builtIn.chain]; ok {
				all = append(all, check.Chain{Name: fmt.Sprintf("%s of iptables-legacy (%s)", builtIn.chain, family), Hook: builtIn.hook, Drops: p.Drops, Rules: p.Rules})
			}
		}
	}
	return all, errors.Join(failed...)
}

// Holder describes who holds the lock on this network namespace; "" if no process does.
func Holder() (string, error) {
	owner, held, err := netlock.Holder()
	if err != nil || !held {
		return "", err
	}
	return (&netlock.HeldError{Owner: owner}).Error(), nil
}

// Listen listens on a TCP address for a moment.
func Listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// Get reads a page of an HTTP server of this machine. An unspecified address stands for the loopback address.
func Get(ctx context.Context, address, path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsUnspecified() {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if at.Addr().Is6() {
			loopback = netip.IPv6Loopback()
		}
		address = netip.AddrPortFrom(loopback, at.Port()).String()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy from the environment
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, pageLimit))
	return answer.StatusCode, string(text), err
}
