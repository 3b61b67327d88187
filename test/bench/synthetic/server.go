package synthetic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// Options configure a server.
type Options struct {
	// OnlyJSON answers in JSON, whatever the client accepts. NoStreams rejects streaming lists, like servers before
	// Kubernetes 1.34.
	OnlyJSON, NoStreams bool
}

// Server is an API server for one cluster.
type Server struct {
	*Cluster
	options Options
	http    http.Server
	served  chan error
	// bytes counts the bytes sent, watches the watches that have caught up.
	bytes, watches atomic.Int64
	prepared       atomic.Pointer[prepared]
}

// Serve answers on a listener until Close.
func Serve(listener net.Listener, c *Cluster, options Options) *Server {
	s := &Server{Cluster: c, options: options, served: make(chan error, 1)}
	mux := http.NewServeMux()
	for _, k := range kinds() {
		mux.HandleFunc("GET "+k.path(), func(w http.ResponseWriter, r *http.Request) { s.collection(k, w, r) })
		mux.HandleFunc("GET "+k.path()+"/{name}", func(w http.ResponseWriter, r *http.Request) { s.single(k, w, r) })
	}
	mux.HandleFunc("POST /", s.publish)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.Method+" "+r.URL.Path+" is not supported by this server")
	})
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { s.served <- s.http.Serve(listener) }()
	return s
}

// Close stops the server and closes all connections.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Sent returns the number of bytes of objects that have been sent, without HTTP's overhead.
func (s *Server) Sent() int64 { return s.bytes.Load() }

// Watches returns the number of watches that are up to date.
func (s *Server) Watches() int { return int(s.watches.Load()) }

// query is a request for a collection.
type query struct {
	watching, streaming bool
	version             int64
	limit, from         int
	// wanted reports whether the selectors match the objects.
	wanted bool
}

// parse parses a request's query. It returns an error for what a real server would reject.
func parse(r *http.Request) (q query, err error) {
	values := r.URL.Query()
	number := func(name string) int64 {
		text := values.Get(name)
		if text == "" || err != nil {
			return 0
		}
		n, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil || n < 0 {
			err = fmt.Errorf("%s: %q is not a non-negative number", name, text)
		}
		return n
	}
	q.watching, q.streaming = values.Get("watch") == "true" || values.Get("watch") == "1", values.Get("sendInitialEvents") == "true"
	q.version, q.limit = number("resourceVersion"), int(number("limit"))
	if token := values.Get("continue"); token != "" {
		if _, bad := fmt.Sscanf(token, "%d:%d", &q.version, &q.from); bad != nil {
			err = fmt.Errorf("continue: %q is not a token of this server", token)
		}
	}
	if q.streaming && (!q.watching || values.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) || values.Get("allowWatchBookmarks") != "true") {
		err = errors.New("sendInitialEvents: needs watch, resourceVersionMatch=NotOlderThan and allowWatchBookmarks")
	}
	return q, err
}

// collection answers lists and watches.
func (s *Server) collection(k *kind, w http.ResponseWriter, r *http.Request) {
	q, err := parse(r)
	if err == nil && q.streaming && s.options.NoStreams {
		err = errors.New("sendInitialEvents: is forbidden for watch unless the WatchList feature gate is enabled")
	}
	v := s.now()
	var bad error
	q.wanted, bad = selects(k, v, r)
	if err = errors.Join(err, bad); err != nil {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	media, writer := format(r.Header.Get("Accept"), k, s.options.OnlyJSON)
	if media == protobuf {
		v.prepared = s.prepared.Load()
	}
	to := bufio.NewWriterSize(&counting{w, &s.bytes}, 1<<16)
	w.Header().Set("Content-Type", media)
	if q.watching {
		watching := &watcher{Server: s, kind: k, writer: writer, to: to, flush: w.(http.Flusher).Flush, wanted: q.wanted}
		if q.streaming || q.version == 0 {
			err = watching.initial(v)
			q.version = v.version
			if err == nil && q.streaming {
				err = watching.send(watch.Bookmark, k.bookmark(v.version))
			}
		}
		if err == nil {
			err = watching.follow(r.Context(), q.version, w)
		}
	} else {
		err = s.list(k, v, &q, writer, to)
	}
	if err == nil {
		_ = to.Flush() // an error means that the client has gone
	}
}

// selects reports whether the request's selectors match the objects of a kind. In this cluster they match all or none of
// them.
func selects(k *kind, v *view, r *http.Request) (bool, error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return false, err
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return false, err
	}
	chosen := true
	v.each(k, 0, func(o object, _ int) bool {
		of := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(), "spec.clusterIP": VIP(0).Addr().String()}
		chosen = byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(of)
		return false
	})
	return chosen, nil
}

