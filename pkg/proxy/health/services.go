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
	// retryPeriod is the time between attempts to listen on a port that is in use. Each sync tries, too.
	retryPeriod = 30 * time.Second
	// answerTimeout is the limit for writing a response.
	answerTimeout = 10 * time.Second
)

// ServicesConfig configures a Services.
type ServicesConfig struct {
	// Families are the families that the backend serves.
	Families []cluster.Family
	// AllAddresses reports whether a family's ports are served on all addresses of the machine, and otherwise on
	// plan.Node.NodePortAddrs.
	AllAddresses func(cluster.Family) bool
	// Healthy is Checker.Healthy.
	Healthy  func() bool
	Recorder proxy.Recorder
	// Failing is called with the Services on whose ports it cannot listen, whenever it has tried; nil if nobody asks.
	Failing func(plan.Observed)
	Clock   clock.WithTicker
	// Limit bounds the connections to all ports together, and MaxListeners the number of listeners.
	Limit        *serve.Limit
	MaxListeners int
}

// Services serves the health check node ports of Services. It is a proxy.Observer.
//
// Each family has sockets of its own: a load balancer that checks over IPv6 gets the number of IPv6 endpoints. There is
// no listener in a family that the Service does not have.
type Services struct {
	proxy.Ignore
	config ServicesConfig
	// began is when the process started.
	began time.Time
	// open creates a listener; the network is tcp4 or tcp6.
	open func(network, address string) (net.Listener, error)

	mu    sync.Mutex
	ended bool
	// addrs are the addresses to listen on; an unspecified one stands for all addresses of its family.
	addrs []netip.Addr
	// checks holds the Services with a health check, incomplete those that may lack a listener.
	checks     map[cluster.ServiceName]*check
	incomplete map[*check]bool
	// listeners is the number of running servers.
	listeners int
	// refused are the ports that the kernel refuses.
	refused refusals
}

var _ proxy.Observer = (*Services)(nil)

// NewServices returns a Services without listeners.
func NewServices(config ServicesConfig) *Services {
	return &Services{
		config: config,
		began:  config.Clock.Now(),
		open: func(network, address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(context.Background(), network, address)
		},
		checks:     map[cluster.ServiceName]*check{},
		incomplete: map[*check]bool{},
	}
}

// check is the health check of one Service.
type check struct {
	name cluster.ServiceName
	uid  string
	// want is the current answer. Its port never changes.
	want atomic.Pointer[plan.HealthCheck]
	// local is the number of local endpoints to report: those of want, unless the kernel refuses the rules.
	local atomic.Pointer[map[cluster.Family]int]
	// servers are the running servers by address.
	servers map[netip.Addr]*server
	// failing is the condition that the check cannot listen on some address, reported that an Event says so.
	failing, reported logonce.Condition
}

// Run retries failed listeners until ctx ends, and then closes all of them.
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
		s.closeExcept(c, nil)
	}
}

// Synced uses the plan even if it could not be programmed, so that load balancers learn immediately that local
// endpoints are gone. If syncs keep failing, Healthy makes every answer 503. Of a Service that the kernel refuses, only what
// is in force counts.
func (s *Services) Synced(sync *proxy.Sync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	affected := map[cluster.ServiceName]bool{}
	for name, change := range sync.Changes.Decisions {
		s.replace(name, change.After)
		affected[name] = true
	}
	s.count(affected, sync)
	s.moveTo(s.wanted(sync.Plan.Node))
	s.listen(klog.Background())
}

