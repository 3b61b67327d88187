package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

const (
	// anyKernel is an environment variable that, if not empty, disables the check of the kernel. Kubernetes defines its name.
	anyKernel = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
	// firstModern is the oldest kernel that Kubernetes supports nftables mode on
	// (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables), and modern a table that its nf_tables
	// accepts and no older one: a map with a catch-all element. A kernel with an older number may have a newer nf_tables, because
	// distributions backport it.
	firstModern = "5.13"
	modern      = "table %s kube-proxy-check { map m { type mark : verdict; elements = { * : drop }; }; }\n"
)

// OpenUsable opens a table in each family, as [Open] does, for a caller that will write. If writing cannot work, the error says
// what is missing: the program nft, a newer version of it, the nf_tables of Linux 5.13 or later, or CAP_NET_ADMIN. It writes
// nothing.
func OpenUsable(ctx context.Context, table string, families ...nf.Family) (_ []Table, err error) {
	var usable []Table
	defer func() {
		for _, t := range usable {
			if err != nil {
				err = errors.Join(err, t.Close())
			}
		}
	}()
	tried, name := knftables.Family(""), "" // a table of both families
	if len(families) == 1 {                 // which a kernel without IPv6 does not have
		tried, name = knftables.Family(families[0].String()), table
	}
	runner, err := start(ctx, tried, name)
	if err == nil {
		err = checkKernel(ctx, families)
	}
	if err != nil {
		return nil, fmt.Errorf("nftables: start nft: %w", netlink.WithAdvice(numbered(err), nf.Advice))
	}
	for _, family := range families {
		t, err := open(family, table, runner)
		if err != nil {
			return nil, err
		}
		usable = append(usable, t)
	}
	return usable, nil
}

// checkKernel returns an error if the kernel's nf_tables is too old.
func checkKernel(ctx context.Context, families []nf.Family) error {
	if os.Getenv(anyKernel) != "" || KernelSince(firstModern) == nil {
		return nil
	}
	var text strings.Builder
	for _, family := range families {
		fmt.Fprintf(&text, modern, family)
	}
	if err := Check(ctx, text.String()); err != nil {
		return fmt.Errorf("try a catch-all element, which Linux 5.13 added: %w: use a newer kernel or the iptables mode, or set %s=1 to "+
			"try this kernel anyway", err, anyKernel)
	}
	return nil
}

// KernelSince returns an error unless the kernel has the given version or a later one.
func KernelSince(oldest string) error {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(system.Release[:])
	number, err := version.ParseGeneric(release)
	if err == nil && !number.AtLeast(version.MustParseGeneric(oldest)) {
		err = fmt.Errorf("the kernel is Linux %s; it takes %s", release, oldest)
	}
	return err
}
