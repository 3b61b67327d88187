package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

const (
	// anyKernel is an environment variable that, if not empty, disables the check of the kernel. Kubernetes defines its name.
	anyKernel = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
	// modern is a table that the nf_tables of Linux 5.13 accepts and no older one: a map with a catch-all element. That is the
	// oldest kernel that Kubernetes supports nftables mode on
	// (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables). uname(2) does not say which nf_tables a
	// kernel has: distributions backport a newer one to kernels with old version numbers.
	modern = "table %s kube-proxy-check { map m { type mark : verdict; elements = { * : drop }; }; }\n"
)

// oldest is the oldest version of nft that knftables writes for.
const oldest = "1.0.1"

// OpenUsable opens a table in each family, as [Open] does, for a caller that will write. If writing cannot work, the error says
// what is missing: the program nft, a newer version of it, the nf_tables of Linux 5.13 or later, or CAP_NET_ADMIN. It writes
// nothing. What knftables' runner checks goes on after it.
func OpenUsable(ctx context.Context, table string, families ...knftables.Family) (_ []Table, err error) {
	var tables []*kernelTable
	defer func() {
		for _, t := range tables {
			if err != nil {
				err = errors.Join(err, t.Close())
			}
		}
	}()
	for _, family := range families {
		t, err := open(family, table)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	if err := checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("nftables: start nft: %w", netlink.WithAdvice(numbered(err), errnoAdvice))
	}
	if err := checkKernel(ctx, tables); err != nil {
		return nil, err
	}
	runner := starting()
	usable := make([]Table, len(tables))
	for i, t := range tables {
		t.runner, usable[i] = runner, t
	}
	return usable, nil
}

// checkVersion returns an error if nft does not run, or is too old.
func checkVersion(ctx context.Context) error {
	text, err := Version(ctx)
	if err != nil {
		return err
	}
	number, _, _ := strings.Cut(text, " ")
	found, err := version.ParseGeneric(number)
	if err == nil && found.LessThan(version.MustParseGeneric(oldest)) {
		return withInstall(fmt.Errorf("nft is too old: got nftables %s", text))
	}
	return nil // a version of another form may work: checkKernel tries
}

// checkKernel returns an error if nft cannot write, or if the kernel's nf_tables is too old.
func checkKernel(ctx context.Context, tables []*kernelTable) error {
	var all strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&all, modern, t.family)
	}
	if check(ctx, all.String()) == nil {
		return nil
	}
	for _, t := range tables {
		if err := t.checkKernel(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkKernel is checkKernel of one table.
func (t *kernelTable) checkKernel(ctx context.Context) error {
	refused := check(ctx, fmt.Sprintf(modern, t.family))
	if refused == nil {
		return nil
	}
	if err := check(ctx, fmt.Sprintf("add table %s %s", t.family, t.name)); err != nil {
		return wrap("start nft", t.family, t.name, numbered(err))
	}
	if os.Getenv(anyKernel) != "" {
		return nil
	}
	return wrap("try a catch-all element, which Linux 5.13 added", t.family, t.name, fmt.Errorf(
		"%w: use a newer kernel or the iptables mode, or set %s=1 to try this kernel anyway", refused, anyKernel))
}
