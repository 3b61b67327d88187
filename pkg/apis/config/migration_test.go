package config

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLostSettings has a configuration with each setting of ipvs, each scheduler of Linux, and modes that lose nothing.
func TestLostSettings(t *testing.T) {
	minute := metav1.Duration{Duration: time.Minute}
	all := &KubeProxyConfiguration{Mode: ProxyModeIPVS, IPVS: KubeProxyIPVSConfiguration{
		Scheduler: "sh", StrictARP: true, TCPTimeout: minute, TCPFinTimeout: minute, UDPTimeout: minute, ExcludeCIDRs: []string{"192.0.2.0/24"}}}
	want := []string{"ipvs.scheduler: sh sends a client", "ipvs.strictARP: not needed", "ipvs.tcpTimeout: ip_vs's own timeout of 1m0s",
		"ipvs.tcpFinTimeout: ip_vs's own timeout of 1m0s", "ipvs.udpTimeout: ip_vs's own timeout of 1m0s", "ipvs.excludeCIDRs: virtual servers in 192.0.2.0/24"}
	got := all.LostSettings()
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, lost := range got {
		if text := lost.Field + ": " + lost.Message; !strings.HasPrefix(text, want[i]) {
			t.Errorf("got %q, want %q", text, want[i])
		}
	}
	for name, words := range map[string]string{
		"": "in turn", "rr": "in turn", "wrr": "in turn", "lc": "numbers of connections", "wlc": "numbers of connections", "sed": "numbers of connections",
		"nq": "numbers of connections", "lblc": "numbers of connections", "lblcr": "numbers of connections", "ovf": "numbers of connections", "twos": "numbers of connections",
		"sh": "sessionAffinity: ClientIP", "mh": "sessionAffinity: ClientIP", "dh": "destination", "fo": "one pod", "own": "own is replaced",
	} {
		lost := (&KubeProxyConfiguration{Mode: ProxyModeIPVS, IPVS: KubeProxyIPVSConfiguration{Scheduler: name}}).LostSettings()
		if len(lost) != 1 || !strings.Contains(lost[0].Message, words) || lost[0].Minor != (words == "in turn") {
			t.Errorf("%q: %+v", name, lost)
		}
	}
	for _, mode := range append(ServedModes(), "") {
		all.Mode = mode
		if lost := all.LostSettings(); lost != nil {
			t.Errorf("mode %q loses %+v", mode, lost)
		}
	}
}

// TestModeDifferences checks that each change of mode has some, and no change none.
func TestModeDifferences(t *testing.T) {
	for _, from := range KnownModes() {
		for _, to := range ServedModes() {
			if got := ModeDifferences(from, to); (len(got) == 0) != (from == to) {
				t.Errorf("from %s to %s: %q", from, to, got)
			}
		}
	}
}
