package view

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// answerTimeout bounds one request: a list of 45,000 Services takes about a second.
const answerTimeout = 30 * time.Second

// LocalOnly returns a handler that passes only the requests of a local user on: GET and HEAD, from this machine, to one of
// its own names. All others get an error. Responses are not stored and not shared with other web pages, and a client that
// does not read its response is disconnected.
func LocalOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := guard(r); err != nil {
			if err.code == http.StatusMethodNotAllowed {
				header.Set("Allow", "GET, HEAD")
			}
			fail(w, err)
			return
		}
		// Without a deadline a client that does not read would hold the response in memory. The error means that the
		// connection cannot have one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		handler.ServeHTTP(w, r)
	})
}

// guard rejects requests that are not a local user's: of other methods than GET and HEAD, from other machines and pods
// (the address may be one that the whole network reaches, for metrics), and those that a web page sends through a name
// that it has pointed to this address (DNS rebinding).
func guard(r *http.Request) *httpError {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &httpError{http.StatusMethodNotAllowed, "this address is read-only: use GET"}
	}
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if err != nil || !isLocalClient(client.Addr().Unmap(), local) {
		return &httpError{http.StatusForbidden, "only local clients are served: run the command on the node, in the pod (kubectl exec), or through kubectl port-forward"}
	}
	if !isOwnHost(r.Host, local) {
		return &httpError{http.StatusMisdirectedRequest, fmt.Sprintf("the Host header %q is neither localhost nor the address of this server", r.Host)}
	}
	return nil
}

// isLocalClient reports whether a request comes from this machine: from a loopback address, or from the address that it
// was sent to. No other machine can complete a TCP handshake with these sources.
func isLocalClient(client netip.Addr, local net.Addr) bool {
	return client.IsLoopback() || local != nil && client == addrOf(local)
}

func addrOf(a net.Addr) netip.Addr {
	parsed, _ := netip.ParseAddrPort(a.String()) // invalid for others than TCP
	return parsed.Addr().Unmap()
}

// isOwnHost reports whether a Host header is localhost, a loopback address, or the address that the request was sent to.
func isOwnHost(host string, local net.Addr) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		if unbracketed := len(host) > 2 && host[0] == '['; unbracketed {
			addr, err = netip.ParseAddr(host[1 : len(host)-1])
		}
	}
	return err == nil && (addr.IsLoopback() || local != nil && addr.Unmap() == addrOf(local))
}
