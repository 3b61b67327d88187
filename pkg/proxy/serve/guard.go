package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
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

// privateDomains have no names that an external party could own. Those of clusters, clouds and machines end in them.
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

// private reports whether no external party can own a name.
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

// AnswerTimeout bounds an answer to a local reader: a list of 45,000 Services takes about a second.
const AnswerTimeout = 30 * time.Second

// LocalOnly returns a handler that refuses requests of other machines and pods (the address may be one that the whole network reaches, for
// metrics), and those of web pages, also if they have pointed a name of theirs to this address (DNS rebinding).
func LocalOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !FromThisMachine(r):
			Fail(w, http.StatusForbidden, "only local clients are served: run the command on the node, in the pod (kubectl exec), or through kubectl port-forward")
		case !ToOwnAddress(r):
			Fail(w, http.StatusMisdirectedRequest, fmt.Sprintf("the Host header %q is neither localhost nor the address of this server", r.Host))
		default:
			handler.ServeHTTP(w, r)
		}
	})
}

// Reading returns a handler that only local clients may read, with GET and HEAD. Responses are not stored and not shared with web pages, and
// a client that does not read its response within AnswerTimeout is disconnected.
func Reading(handler http.Handler) http.Handler {
	local := LocalOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without a deadline a client that does not read would hold the response in memory. The error means that the
		// connection cannot have one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(AnswerTimeout))
		handler.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			Fail(w, http.StatusMethodNotAllowed, "this address is read-only: use GET")
			return
		}
		local.ServeHTTP(w, r)
	})
}

// Error is the error of a request, with its status code.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return e.Text }

// Errorf returns an Error.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Fail answers with an error as a v1alpha1.Status.
func Fail(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client has closed the connection.
	_ = json.NewEncoder(w).Encode(v1alpha1.Status{TypeMeta: v1alpha1.Meta(v1alpha1.KindStatus), Code: code, Message: text})
}