// list writes a page of a list.
func (s *Server) list(k *kind, v *view, q *query, writer writer, to io.Writer) error {
	if q.from == 0 || q.version == 0 {
		q.version = v.version
	}
	meta := &metav1.ListMeta{ResourceVersion: strconv.FormatInt(q.version, 10)}
	page := func(visit func(object, int) bool) {
		n := 0
		if q.wanted {
			v.each(k, q.from, func(o object, next int) bool {
				n++
				return visit(o, next) && (q.limit == 0 || n < q.limit)
			})
		}
	}
	if q.limit > 0 {
		last := 0
		page(func(_ object, next int) bool { last = next; return true })
		more := false
		v.each(k, last, func(object, int) bool { more = true; return false })
		if q.wanted && more {
			meta.Continue = fmt.Sprintf("%d:%d", q.version, last)
		}
	}
	return writer.list(to, meta, func(visit func(object) error) (err error) {
		page(func(o object, _ int) bool { err = visit(o); return err == nil })
		return err
	})
}

// single answers with one object of a kind with few objects.
func (s *Server) single(k *kind, w http.ResponseWriter, r *http.Request) {
	if k.few != nil {
		for _, o := range k.few(s.now()) {
			if o.GetName() == r.PathValue("name") {
				o.GetObjectKind().SetGroupVersionKind(k.version.WithKind(k.name))
				w.Header().Set("Content-Type", jsonText)
				_ = json.NewEncoder(w).Encode(o)
				return
			}
		}
	}
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "there is no "+k.name+" "+r.PathValue("name"))
}

// publish accepts an Event and returns it.
func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/events") {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only Events are accepted here")
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body)
}

// refuse answers with a Status in JSON, which every client supports.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", jsonText)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// watcher serves a watch of one kind.
type watcher struct {
	*Server
	kind   *kind
	writer writer
	to     *bufio.Writer
	flush  func()
	wanted bool
	// upToDate reports whether the watch is counted.
	upToDate bool
}

// send writes an event. It may stay in the buffer.
func (w *watcher) send(typ watch.EventType, o object) error {
	frame, err := w.writer.event(typ, o)
	if err == nil {
		_, err = w.to.Write(frame)
	}
	return err
}

// initial sends all existing objects.
func (w *watcher) initial(v *view) (err error) {
	if w.wanted {
		v.each(w.kind, 0, func(o object, _ int) bool { err = w.send(watch.Added, o); return err == nil })
	}
	return err
}

// follow sends the events after a version until the client disconnects.
func (w *watcher) follow(ctx context.Context, version int64, response http.ResponseWriter) error {
	defer w.caughtUp(false)
	for first := true; ; first = false {
		events, more, ok := w.since(version)
		switch {
		case !ok && first:
			refuse(response, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
			return nil
		case !ok:
			return nil // a client that lags so far behind must list again
		}
		for _, e := range events {
			version = e.version
			if e.kind == w.kind.resource && w.wanted {
				o := w.kind.of(e.service, e.slice)
				o.SetResourceVersion(strconv.FormatInt(e.version, 10))
				if err := w.send(e.typ, o); err != nil {
					return err
				}
			}
		}
		if err := w.to.Flush(); err != nil {
			return err
		}
		w.flush()
		w.caughtUp(true)
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// caughtUp sets whether the watch is counted as up to date.
func (w *watcher) caughtUp(now bool) {
	switch {
	case now && !w.upToDate:
		w.watches.Add(1)
	case !now && w.upToDate:
		w.watches.Add(-1)
	}
	w.upToDate = now
}

// counting counts the bytes written.
type counting struct {
	io.Writer
	n *atomic.Int64
}

// Write implements io.Writer.
func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}
