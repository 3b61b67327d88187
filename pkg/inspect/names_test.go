package inspect

import "testing"

// TestQualified adds a namespace to names of Services, and leaves everything else as it is.
func TestQualified(t *testing.T) {
	for text, want := range map[string]string{
		"web": "ns/web", "web:http": "ns/web:http", "web:53/udp": "ns/web:53/udp", "svc/web": "ns/web", "service/web:80": "ns/web:80",
		"default/web": "default/web", "default/web:80/udp": "default/web:80/udp", "svc/a/b": "svc/a/b", "10.96.0.10": "10.96.0.10",
		"10.96.0.10:80": "10.96.0.10:80", "10.96.0.10:53/udp": "10.96.0.10:53/udp", "fd00::1": "fd00::1", "[fd00::1]:80": "[fd00::1]:80",
		"http://a:80": "http://a:80", "http://web.ns.svc": "http://web.ns.svc", "web.ns.svc:80": "web.ns.svc:80", "": "",
	} {
		if got := Qualified("ns", text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
