//go:build linux

package app

import (
	"net/netip"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestKernelTrace(t *testing.T) {
	w := newTrial(t)
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(mode)
			cmd := w.lab.Node1.Command(w.program, "trace", "default/web", "--count", "40", "--duration", "4s", "-o", "text")
			go func() {
				time.Sleep(time.Second)
				for _, to := range []string{"10.96.0.10:80", "[fd00:10:96::10]:80"} {
					for _, from := range []*netns.Host{w.lab.Node1.Host, w.lab.Node1.Pods[0]} {
						t.Log(netns.Probe{From: from, To: netip.MustParseAddrPort(to), Protocol: netns.TCP}.Send())
					}
				}
				t.Log(netns.Probe{From: w.lab.Client, To: netip.AddrPortFrom(w.lab.Node1.IPv4, 30080), Protocol: netns.UDP}.Send())
			}()
			out, err := cmd.CombinedOutput()
			t.Logf("%v\n%s", err, out)
		})
	}
}
