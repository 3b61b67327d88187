// Package serve runs the small HTTP servers that observers offer: each has limits that a stranger on the
// network cannot use up, ends with its context, and survives that its address is not to be had yet.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// retry is how long after a failure to listen the next attempt is made.
	retry = 5 * time.Second

	readTimeout    = 10 * time.Second
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 8 << 10
)

// HTTP makes a server with limits for requests without a body to speak of. Answering may take as long as
// write; 0 is for ever.
func HTTP(handler http.Handler, write time.Duration) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      write,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// What a client did wrong is not this node's business.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// Server serves HTTP on one address.
type Server struct {
	// Name says in the log what is served.
	Name string
	// Address is host:port.
	Address string
	// HTTP answers; package function HTTP makes one.
	HTTP *http.Server
	// HardFail ends Run when the address cannot be listened on. Otherwise that is tried again every 5 s.
	HardFail bool
	// Failed is told the first time, and when the error becomes another; nil is told nothing.
	Failed func(error)
	// Clock spaces the attempts. It is the real one but in tests.
	Clock clock.Clock
}

// Run serves until ctx ends, and then returns nil. Connections that are open then are cut.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("server", s.Name, "address", s.Address)
	listener, err := s.listen(klog.NewContext(ctx, logger))
	if err != nil || listener == nil {
		return err
	}
	logger.V(2).Info("Serving")
	defer context.AfterFunc(ctx, func() { _ = s.HTTP.Close() })()
	if err := s.HTTP.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s on %s: %w", s.Name, s.Address, err)
	}
	return nil
}

// listen returns nothing when ctx ended before the address could be had.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	var told string
	for ctx.Err() == nil {
		listener, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(ctx), "tcp", s.Address)
		if err == nil {
			return listener, nil
		}
		err = fmt.Errorf("%s cannot be served on %s; free that address or configure another: %w", s.Name, s.Address, err)
		if text := err.Error(); text != told {
			told = text
			klog.FromContext(ctx).Error(err, "Cannot listen", "hardFail", s.HardFail, "retryIn", retry)
			if s.Failed != nil {
				s.Failed(err)
			}
		}
		if s.HardFail {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-s.Clock.After(retry):
		}
	}
	return nil, nil
}
