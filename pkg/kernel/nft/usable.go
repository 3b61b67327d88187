package nft

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

const (
	// kernelMajor and kernelMinor are the oldest kernel that Kubernetes supports nftables mode on
	// (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables).
	kernelMajor, kernelMinor = 5, 13
	// anyKernel is an environment variable that, if not empty, disables the check: distributions backport nf_tables to
	// kernels with old version numbers. Kubernetes defines its name.
	anyKernel = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
)

// OpenUsable is [Open] for a caller that will write. If writing cannot work, the error says what is missing: the
// program nft, a newer version of it, Linux 5.13 or later, or CAP_NET_ADMIN. It writes nothing.
func OpenUsable(family knftables.Family, table string) (Table, error) {
	opened, err := open(family, table)
	if err != nil {
		return nil, err
	}
	if err = checkKernel(); err == nil {
		err = opened.start()
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// checkKernel returns an error if the running kernel is too old.
func checkKernel() error {
	if os.Getenv(anyKernel) != "" {
		return nil
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("nftables: read the kernel's version: %w", err)
	}
	return checkRelease(unix.ByteSliceToString(name.Release[:]))
}

// checkRelease returns an error if a kernel is too old. release is that of uname(2), such as 6.1.0-18-amd64.
func checkRelease(release string) error {
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	switch {
	case err != nil:
		return fmt.Errorf("nftables: check the kernel's version: %q does not begin with a version: set %s=1 if it is Linux %d.%d or later",
			release, anyKernel, kernelMajor, kernelMinor)
	case major < kernelMajor || major == kernelMajor && minor < kernelMinor:
		return fmt.Errorf("nftables: check the kernel's version: %s is older than %d.%d: use a newer kernel or the iptables mode, or set %s=1 "+
			"if this one has the nf_tables of a newer one", release, kernelMajor, kernelMinor, anyKernel)
	}
	return nil
}

// start sets text. knftables checks nft's version and runs a transaction with --check.
func (t *kernelTable) start() error {
	text, err := knftables.New(t.family, t.name)
	if err != nil {
		return wrap("start nft", t.family, t.name, unstarted(err))
	}
	t.text = text
	return nil
}

// unstarted adds what to do if nft is missing or too old. If nft ran and failed, it keeps the first line of its output: the
// others show the table of the trial.
func unstarted(err error) error {
	if errors.Is(err, exec.ErrNotFound) || strings.Contains(err.Error(), "nft version") {
		return fmt.Errorf("%w: install nftables 1.0.1 or later, or use the iptables mode", err)
	}
	words, _, _ := strings.Cut(err.Error(), "\n")
	return numbered(errors.New(words))
}
