package serve

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"k8s.io/component-base/configz"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// maxVerbosity is the maximum length of the new log verbosity, in bytes.
const maxVerbosity = 16

// Pages are the diagnostic pages of a running proxy, served in plain HTTP on the metrics address, which is usually a
// loopback address.
type Pages struct {
	// Mode is the response of /proxyMode: the backend's name in the configuration.
	Mode string
	// Metrics serves /metrics. It must not let clients reset metrics: many are set only when something changes.
	Metrics http.Handler
	// Node is the name of this node, which scrapers may use as Host.
	Node string
	// Profiling adds /debug/pprof, and PUT /debug/flags/v to set the log verbosity.
	Profiling bool
	// Start, the time when the program started, adds /statusz unless zero, and Flags, the values of its flags by name, /flagz unless nil. They
	// must not contain secrets.
	Start time.Time
	Flags map[string]string
	// API serves /api/ unless nil.
	API http.Handler
	// Page serves / and /services/NAMESPACE/NAME unless nil: the status page for people.
	Page http.Handler
}

// Handler returns a handler for /healthz, /metrics, /metrics/slis, /proxyMode, /configz (configurations registered
// with package configz) and the optional pages. It refuses web pages that reach a loopback address by a name of theirs.
func (p *Pages) Handler() http.Handler {
	mux := &listingMux{ServeMux: http.NewServeMux()}
	mux.Handle("/healthz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The error is always nil.
		_ = slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success)
		plain(w, "ok")
	}))
	mux.Handle("/metrics", p.Metrics)
	slis.SLIMetrics{}.Install(mux)
	mux.Handle("/proxyMode", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { plain(w, p.Mode) }))
	configz.InstallHandler(mux)
	if p.Profiling {
		profiling(mux)
	}
	if p.Flags != nil {
		mux.Handle("/flagz", flagz(p.Flags))
	}
	guarded := http.NewServeMux()
	guarded.Handle("/", RefuseRebinding(mux, p.Node))
	if p.API != nil { // it has a stricter guard of its own, as the status page
		guarded.Handle("/api/", p.API)
		mux.paths = append(mux.paths, "/api/")
	}
	if p.Page != nil {
		guarded.Handle("/{$}", p.Page)
		guarded.Handle("/services/{namespace}/{name}", p.Page)
		mux.paths = append(mux.paths, "/")
	}
	if !p.Start.IsZero() {
		mux.paths = append(mux.paths, "/statusz")
		mux.ServeMux.Handle("/statusz", statusz(p.Start, mux.paths))
	}
	return guarded
}

// listingMux is a ServeMux that records its paths.
type listingMux struct {
	*http.ServeMux
	paths []string
}

// Handle registers a handler.
func (m *listingMux) Handle(path string, handler http.Handler) {
	m.paths = append(m.paths, path)
	m.ServeMux.Handle(path, handler)
}

// profiling adds the pages of a profiler. What changes the process is for local clients only, and so is a trace: it piles up in memory
// while its reader does not read. Everything else is bounded, and programs that profile a whole cluster read it from elsewhere.
func profiling(mux *listingMux) {
	mux.Handle("/debug/pprof/", http.HandlerFunc(pprof.Index))
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently))
	mux.Handle("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
	mux.Handle("/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
	mux.Handle("/debug/pprof/trace", LocalOnly(http.HandlerFunc(pprof.Trace)))
	mux.Handle("/debug/flags/v", LocalOnly(http.HandlerFunc(setVerbosity)))
}

// setVerbosity sets the log verbosity to the number in the body of a PUT request.
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
	response, err := logs.GlogSetter(string(body))
	if err != nil {
		http.Error(w, fmt.Sprintf("setting the verbosity to %q: %v", body, err), http.StatusBadRequest)
		return
	}
	plain(w, response)
}

// plain writes a response of exactly this text, since clients compare it.
func plain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// An error means that the client has closed the connection.
	_, _ = io.WriteString(w, text)
}
