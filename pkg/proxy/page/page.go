package page

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

//go:embed style.css script.js
var files embed.FS

// idle is the time without a request after which cached data is dropped.
const idle = time.Minute

// Config configures a Page.
type Config struct {
	Observer *view.Observer
	// Healthy reports whether the proxy keeps up with the cluster: as /healthz reports it, except for draining.
	Healthy func() bool
}

// Page serves the pages, to local clients only, like the API.
type Page struct {
	config        Config
	style, script string
	policy        string
	local         http.Handler
	meter         *meter

	mu    sync.Mutex
	index *index
	timer *time.Timer
}

// New returns a Page.
func New(config Config) *Page {
	style, script := mustRead("style.css"), mustRead("script.js")
	p := &Page{config: config, meter: newMeter(), style: style, script: script}
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

func mustRead(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // not reached: the file is embedded
	}
	return string(text)
}

// hash returns a source of a Content-Security-Policy that allows exactly this text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP serves / and /services/NAMESPACE/NAME.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.local.ServeHTTP(w, r) }

// userError is an error of the request.
type userError struct {
	code int
	text string
}

func (e *userError) Error() string { return e.text }

// document is what a page shows: exactly one of Overview, Service and Error is set.
type document struct {
	Title         string
	Head          head
	Style, Script string

	Overview *overview
	Service  *service
	Error    string
}

// answer serves the document that fill completes, or its error.
func (p *Page) answer(w http.ResponseWriter, r *http.Request, fill func(*http.Request, *status.State, *document) *userError) {
	p.touch()
	s := p.config.Observer.State()
	d := &document{Head: p.head(s), Style: p.style, Script: p.script}
	code := http.StatusOK
	if err := fill(r, s, d); err != nil {
		code, d.Title, d.Error = err.code, http.StatusText(err.code), err.text
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", p.policy)
	header.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(code)
	_, _ = w.Write(d.html()) // an error means that the client has closed the connection
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
	Node, Mode, Version string
	// State is a word, Tone is good, warn or bad, and Why is a sentence; empty if all is well.
	State, Tone, Why string
	Now              time.Time
}

func (p *Page) head(s *status.State) head {
	info := s.Describe()
	h := head{Node: info.Node, Mode: info.Mode, Version: info.Version, Now: s.Now, State: "Healthy", Tone: good}
	failed := ""
	if info.Sync != nil {
		for _, family := range info.Sync.Families {
			if family.Error != "" {
				failed = cmp.Or(failed, fmt.Sprintf("The last sync failed in %s: %s", family.Family, family.Error))
			}
		}
	}
	switch {
	case info.Sync == nil:
		h.State, h.Tone, h.Why = "Starting", warn, "No sync has finished yet; the rules of an earlier proxy stay in force."
	case !p.config.Healthy():
		h.State, h.Tone, h.Why = "Not healthy", bad, cmp.Or(failed, "A change has been waiting for too long to be programmed.")
	case failed != "":
		h.State, h.Tone, h.Why = "Sync failed", warn, failed
	}
	if len(info.Waiting) > 0 {
		h.Why = strings.TrimSpace(h.Why + " Waiting for: " + strings.Join(info.Waiting, ", ") + ".")
	}
	return h
}

// The tones of states.
const (
	good = "good"
	warn = "warn"
	bad  = "bad"
)

// counters are two readings; earlier may be nil.
type counters struct {
	now, earlier *backend.Connections
	err          error
}

// span returns the time between the readings; 0 if there is only one.
func (c *counters) span() time.Duration {
	if c.now == nil || c.earlier == nil {
		return 0
	}
	return c.now.At.Sub(c.earlier.At)
}

// rate returns the growth of a counter per second. A counter that is smaller than before was created again.
func (c *counters) rate(now, before uint64) float64 {
	if now < before {
		before = 0
	}
	return float64(now-before) / c.span().Seconds()
}
