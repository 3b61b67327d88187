//go:build linux

package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // rest_client_*
	_ "k8s.io/component-base/metrics/prometheus/version"    // kubernetes_build_info
	zpagesfeatures "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/health"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

// How long a response about health may take, and one about anything else. Without a limit, clients that do not read their responses
// would keep them in memory. A profile has the time that the client asks for in addition.
const (
	answerTimeout = 10 * time.Second
	pageTimeout   = time.Minute
)

// scrapes is how many responses of /metrics are made at a time.
const scrapes = 4

// servers makes the HTTP servers of a proxy: health, and metrics with the other pages. There is no server if its address is
// empty.
type servers struct {
	cfg      *config.KubeProxyConfiguration
	opts     runOptions
	node     string
	recorder proxy.Recorder
	limits   *serve.Limits
	// api serves what the commands read of a running proxy.
	api http.Handler
	// page is the status page for people.
	page http.Handler
}

// health serves /healthz and /livez.
func (s *servers) health(handler http.Handler) part {
	return s.serve("FailedToStartProxierHealthcheck", s.healthz(handler))
}

func (s *servers) healthz(handler http.Handler) *serve.Server {
	return &serve.Server{
		Name: serve.Healthz, Address: s.cfg.HealthzBindAddress, HTTP: serve.HTTP(handler, answerTimeout, serve.HealthIdle), Limit: s.limits.Healthz,
	}
}

// standbyDelay is how long a waiting proxy leaves the addresses of its pages to the other one.
const standbyDelay = 2 * time.Second

// standby serves health and metrics of a proxy that waits for another one, as far as their addresses are free: usually the
// other proxy has them, and answers for the node.
func (s *servers) standby(ready func() bool) func(ctx context.Context, holder func() netlock.Owner) {
	return func(ctx context.Context, holder func() netlock.Owner) {
		pages := &health.Standby{
			Ready:      func() bool { return ready() && holder().Serving },
			WaitingFor: func() string { return (&netlock.HeldError{Owner: holder()}).Error() },
		}
		select { // the other proxy may have begun just before, and needs the addresses
		case <-time.After(standbyDelay):
		case <-ctx.Done():
			return
		}
		quiet := klog.NewContext(ctx, logr.Discard()) // a failure means that the other proxy has the address
		var wg sync.WaitGroup
		for _, server := range []*serve.Server{s.healthz(pages.Handler()), s.pages()} {
			if server.Address != "" {
				wg.Go(func() { _ = server.Run(quiet) }) // it tries again while the address is in use
			}
		}
		wg.Wait()
	}
}

// metrics serves /metrics and the other pages.
func (s *servers) metrics() part {
	return s.serve("FailedToStartMetricServer", s.pages())
}

// pages makes a server of /metrics and the other pages.
func (s *servers) pages() *serve.Server {
	pages := &serve.Pages{
		Mode: string(s.cfg.EffectiveMode()), Metrics: serve.NewTurn(scrapes).Handler(legacyregistry.Handler()), Node: s.node,
		Profiling: s.cfg.EnableProfiling, API: s.api, Page: s.page,
	}
	if s.opts.gates.Enabled(zpagesfeatures.ComponentStatusz) {
		pages.Start = time.Now()
	}
	if s.opts.gates.Enabled(zpagesfeatures.ComponentFlagz) {
		pages.Flags = s.opts.flags
	}
	return &serve.Server{
		Name: serve.Metrics, Address: s.cfg.MetricsBindAddress, HTTP: serve.HTTP(pages.Handler(), pageTimeout, serve.PagesIdle), Limit: s.limits.Metrics,
	}
}

// serve runs a server. The Event that says why it cannot listen has the given reason.
func (s *servers) serve(reason string, server *serve.Server) part {
	if server.Address == "" {
		return func(ctx context.Context) error { <-ctx.Done(); return nil }
	}
	server.HardFail = s.cfg.BindAddressHardFail
	server.Failed = func(err error) {
		s.recorder.Event(proxy.Event{Kind: "Node", Name: s.node, Warning: true,
			Reason: reason, Action: "StartKubeProxy", Message: err.Error()})
	}
	return server.Run
}

// publishConfig makes /configz show the configuration in force.
func publishConfig(cfg *config.KubeProxyConfiguration) error {
	page, err := configz.New(config.GroupName)
	if err != nil {
		return fmt.Errorf("show the configuration: %w", err)
	}
	return page.Set(cfg)
}
