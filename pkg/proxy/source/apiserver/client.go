package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// read returns what of the API server resources are.
func read(resources []*resource) (all []apiclient.Resource) {
	for _, r := range resources {
		all = append(all, r.Resource)
	}
	return all
}

// newClients returns clients for the resources, which ask for objects without managedFields if drop is set.
func newClients(config *rest.Config, resources []*resource, drop bool) (apiclient.Clients, error) {
	read := read(resources)
	scheme := apiclient.Scheme(read...)
	codecs, err := newLean(serializer.NewCodecFactory(scheme).WithoutConversion(), scheme, resources)
	if err != nil {
		return nil, fmt.Errorf("selecting the fields to decode: %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = apiclient.Protobuf, apiclient.ProtoOrJSON
	if drop {
		config.Wrap(func(transport http.RoundTripper) http.RoundTripper { return &optOut{RoundTripper: transport} })
	}
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper { return metered{transport} })
	config.Dial = dialer(config.Dial)
	return apiclient.WithCodecs(config, codecs, read...)
}

const (
	// connectWait is how long a connection to one address may take. After a longer time the kernel repeats its request so rarely
	// that the end of an outage of the network would be noticed late.
	connectWait = 5 * time.Second
	// dialWait is how long it may take with all addresses of a name, and the question for them: Go asks each of several name
	// servers for five seconds.
	dialWait = 30 * time.Second
	// nextWait is the time after which the next address is tried too: that of net.Dialer.
	nextWait = 300 * time.Millisecond
)

// dialFunc is that of [rest.Config].
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialer returns a dial function that gives up after connectWait; nil is the usual one.
func dialer(dial dialFunc) dialFunc {
	bounded := func(dial dialFunc) dialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connectWait)
			defer cancel()
			return dial(ctx, network, address)
		}
	}
	if dial != nil {
		return bounded(dial)
	}
	return resolving(bounded((&net.Dialer{}).DialContext))
}

// resolving returns a dial function that finds the addresses of a name, and tries them. net.Dialer would do so with a single timeout for both.
func resolving(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		return first(ctx, addrs, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
			return dial(ctx, network, net.JoinHostPort(addr.Unmap().String(), port))
		})
	}
}

// first returns the first connection to one of some addresses. It tries the next one when one fails, or after nextWait, so that
// neither a dead family nor a dead API server delays the others.
func first(ctx context.Context, addrs []netip.Addr, dial func(context.Context, netip.Addr) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the other attempts
	type result struct {
		net.Conn
		err error
	}
	results := make(chan result)
	try := func(addr netip.Addr) {
		connection, err := dial(ctx, addr)
		select {
		case results <- result{connection, err}:
		case <-ctx.Done():
			if err == nil {
				connection.Close()
			}
		}
	}
	var failed error
	next := time.NewTimer(0)
	defer next.Stop()
	for tried, ended := 0, 0; ended < len(addrs); {
		select {
		case <-next.C:
			if tried < len(addrs) {
				go try(addrs[tried])
				tried++
				next.Reset(nextWait)
			}
		case r := <-results:
			if r.err == nil {
				return r.Conn, nil
			}
			failed = r.err
			ended++
			next.Reset(0)
		case <-ctx.Done():
			return nil, cmp.Or(failed, context.Cause(ctx))
		}
	}
	return nil, failed
}
