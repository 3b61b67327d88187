package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// FromThisMachine reports whether a request comes from this machine: from a loopback address, or from the address that it was sent to.
// No other machine can complete a TCP handshake with these sources.
func FromThisMachine(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && (client.Addr().Unmap().IsLoopback() || client.Addr().Unmap() == localAddr(r))
}

// ToOwnAddress reports whether the Host header is localhost, a loopback address, or the address that the request was sent to.
func ToOwnAddress(r *http.Request) bool {
	host, addr := hostOf(r)
	return host == "localhost" || addr.IsLoopback() || addr.IsValid() && addr == localAddr(r)
}

// localAddr returns the address that a request was sent to; the zero Addr if it is not known.
func localAddr(r *http.Request) netip.Addr {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}
	}
	return addrPortOf(local).Addr()
}

// hostOf returns the Host header of a request without its port, in lower case, and as an address if it is one.
func hostOf(r *http.Request) (string, netip.Addr) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if len(host) > 2 && host[0] == '[' {
		host = host[1 : len(host)-1]
	}
	host = strings.ToLower(host)
	addr, err := netip.ParseAddr(host)
	if err != nil {
		addr = netip.Addr{}
	}
	return host, addr.Unmap()
}

// privateDomains have no names that a stranger could own. Those of clusters, clouds and machines end in them.
var privateDomains = [...]string{".localhost", ".svc", ".cluster.local", ".internal"}

// RefuseRebinding returns a handler that refuses the requests of web pages that have pointed a name of theirs to a loopback address (DNS
// rebinding): a browser on the node, or one that uses kubectl port-forward, sends them with that name as Host. On other addresses any
// name is accepted: scrapers use names that only they know, and whoever reaches such an address may read what it serves. Nothing else
// tells a browser: pages choose the other headers, and a browser sends Sec-Fetch-Site only where it trusts the connection.
//
// What the page's author cannot own is accepted: addresses, names without a dot, those of private domains, and names, which are this
// node's.
func RefuseRebinding(handler http.Handler, names ...string) http.Handler {
	own := map[string]bool{"": true} // programs without a Host are no browsers
	for _, name := range names {
		own[strings.ToLower(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, addr := hostOf(r); localAddr(r).IsLoopback() && !addr.IsValid() && !own[host] && !private(host) {
			http.Error(w, fmt.Sprintf("the Host header %q may be a web page's: use localhost, an IP address or the node's name", r.Host), http.StatusMisdirectedRequest)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// private reports whether no stranger can own a name.
func private(name string) bool {
	if !strings.Contains(name, ".") {
		return true
	}
	for _, domain := range privateDomains {
		if strings.HasSuffix(name, domain) {
			return true
		}
	}
	return false
}

// LocalOnly returns a handler that refuses requests of other machines and pods, and those of web pages (see RefuseRebinding).
func LocalOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !FromThisMachine(r):
			http.Error(w, "only local clients are served: use kubectl port-forward, or curl on the node", http.StatusForbidden)
		case !ToOwnAddress(r):
			http.Error(w, fmt.Sprintf("the Host header %q is neither localhost nor the address of this server", r.Host), http.StatusMisdirectedRequest)
		default:
			handler.ServeHTTP(w, r)
		}
	})
}
