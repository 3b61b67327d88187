package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/knftables"
)

const (
	// anyKernel is an environment variable that, if not empty, disables the check of the kernel. Kubernetes defines its name.
	anyKernel = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
	// modern is a table that the nf_tables of Linux 5.13 accepts and no older one: a map with a catch-all element. That is the
	// oldest kernel that Kubernetes supports nftables mode on
	// (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables). uname(2) does not say which nf_tables a
	// kernel has: distributions backport a newer one to kernels with old version numbers.
	modern = "table %s kube-proxy-check { map m { type mark : verdict; elements = { * : drop }; }; }"
)

// OpenUsable is [Open] for a caller that will write. If writing cannot work, the error says what is missing: the
// program nft, a newer version of it, the nf_tables of Linux 5.13 or later, or CAP_NET_ADMIN. It writes nothing.
func OpenUsable(ctx context.Context, family knftables.Family, table string) (Table, error) {
	opened, err := open(family, table)
	if err != nil {
		return nil, err
	}
	if err = opened.start(ctx); err == nil {
		err = opened.checkKernel(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// start sets text. knftables checks nft's version and runs a transaction with --check, both without a context. So it must be
// known before that nft does not hang.
func (t *kernelTable) start(ctx context.Context) error {
	hung := check(ctx, fmt.Sprintf("add table %s %s", t.family, t.name))
	if ctx.Err() != nil {
		return wrap("start nft", t.family, t.name, cmp.Or(hung, context.Cause(ctx)))
	}
	text, err := knftables.New(t.family, t.name)
	if err != nil {
		return wrap("start nft", t.family, t.name, unstarted(err))
	}
	t.text = text
	return nil
}

// checkKernel returns an error if the kernel's nf_tables is too old.
func (t *kernelTable) checkKernel(ctx context.Context) error {
	if os.Getenv(anyKernel) != "" {
		return nil
	}
	err := check(ctx, fmt.Sprintf(modern, t.family))
	switch {
	case errors.Is(err, errCrash), ctx.Err() != nil:
		return wrap("start nft", t.family, t.name, err)
	case err != nil:
		return wrap("try a catch-all element, which Linux 5.13 added", t.family, t.name, fmt.Errorf(
			"%w: use a newer kernel or the iptables mode, or set %s=1 to try this kernel anyway", err, anyKernel))
	}
	return nil
}
