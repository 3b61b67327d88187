package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

const (
	// retryPeriod is how often ports that could not be had are tried again when no sync does so earlier.
	retryPeriod = 30 * time.Second
	// answerTimeout is how long an answer may take to be read.
	answerTimeout = 10 * time.Second
)

// ServicesConfig is what a Services is made of.
type ServicesConfig struct {
	// AllAddresses serves on every address of the machine; otherwise the ports are served where node ports
	// are, on plan.Node.NodePortAddrs.
	AllAddresses bool
	// Healthy tells whether the proxy as a whole is: Checker.Healthy.
	Healthy  func() bool
	Recorder proxy.Recorder
	// Clock is the real one but in tests.
	Clock clock.WithTicker
}

// Services serves the health check node ports of Services. It is a proxy.Observer.
type Services struct {
	config ServicesConfig
	// open makes a listener.
	open func(address string) (net.Listener, error)

	mu    sync.Mutex
	ended bool
	seen  cluster.Map[cluster.ServiceName, *plan.Service]
	addrs []netip.Addr
	// checks are the Services to answer for; incomplete those of them that do not listen everywhere yet.
	checks     map[cluster.ServiceName]*check
	incomplete map[*check]bool
}

// NewServices makes a Services that serves nothing yet.
func NewServices(config ServicesConfig) *Services {
	return &Services{
		config: config,
		open: func(address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		},
		checks:     map[cluster.ServiceName]*check{},
		incomplete: map[*check]bool{},
	}
}

// check answers for one Service.
type check struct {
	name      cluster.ServiceName
	uid       string
	port      uint16
	endpoints atomic.Int64
	// servers are those that listen, by address; the invalid address is all of them.
	servers map[netip.Addr]*server
	// told tells that the failure to listen has been reported.
	told bool
}

// Run tries ports again that could not be had, until ctx ends; then it closes all.
func (s *Services) Run(ctx context.Context) error {
	ticker := s.config.Clock.NewTicker(retryPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.end()
			return nil
		case <-ticker.C():
			s.mu.Lock()
			s.listen(klog.FromContext(ctx))
			s.mu.Unlock()
		}
	}
}

func (s *Services) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, c := range s.checks {
		c.closeExcept(nil)
	}
}

// Queued does nothing: only what is decided is served.
func (s *Services) Queued(time.Time) {}

// Drifted does nothing: rules do not matter here.
func (s *Services) Drifted(backend.Drift) {}

// Synced follows the plan, also where the kernel did not: a load balancer had better learn at once that the
// endpoints here are gone, and that nothing is programmed for long makes every answer bad.
func (s *Services) Synced(sync *proxy.Sync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	for name, change := range cluster.Changes(s.seen, sync.Plan.Services) {
		s.replace(name, change.After)
	}
	s.seen = sync.Plan.Services
	s.moveTo(s.wanted(sync.Plan.Node))
	s.listen(klog.Background())
}

// replace puts what a Service asks for now in the place of what it asked for; service is nil when it is gone.
// A port that is given up is closed here, and all that are new are opened later: it may pass from one Service
// to another.
func (s *Services) replace(name cluster.ServiceName, service *plan.Service) {
	var want *plan.HealthCheck
	if service != nil {
		want = service.HealthCheck
	}
	have := s.checks[name]
	if have != nil && (want == nil || want.Port != have.port) {
		have.closeExcept(nil)
		delete(s.checks, name)
		delete(s.incomplete, have)
		have = nil
	}
	if want == nil {
		return
	}
	if have == nil {
		have = &check{name: name, port: want.Port, servers: map[netip.Addr]*server{}}
		s.checks[name] = have
		s.incomplete[have] = true
	}
	if have.uid != service.UID { // another object of the name, which has been told nothing
		have.uid, have.told = service.UID, false
	}
	have.endpoints.Store(int64(want.LocalEndpoints))
}

// wanted are the addresses to serve on. A link-local address would need a zone to be listened on.
func (s *Services) wanted(node *plan.Node) []netip.Addr {
	if s.config.AllAddresses {
		return []netip.Addr{{}}
	}
	return slices.DeleteFunc(slices.Clone(node.NodePortAddrs), netip.Addr.IsLinkLocalUnicast)
}

// moveTo makes the addresses those to serve on.
func (s *Services) moveTo(addrs []netip.Addr) {
	if slices.Equal(addrs, s.addrs) {
		return
	}
	s.addrs = addrs
	for _, c := range s.checks {
		c.closeExcept(addrs)
		s.incomplete[c] = true
	}
}

// listen opens what is not open yet.
func (s *Services) listen(logger klog.Logger) {
	if s.ended {
		return
	}
	for c := range s.incomplete {
		var failed error
		for _, addr := range s.addrs {
			if err := s.listenOn(c, addr); err != nil {
				failed = err
			}
		}
		if failed == nil {
			delete(s.incomplete, c)
			c.told = false
		} else if !c.told {
			c.told = true
			logger.Error(failed, "Cannot serve a health check node port", "service", c.name)
			s.config.Recorder.Event(proxy.Event{
				Kind: "Service", Namespace: c.name.Namespace, Name: c.name.Name, UID: c.uid,
				Warning: true, Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Message: failed.Error(),
			})
		}
	}
}

// listenOn starts a server on one address unless there is one.
func (s *Services) listenOn(c *check, addr netip.Addr) error {
	if c.servers[addr] != nil {
		return nil
	}
	host := ""
	if addr.IsValid() {
		host = addr.String()
	}
	listener, err := s.open(net.JoinHostPort(host, strconv.Itoa(int(c.port))))
	if err != nil {
		return fmt.Errorf("health check node port %d cannot be served on this node, so that load balancers will not use it; "+
			"free the port: %w", c.port, err)
	}
	c.servers[addr] = start(listener, s.handler(c))
	return nil
}

// server is one that listens.
type server struct {
	http     *http.Server
	listener net.Listener
}

func start(listener net.Listener, handler http.Handler) *server {
	s := &server{http: serve.HTTP(handler, answerTimeout), listener: listener}
	go func() { _ = s.http.Serve(listener) }() // returns when it is closed
	return s
}

// close gives the port back before it returns, even if the server has not begun to serve yet.
func (s *server) close() {
	_ = s.listener.Close()
	_ = s.http.Close()
}

// closeExcept closes the servers on all but the given addresses, and the connections to them.
func (c *check) closeExcept(keep []netip.Addr) {
	for addr, server := range c.servers {
		if !slices.Contains(keep, addr) {
			server.close()
			delete(c.servers, addr)
		}
	}
}

// checkReport is the body of an answer.
type checkReport struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int64       `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// handler answers on any path. Load balancers may spread connections by the header.
func (s *Services) handler(c *check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		report := checkReport{
			Service:             serviceName{c.name.Namespace, c.name.Name},
			LocalEndpoints:      c.endpoints.Load(),
			ServiceProxyHealthy: s.config.Healthy(),
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(report.LocalEndpoints, 10))
		answer(w, report.LocalEndpoints > 0 && report.ServiceProxyHealthy, report, nil)
	})
}
