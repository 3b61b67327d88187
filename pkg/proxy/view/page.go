package view

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the style, the script and the templates
	"encoding/base64"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

//go:embed style.css
var style string

//go:embed script.js
var script string

//go:embed page.html
var markup string

// idle is the time without a request after which cached data is dropped.
const idle = time.Minute

// Page serves the pages, to local clients only, like the API.
type Page struct {
	observer  *Observer
	healthy   func() bool
	templates *templates
	policy    string
	local     http.Handler
	meter     *meter

	mu    sync.Mutex
	index *index
	timer *time.Timer
}

// NewPage returns a Page. healthy reports whether the proxy keeps up with the cluster: as /healthz reports it, except for draining.
func NewPage(o *Observer, healthy func() bool) *Page {
	parsed, err := parseTemplates("page", strings.NewReplacer("STYLE", style, "SCRIPT", script).Replace(markup), functions())
	if err != nil {
		panic(err) // not reached: the file is embedded, and tested
	}
	p := &Page{observer: o, healthy: healthy, meter: newMeter(), templates: parsed}
	p.policy = strings.Join([]string{
		"default-src 'none'", "style-src " + hash(style), "script-src " + hash(script), "connect-src 'self'", "img-src data:",
		"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	}, "; ")
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { p.answer(w, r, p.overview) })
	mux.HandleFunc("/services/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) { p.answer(w, r, p.service) })
	p.local = serve.Reading(serve.NewTurn(1).Handler(mux)) // a page may show a Service with very many endpoints
	return p
}

// hash returns a source of a Content-Security-Policy that allows exactly this text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP serves / and /services/NAMESPACE/NAME.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.local.ServeHTTP(w, r) }

// document is what a page shows: exactly one of Overview, Service and Error is set. JSON is where the API has its numbers.
type document struct {
	Title    string
	JSON     string
	Head     head
	Overview *overview
	Service  *service
	Error    string
}

// html returns the document as HTML.
func (p *Page) html(d *document) []byte {
	var out bytes.Buffer
	p.templates.execute(&out, "page", reflect.ValueOf(d))
	return out.Bytes()
}

// answer serves the document that fill completes, or its error, which is a serve.Error.
func (p *Page) answer(w http.ResponseWriter, r *http.Request, fill func(*http.Request, *status.State, *document) error) {
	p.touch()
	s := p.observer.State()
	d := &document{Head: p.head(s), JSON: v1alpha1.Path + "/info"}
	code := http.StatusOK
	if err := fill(r, s, d); err != nil {
		code = codeOf(err)
		d.Title, d.Error = http.StatusText(code), err.Error()
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", p.policy)
	header.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(code)
	_, _ = w.Write(p.html(d)) // an error means that the client has closed the connection
}

// touch keeps the cached data until idle from now.
func (p *Page) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.timer = time.AfterFunc(idle, p.forget)
	} else {
		p.timer.Reset(idle)
	}
}

// forget drops the cached data.
func (p *Page) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index = nil
	p.meter.forget()
}

// head is the top of every page.
type head struct {
	*v1alpha1.Info
	// State is a word with its Tone, and Why is a sentence; empty if all is well.
	State, Tone, Why string
	Now              time.Time
}

func (p *Page) head(s *status.State) head {
	h := head{Info: s.Describe(), Now: s.Now, State: "Healthy", Tone: good}
	failed := ""
	if families := h.Sync.Failed(); len(families) > 0 {
		failed = families[0].Failure()
	}
	switch {
	case h.Sync == nil:
		h.State, h.Tone, h.Why = "Starting", warn, "No sync has finished yet; the rules of an earlier proxy stay in force, if there are any."
	case !p.healthy() && failed == "" && slices.ContainsFunc(h.Problems, func(p v1alpha1.Problem) bool { return p.Reason == v1alpha1.ReasonDataplane }):
		h.State, h.Tone = "Not healthy", bad // the problem says why
	case !p.healthy():
		h.State, h.Tone, h.Why = "Not healthy", bad, cmp.Or(failed, "A change has been waiting for too long to be programmed.")
	case failed != "":
		h.State, h.Tone, h.Why = "Sync failed", warn, failed
	}
	if len(h.Waiting) > 0 {
		h.Why = strings.TrimSpace(h.Why + " Waiting for: " + strings.Join(h.Waiting, ", ") + ".")
	}
	return h
}
