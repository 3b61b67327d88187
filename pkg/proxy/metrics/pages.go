package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"k8s.io/component-base/configz"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// maxVerbosity is how long the number that sets the log's verbosity may be, in bytes.
const maxVerbosity = 16

// Pages is what a running proxy tells whoever asks: on the metrics address, in plain HTTP, mostly to this
// machine alone.
type Pages struct {
	// Mode is what /proxyMode says: the name of the backend in the configuration.
	Mode string
	// Metrics serves /metrics: legacyregistry.HandlerWithReset() or the like.
	Metrics http.Handler
	// Profiling adds /debug/pprof and PUT /debug/flags/v, which sets the log's verbosity.
	Profiling bool
	// Statusz and Flagz add the pages of these names; nil adds none.
	Statusz *Statusz
	Flagz   *Flagz
}

// Handler serves /healthz, /metrics, /metrics/slis, /proxyMode, /configz (what was registered with package
// configz) and the pages that were asked for.
func (p *Pages) Handler() http.Handler {
	mux := &listingMux{ServeMux: http.NewServeMux()}
	mux.Handle("/healthz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// It cannot fail, and it never returns anything else.
		_ = slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success)
		plain(w, "ok")
	}))
	mux.Handle("/metrics", p.Metrics)
	slis.SLIMetricsWithReset{}.Install(mux)
	mux.Handle("/proxyMode", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { plain(w, p.Mode) }))
	configz.InstallHandler(mux)
	if p.Profiling {
		profiling(mux)
	}
	if p.Flagz != nil {
		mux.Handle("/flagz", p.Flagz)
	}
	if p.Statusz != nil {
		mux.paths = append(mux.paths, "/statusz")
		mux.ServeMux.Handle("/statusz", p.Statusz.serve(mux.paths))
	}
	return mux
}

// listingMux remembers what it serves.
type listingMux struct {
	*http.ServeMux
	paths []string
}

// Handle adds a page.
func (m *listingMux) Handle(path string, handler http.Handler) {
	m.paths = append(m.paths, path)
	m.ServeMux.Handle(path, handler)
}

func profiling(mux *listingMux) {
	mux.Handle("/debug/pprof/", http.HandlerFunc(pprof.Index))
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently))
	mux.Handle("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
	mux.Handle("/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
	mux.Handle("/debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	mux.Handle("/debug/flags/v", http.HandlerFunc(setVerbosity))
}

// setVerbosity sets the log's verbosity to the number in the body of a PUT.
func setVerbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		w.Header().Set("Allow", http.MethodPut)
		http.Error(w, "use PUT with a number: curl -X PUT --data 4", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosity))
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the verbosity: %v", err), http.StatusBadRequest)
		return
	}
	said, err := logs.GlogSetter(string(body))
	if err != nil {
		http.Error(w, fmt.Sprintf("setting the verbosity to %q: %v", body, err), http.StatusBadRequest)
		return
	}
	plain(w, said)
}

// plain answers with a text and nothing else: readers compare it as it is.
func plain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// The only error is that the client left, and there is nobody else to tell.
	_, _ = io.WriteString(w, text)
}