// replace applies a change of a Service; service is nil if it was deleted. It closes listeners that are not needed any
// more; listen opens new ones later, so that a port can move from one Service to another.
func (s *Services) replace(name cluster.ServiceName, service *plan.Service) {
	var want *plan.HealthCheck
	if service != nil {
		want = service.HealthCheck
	}
	have := s.checks[name]
	if have != nil && (want == nil || want.Port != have.want.Load().Port) {
		s.closeExcept(have, nil)
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
	if have.uid != service.UID { // a recreated Service needs an Event of its own
		have.uid, have.failing, have.reported = service.UID, logonce.Condition{}, logonce.Condition{}
	}
	have.want.Store(want)
	s.closeExcept(have, s.addrs)
	s.incomplete[have] = true
}

// wanted returns the addresses to listen on. Link-local addresses are excluded because they would need a zone.
func (s *Services) wanted(node *plan.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, family := range s.config.Families {
		if s.config.AllAddresses(family) {
			addrs = append(addrs, family.Unspecified())
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

// moveTo changes the addresses to listen on.
func (s *Services) moveTo(addrs []netip.Addr) {
	if slices.Equal(addrs, s.addrs) {
		return
	}
	s.addrs = addrs
	for _, c := range s.checks {
		s.closeExcept(c, addrs)
		s.incomplete[c] = true
	}
}

// listen opens the listeners that are missing.
func (s *Services) listen(logger klog.Logger) {
	if s.ended {
		return
	}
	failing := plan.Observed{}
	for c := range s.incomplete {
		var failed error
		for _, addr := range s.addrs {
			if err := s.listenOn(c, addr); err != nil {
				failed = err
			}
		}
		if failed == nil {
			delete(s.incomplete, c)
			c.reported.Ended()
			if c.failing.Ended() {
				logger.Info("Listening on a health check node port again", "service", c.name)
			}
			continue
		}
		failing[c.name] = []plan.Problem{{Reason: plan.ProblemHealthCheck, Message: failed.Error()}}
		if c.failing.Changed("") {
			logger.Error(failed, "Failed to listen on a health check node port", "service", c.name, "retryIn", retryPeriod)
		}
		if !serve.HandingOver(failed, s.config.Clock.Since(s.began)) && c.reported.Changed("") {
			s.config.Recorder.Event(proxy.Event{
				Kind: "Service", Namespace: c.name.Namespace, Name: c.name.Name, UID: c.uid,
				Warning: true, Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Message: failed.Error(),
			})
		}
	}
	if s.config.Failing != nil {
		s.config.Failing(failing)
	}
}

// listenOn starts a server on one address unless it is running or the Service does not have the address's family.
func (s *Services) listenOn(c *check, addr netip.Addr) error {
	if c.servers[addr] != nil || !c.serves(addr) {
		return nil
	}
	family, port := cluster.FamilyOf(addr), c.want.Load().Port
	if s.listeners >= s.config.MaxListeners {
		return fmt.Errorf("health check node port %d in %s is not served: there are %d listeners, half of the file descriptors that kube-proxy may have; raise that limit (LimitNOFILE, ulimit -n)", port, family, s.listeners)
	}
	network := "tcp4"
	if family == cluster.IPv6 {
		network = "tcp6" // on ::, tcp6 excludes IPv4, so both families can use the port
	}
	listener, err := s.open(network, netip.AddrPortFrom(addr, port).String())
	if err != nil {
		return fmt.Errorf("listen on health check node port %d in %s: %w; load balancers will not use this node until the port is free", port, family, err)
	}
	c.servers[addr] = start(s.config.Limit.Listener(listener), s.handler(c, family))
	s.listeners++
	return nil
}

// server is a running HTTP server.
type server struct {
	http     *http.Server
	listener net.Listener
}

func start(listener net.Listener, handler http.Handler) *server {
	s := &server{http: serve.HTTP(handler, answerTimeout, serve.HealthIdle), listener: listener}
	go func() { _ = s.http.Serve(listener) }() // returns when the server is closed
	return s
}

// close frees the port before it returns, even if Serve has not started yet.
func (s *server) close() {
	_ = s.listener.Close()
	_ = s.http.Close()
}

// serves reports whether the Service has the family of an address.
func (c *check) serves(addr netip.Addr) bool { return c.want.Load().In(cluster.FamilyOf(addr)) }

// closeExcept closes all servers of a check with their connections, except those on the addresses in keep whose family the Service
// still has.
func (s *Services) closeExcept(c *check, keep []netip.Addr) {
	for addr, server := range c.servers {
		if !slices.Contains(keep, addr) || !c.serves(addr) {
			server.close()
			delete(c.servers, addr)
			s.listeners--
		}
	}
}

// checkReport is the body of a response.
type checkReport struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// handler answers for one family, on any path. Load balancers may use the header as the node's weight.
func (s *Services) handler(c *check, family cluster.Family) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		report := checkReport{
			Service:             serviceName{c.name.Namespace, c.name.Name},
			LocalEndpoints:      (*c.local.Load())[family],
			ServiceProxyHealthy: s.config.Healthy(),
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(report.LocalEndpoints))
		answer(w, report.LocalEndpoints > 0 && report.ServiceProxyHealthy, report, nil)
	})
}
