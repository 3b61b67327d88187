//go:build linux

package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// pageTimeout bounds a request to the proxy, and pageLimit what is read of its answer.
const (
	pageTimeout = 3 * time.Second
	pageLimit   = 64 << 10
)

// Linux is the machine that this process runs on, by the doors to the kernel.
type Linux struct {
	// Mode is the backend of the proxy's mode, which has this name; Families are those to be served.
	Mode     backend.Mode
	ModeName string
	Families []cluster.Family
	// Modes are all modes, by name.
	Modes map[string]backend.Remover
}

var _ Host = (*Linux)(nil)

// Setting implements [Host].
func (l *Linux) Setting(name string) (string, error) { return host.Kernel{}.Read(name) }

// Writable implements [Host].
func (l *Linux) Writable(name string) error {
	f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Rules implements [Host]. It runs "kube-proxy check rehearse".
func (l *Linux) Rules(ctx context.Context) ([]Step, error) {
	if held, err := host.Effective(); err == nil && held&host.NetAdmin == 0 {
		return nil, errors.New("CAP_NET_ADMIN is missing: without it no rule can be written")
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	own, err := host.NetworkNamespace()
	if err != nil {
		return nil, err
	}
	variant, err := l.Mode.Variant(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"check", "rehearse", "--outside", own, "--proxy-mode", l.ModeName, "--variant", variant}
	for _, family := range l.Families {
		args = append(args, "--family", family.String())
	}
	var stdout, stderr bytes.Buffer
	command := host.Apart(ctx, program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	switch err := command.Run(); {
	case errors.Is(err, syscall.EPERM):
		return nil, fmt.Errorf("make a network namespace: %w: CAP_SYS_ADMIN is missing", err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var steps []Step
	return steps, json.Unmarshal(stdout.Bytes(), &steps)
}

// Tools implements [Host].
func (l *Linux) Tools(ctx context.Context) []backend.Tool { return l.Mode.Tools(ctx, l.Families...) }

// Present implements [Host].
func (l *Linux) Present(ctx context.Context) ([]string, error) {
	var present []string
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(l.Modes)) {
		there, err := l.Modes[name].Present(ctx)
		if failed = append(failed, err); there {
			present = append(present, name)
		}
	}
	return present, errors.Join(failed...)
}

// Processes implements [Host].
func (l *Linux) Processes() ([]int, error) { return host.Processes("kube-proxy") }

// Interfaces implements [Host].
func (l *Linux) Interfaces() ([]netip.Addr, error) { return netif.Kernel{}.Addrs() }

// Variants implements [Host].
func (l *Linux) Variants(ctx context.Context) ([]string, error) {
	holding, err := ipt.Holding(ctx, []ipt.Family{ipt.IPv4, ipt.IPv6}, []string{"nat", "filter", "mangle"}, func(_, chain string) bool { return strings.HasPrefix(chain, "KUBE-") })
	var names []string
	for _, variant := range holding {
		names = append(names, string(variant))
	}
	return names, err
}

// Chains implements [Host].
func (l *Linux) Chains(ctx context.Context) ([]Chain, error) {
	chains, err := nf.FilterChains(ctx)
	var all []Chain
	for _, c := range chains {
		all = append(all, Chain{Name: c.Family + " " + c.Table + " " + c.Name, Hook: c.Hook, Drops: c.Drops, Rules: c.Rules})
	}
	failed := []error{err}
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		policies, err := ipt.Policies(ctx, family)
		failed = append(failed, err)
		for _, builtIn := range []struct{ chain, hook string }{{"INPUT", "input"}, {"FORWARD", "forward"}} {
			if p, ok := policies[builtIn.chain]; ok {
				all = append(all, Chain{Name: fmt.Sprintf("%s of iptables-legacy (%s)", builtIn.chain, family), Hook: builtIn.hook, Drops: p.Drops, Rules: p.Rules})
			}
		}
	}
	return all, errors.Join(failed...)
}

// Holder implements [Host].
func (l *Linux) Holder() (holder string, answers bool, err error) {
	owner, held, err := netlock.Holder()
	if err != nil || !held {
		return "", false, err
	}
	return strings.TrimPrefix((&netlock.HeldError{Owner: owner}).Error(), "another "), owner.Mode != "", nil
}

// Listen implements [Host].
func (l *Linux) Listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// Get implements [Host]. An unspecified address stands for the loopback address.
func (l *Linux) Get(ctx context.Context, address, path string) (status int, body string, err error) {
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
