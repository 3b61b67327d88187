// Package serve runs HTTP servers for health checks, and for metrics with other pages: the proxy mode, the configuration,
// profiles. A Server has limits against resource exhaustion by clients, stops with its context, and retries if its address is
// not available yet. Limits bound the connections to all servers of the process, and the guards say which requests come from
// this machine and which may be a web page's.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
)

// Handover is how long after the start of the process an address in use is no Event: in a rolling update with surge the pod before has it
// until it ends, after this one is ready.
const Handover = time.Minute

// HandingOver reports whether the proxy before may still have the address on which listening failed, so long after this one's start.
func HandingOver(err error, started time.Duration) bool {
	return errors.Is(err, syscall.EADDRINUSE) && started < Handover
}

const (
	// retryPeriod is the time between attempts to listen. In an update with surge a probe fails that meets it, after the other proxy's end.
	retryPeriod = 500 * time.Millisecond

	readTimeout    = 10 * time.Second
	maxHeaderBytes = 8 << 10
)

// How long a connection may be idle. Health is probed every 5 s or less often, mostly with a new connection each time: it is closed before
// the next probe may be on its way. Prometheus scrapes every minute, or more often, with the same connection.
const (
	HealthIdle = 3 * time.Second
	PagesIdle  = 90 * time.Second
)

// HTTP returns a server with limits for requests without a significant body. write is the write timeout, idle is HealthIdle or PagesIdle.
func HTTP(handler http.Handler, write, idle time.Duration) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      write,
		IdleTimeout:       idle,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         observe,
		ConnContext:       withSource,
		// Clients' protocol errors are not worth logging.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// Server serves HTTP on one address.
type Server struct {
	// Name describes the server in the log.
	Name string
	// Address is host:port.
	Address string
	// HTTP serves the requests; see the function HTTP.
	HTTP *http.Server
	// Limit bounds its connections.
	Limit *Limit
	// HardFail makes Run return an error if it cannot listen on the address. Otherwise it retries twice a second.
	HardFail bool
	// Failed is called with the first error, and when the error changes; without HardFail for an address in use only after a minute,
	// because a proxy that hands over has it until then. It may be nil.
	Failed func(error)
}

// Run serves until ctx ends and returns nil then. It closes open connections.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("server", s.Name, "address", s.Address)
	listener, err := s.listen(klog.NewContext(ctx, logger))
	if err != nil || listener == nil {
		return err
	}
	logger.V(2).Info("Serving")
	defer context.AfterFunc(ctx, func() { _ = s.HTTP.Close() })()
	if err := s.HTTP.Serve(s.Limit.Listener(listener)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s on %s: %w", s.Name, s.Address, err)
	}
	return nil
}

// listen returns nil, nil if ctx ended before the address was available.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	var logged, reported logonce.Condition
	began := time.Now()
	for ctx.Err() == nil {
		listener, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(ctx), "tcp", s.Address)
		if err == nil {
			return listener, nil
		}
		err = fmt.Errorf("cannot serve %s on %s; free that address or configure another: %w", s.Name, s.Address, err)
		if logged.Changed(err.Error()) {
			klog.FromContext(ctx).Error(err, "Failed to listen", "hardFail", s.HardFail, "retryIn", retryPeriod)
		}
		quiet := !s.HardFail && HandingOver(err, time.Since(began))
		if s.Failed != nil && !quiet && reported.Changed(err.Error()) {
			s.Failed(err)
		}
		if s.HardFail {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
	return nil, nil
}
