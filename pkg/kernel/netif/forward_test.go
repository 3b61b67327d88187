//go:build linux

package netif

import "testing"

// TestSysctl names the settings of interfaces, whose names may have dots, as sysctl(8) does.
func TestSysctl(t *testing.T) {
	for file, want := range map[string]string{
		"net/ipv4/conf/eth0/forwarding":     "net.ipv4.conf.eth0.forwarding",
		"net/ipv4/conf/eth0.100/forwarding": "net.ipv4.conf.eth0/100.forwarding",
	} {
		if got := sysctl(file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
}
