package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
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

// resolving returns a dial function that tries the addresses of a name one after the other.
func resolving(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		for _, addr := range addrs {
			var connection net.Conn
			if connection, err = dial(ctx, network, net.JoinHostPort(addr.Unmap().String(), port)); err == nil {
				return connection, nil
			}
		}
		return nil, err
	}
}
