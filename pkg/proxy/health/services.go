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

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

const (
	// retryPeriod is the time between attempts to listen on a port that is in use, when no sync comes earlier.
	retryPeriod = 30 * time.Second
	// answerTimeout is how long a client may take to read the answer.
	answerTimeout = 10 * time.Second
)

// ServicesConfig is what a Services is made of.
type ServicesConfig struct {
	// Families are those that the backend serves.
	Families []cluster.Family
	// AllAddresses reports whether a family's ports are served on every address of the machine. Otherwise they are served
	// where node ports are, on plan.Node.NodePortAddrs.
	AllAddresses func(cluster.Family) bool
	// Healthy reports whether the proxy as a whole is healthy: Checker.Healthy.
	Healthy  func() bool
	Recorder proxy.Recorder
	// Clock is a fake in tests.
	Clock clock.WithTicker
}

// Services serves the health check node ports of Services. It is a proxy.SyncObserver.
//
// Each family answers for itself, on sockets of its own: a load balancer that asks by IPv6 learns how many IPv6 endpoints
// are here. A Service that does not exist in a family has no listener there.
type Services struct {
	config ServicesConfig
	// open makes a listener; the network is tcp4 or tcp6.
	open func(network, address string) (net.Listener, error)

	mu    sync.Mutex
	ended bool
	seen  cluster.Map[cluster.ServiceName, *plan.Service]
	// addrs are the addresses to listen on; an unspecified one is every address of its family.
	addrs []netip.Addr
	// checks are the Services to answer for; incomplete are those that may lack a listener.
	checks     map[cluster.ServiceName]*check
	incomplete map[*check]bool
}

var _ proxy.SyncObserver = (*Services)(nil)

// NewServices makes a Services that does not listen yet.
func NewServices(config ServicesConfig) *Services {
	return &Services{
		config: config,
		open: func(network, address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(context.Background(), network, address)
		},
		checks:     map[cluster.ServiceName]*check{},
		incomplete: map[*check]bool{},
	}
}

// check answers for one Service.
type check struct {
	name cluster.ServiceName
	uid  string
	// want is what to answer. Its port never changes.
	want atomic.Pointer[plan.HealthCheck]
	// servers are those that listen, by address.
	servers map[netip.Addr]*server
	// failing is the failure to listen on any of the addresses.
	failing logonce.Condition
}

// Run retries to listen where that failed, until ctx ends; then it closes all listeners.
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

// Synced follows the plan, even if it could not be programmed: a load balancer should learn at once that the endpoints
// here are gone. If nothing can be programmed for long, Healthy makes every answer 503.
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

// replace follows a change of a Service; service is nil when it is gone. Ports that are given up are closed here, and new
// ones are opened later by listen, so that a port may pass from one Service to another.
func (s *Services) replace(name cluster.ServiceName, service *plan.Service) {
	var want *plan.HealthCheck
	if service != nil {
		want = service.HealthCheck
	}
	have := s.checks[name]
	if have != nil && (want == nil || want.Port != have.want.Load().Port) {
		have.closeExcept(nil)
		delete(s.checks, name)
		delete(s.incomplete, have)
		have = nil
	}
	if want == nil {
		return
	}
	if have == nil {
		have = &check{name: name, servers: map[netip.Addr]*server{}}
		s.checks[name] = have
	}
	if have.uid != service.UID { // deleted and created again: no Event has been published about this object
		have.uid, have.failing = service.UID, logonce.Condition{}
	}
	have.want.Store(want)
	have.closeExcept(s.addrs)
	s.incomplete[have] = true
}

// wanted are the addresses to listen on. A link-local address is left out: it would need a zone.
func (s *Services) wanted(node *plan.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, family := range s.config.Families {
		if s.config.AllAddresses(family) {
			addrs = append(addrs, unspecified(family))
			continue
		}
		for _, addr := range node.NodePortAddrs {
			if cluster.FamilyOf(addr) == family && !addr.IsLinkLocalUnicast() {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

func unspecified(family cluster.Family) netip.Addr {
	if family == cluster.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// moveTo changes the addresses to listen on.
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
			if c.failing.Ended() {
				logger.Info("Listening on a health check node port again", "service", c.name)
			}
		} else if c.failing.Changed("") {
			logger.Error(failed, "Failed to listen on a health check node port", "service", c.name, "retryIn", retryPeriod)
			s.config.Recorder.Event(proxy.Event{
				Kind: "Service", Namespace: c.name.Namespace, Name: c.name.Name, UID: c.uid,
				Warning: true, Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Message: failed.Error(),
			})
		}
	}
}

// listenOn starts a server on one address, unless there is one or the Service does not exist in the address's family.
func (s *Services) listenOn(c *check, addr netip.Addr) error {
	if c.servers[addr] != nil || !c.serves(addr) {
		return nil
	}
	family, port := cluster.FamilyOf(addr), c.want.Load().Port
	network := "tcp4"
	if family == cluster.IPv6 {
		network = "tcp6" // for :: this does not take IPv4 connections, so that both families may have the port
	}
	listener, err := s.open(network, netip.AddrPortFrom(addr, port).String())
	if err != nil {
		return fmt.Errorf("listen on health check node port %d in %s: %w; load balancers will not use this node until the port is free", port, family, err)
	}
	c.servers[addr] = start(listener, s.handler(c, family))
	return nil
}

// server is an HTTP server that listens.
type server struct {
	http     *http.Server
	listener net.Listener
}

func start(listener net.Listener, handler http.Handler) *server {
	s := &server{http: serve.HTTP(handler, answerTimeout), listener: listener}
	go func() { _ = s.http.Serve(listener) }() // returns when closed
	return s
}

// close frees the port before it returns, even if the server has not begun to serve yet.
func (s *server) close() {
	_ = s.listener.Close()
	_ = s.http.Close()
}

// serves reports whether the Service exists in the family of an address.
func (c *check) serves(addr netip.Addr) bool { return c.want.Load().In(cluster.FamilyOf(addr)) }

// closeExcept closes the servers, and their connections, on all addresses but those to keep. Of these it closes the ones in a
// family that the Service no longer has.
func (c *check) closeExcept(keep []netip.Addr) {
	for addr, server := range c.servers {
		if !slices.Contains(keep, addr) || !c.serves(addr) {
			server.close()
			delete(c.servers, addr)
		}
	}
}

// checkReport is the body of an answer.
type checkReport struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// handler answers for one family, on any path. Load balancers may weigh nodes by the header.
func (s *Services) handler(c *check, family cluster.Family) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		report := checkReport{
			Service:             serviceName{c.name.Namespace, c.name.Name},
			LocalEndpoints:      c.want.Load().LocalEndpoints[family],
			ServiceProxyHealthy: s.config.Healthy(),
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(report.LocalEndpoints))
		answer(w, report.LocalEndpoints > 0 && report.ServiceProxyHealthy, report, nil)
	})
}
