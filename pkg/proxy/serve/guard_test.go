package serve

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// ask sends a request to an address of this machine, and returns the status.
func ask(t *testing.T, handler http.Handler, from, to, host string) int {
	t.Helper()
	local, err := net.ResolveTCPAddr("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local), http.MethodGet, "/metrics", http.NoBody)
	r.RemoteAddr, r.Host = from, host
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code
}

// TestRefuseRebinding checks that web pages are refused under names that anybody may own, and that no scraper is: neither on the
// node, nor behind a proxy that keeps the Host header, nor elsewhere.
func TestRefuseRebinding(t *testing.T) {
	handler := RefuseRebinding(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "Node-1.Example.com")
	const loopback, nodeAddr = "127.0.0.1:10249", "172.18.0.11:10249"
	for _, test := range []struct {
		name, to, host string
		want           int
	}{
		{"curl on the node", loopback, "127.0.0.1:10249", 200},
		{"by name", loopback, "localhost:10249", 200},
		{"in capitals", loopback, "LOCALHOST", 200},
		{"IPv6", "[::1]:10249", "[::1]:10249", 200},
		{"a port forward", loopback, "localhost:31000", 200},
		{"a proxy on the node, asked by the pod's address", loopback, "172.18.0.11:9444", 200},
		{"a proxy on the node, asked by the Service's name", loopback, "kube-proxy.kube-system.svc:9444", 200},
		{"the same with the cluster's domain", loopback, "kube-proxy.kube-system.svc.cluster.local:9444", 200},
		{"a proxy on the node, asked by the node's name", loopback, "node-1.example.com:9444", 200},
		{"a name of the cloud", loopback, "ip-10-0-0-1.eu-west-1.compute.internal:9444", 200},
		{"an upstream's name in nginx", loopback, "kube-proxy", 200},
		{"HTTP/1.0 without a host", loopback, "", 200},
		{"Prometheus, by address", nodeAddr, "172.18.0.11:10249", 200},
		{"Prometheus, by the node's name", nodeAddr, "node-1.example.com:10249", 200},
		{"Prometheus, by any name", nodeAddr, "metrics.corp.example:10249", 200},
		{"a rebound name", loopback, "attacker.example:10249", 421},
		{"a rebound name, IPv6", "[::1]:10249", "attacker.example:10249", 421},
		{"another loopback address", "127.0.0.2:10249", "attacker.example", 421},
		{"a name that looks like an address", loopback, "127.0.0.1.attacker.example:10249", 421},
		{"a name that looks local", loopback, "localhost.attacker.example:10249", 421},
		{"a name that looks like the node's", loopback, "xnode-1.example.com:10249", 421},
	} {
		if got := ask(t, handler, "127.0.0.1:4000", test.to, test.host); got != test.want {
			t.Errorf("%s: Host %q to %s: %d, want %d", test.name, test.host, test.to, got, test.want)
		}
	}
}

// TestLocalOnly checks who may change something.
func TestLocalOnly(t *testing.T) {
	handler := LocalOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, test := range []struct {
		name, from, to, host string
		want                 int
	}{
		{"loopback", "127.0.0.1:4000", "127.0.0.1:10249", "localhost:10249", 200},
		{"IPv6", "[::1]:4000", "[::1]:10249", "[::1]:10249", 200},
		{"the node's address, on the node", "172.18.0.11:4000", "172.18.0.11:10249", "172.18.0.11:10249", 200},
		{"from elsewhere", "172.18.0.12:4000", "172.18.0.11:10249", "172.18.0.11:10249", 403},
		{"from elsewhere to loopback, by route_localnet", "172.18.0.12:4000", "127.0.0.1:10249", "127.0.0.1", 403},
		{"rebound", "127.0.0.1:4000", "127.0.0.1:10249", "attacker.example:10249", 421},
		{"rebound to the node's address", "172.18.0.11:4000", "172.18.0.11:10249", "attacker.example:10249", 421},
		{"a name without a dot", "127.0.0.1:4000", "127.0.0.1:10249", "kube-proxy", 421},
		{"a source that is no address", "@", "127.0.0.1:10249", "localhost", 403},
	} {
		if got := ask(t, handler, test.from, test.to, test.host); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
