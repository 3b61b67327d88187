package netif

import (
	"io/fs"
	"strings"
)

// HasIPv6 reports whether the machine whose /proc is given can serve IPv6: its kernel has it, and it is not disabled.
func HasIPv6(proc fs.FS) bool {
	_, err := fs.Stat(proc, "net/if_inet6")
	disabled, unknown := fs.ReadFile(proc, "sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && unknown == nil && strings.TrimSpace(string(disabled)) != "1"
}
