package view

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// countTimeout bounds the reading of the kernel's counters for one request.
const countTimeout = 2 * time.Second

// NewHandler returns the handler of the API below v1alpha1.Path. It serves only local clients (see serve.Reading), changes nothing and serves
// no secrets: it knows Services, EndpointSlices and the Node.
func NewHandler(o *Observer) http.Handler {
	mux := http.NewServeMux()
	whole := serve.NewTurn(1)  // for responses that hold everything, and much memory
	single := serve.NewTurn(1) // for those about a Service, which may have 20,000 endpoints
	comparing, tracking := serve.NewRestingTurn("the rules were compared"), serve.NewRestingTurn("the connections were counted")
	rules := o.ready(func(r *http.Request) (any, error) { return o.State().Ruleset(r.URL.Query().Get("mode")) })
	compare := o.ready(func(r *http.Request) (any, error) { return o.Compare(r.Context(), r.URL.Query().Get("mode")) })
	index := &v1alpha1.Index{TypeMeta: v1alpha1.Meta(v1alpha1.KindIndex)}
	for path, handler := range map[string]http.Handler{
		"/info":        respond(func(*http.Request) (any, error) { return o.State().Describe(), nil }),
		"/services":    respond(o.ready(o.services)),
		"/explain":     respond(o.ready(o.explain)),
		"/connections": unless(o.ready(func(r *http.Request) (any, error) { return o.filter(r) }), tracking.Handler(respond(o.ready(o.open)))),
		"/comparison":  unless(o.ready(func(*http.Request) (any, error) { return nil, nil }), comparing.Handler(respond(compare))),
		"/repairs":     respond(o.ready(func(*http.Request) (any, error) { return o.Repairs(), nil })),
		"/history":     respond(func(*http.Request) (any, error) { return o.History(), nil }),
		"/rules":       whole.Handler(respond(rules)),
		"/digests":     whole.Handler(respond(o.ready(o.digests))),

		"/services/{namespace}/{name}": single.Handler(respond(o.ready(o.service))),
	} {
		mux.Handle(v1alpha1.Path+path, handler)
		index.Paths = append(index.Paths, v1alpha1.Path+path)
	}
	slices.Sort(index.Paths)
	mux.Handle(v1alpha1.Path+"/{$}", respond(func(*http.Request) (any, error) { return index, nil }))
	mux.Handle("/", respond(func(*http.Request) (any, error) {
		return nil, serve.Errorf(http.StatusNotFound, "path not found; "+v1alpha1.Path+"/ lists all paths, and docs/api.md describes them")
	}))
	return serve.Reading(mux)
}

// respond serves what answer returns: an object, a stream, or an error.
func respond(answer func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		object, err := answer(r)
		if err != nil {
			serve.Fail(w, codeOf(err), err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if list, ok := object.(stream); ok {
			list(json.NewEncoder(w), w)
			return
		}
		// An error means that the client has closed the connection.
		_ = json.NewEncoder(w).Encode(object)
	})
}

// unless serves the error of check, or what next does: a question that has no answer waits for no turn.
func unless(check func(*http.Request) (any, error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := check(r); err != nil {
			serve.Fail(w, codeOf(err), err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// codeOf returns the status code of an error.
func codeOf(err error) int {
	if own, ok := errors.AsType[*serve.Error](err); ok {
		return own.Code
	}
	if _, ok := errors.AsType[*status.QuestionError](err); ok {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// ready answers only when rules are in force: before, any answer would be wrong.
func (o *Observer) ready(answer func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if err := notReady(o.State()); err != nil {
			return nil, err
		}
		return answer(r)
	}
}

// notReady returns an error while no rules are in force.
func notReady(s *status.State) error {
	if err := s.NotInForce(); err != nil {
		return serve.Errorf(http.StatusServiceUnavailable, "%s", err.Error())
	}
	return nil
}

// parameter returns a query parameter that is true or false.
func parameter(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, serve.Errorf(http.StatusBadRequest, "parameter %s: %q is neither true nor false", name, text)
	}
	return value, nil
}

// counted reads the counters of a selection of routes if the request asks for them.
func counted(r *http.Request, s *status.State, endpoints bool, of func(yield func(*plan.Route) bool)) (*backend.Connections, string, error) {
	wanted, err := parameter(r, "connections")
	if err != nil || !wanted {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(r.Context(), countTimeout)
	defer cancel()
	counts, err := s.Connections(ctx, of, endpoints)
	if err != nil {
		return nil, err.Error(), nil
	}
	return counts, "", nil
}

func (o *Observer) services(r *http.Request) (any, error) {
	f, err := status.ParseFilter(r.URL.Query().Get("namespace"), r.URL.Query().Get("address"))
	if err != nil {
		return nil, err
	}
	s := o.State()
	counts, failed, err := counted(r, s, false, s.Routes(f))
	if err != nil {
		return nil, err
	}
	return streamed(s, f, counts, failed), nil
}

func (o *Observer) service(r *http.Request) (any, error) {
	s := o.State()
	name := cluster.ServiceName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	counts, failed, err := counted(r, s, true, s.RoutesOf(name))
	if err != nil {
		return nil, err
	}
	service := s.Service(name, counts)
	if service == nil {
		return nil, serve.Errorf(http.StatusNotFound, "%s", s.Missing(name))
	}
	service.ConnectionsError = failed
	return service, nil
}

func (o *Observer) digests(r *http.Request) (any, error) {
	services, err := parameter(r, "services")
	if err != nil {
		return nil, err
	}
	return o.State().Digests(services), nil
}

func (o *Observer) explain(r *http.Request) (any, error) {
	query := r.URL.Query()
	return o.State().Explain(status.Question{From: query.Get("from"), To: query.Get("to"), Interface: query.Get("interface")})
}

// filter returns which connections are asked for.
func (o *Observer) filter(r *http.Request) (status.OpenFilter, error) {
	f, err := status.ParseOpenFilter(r.URL.Query().Get("service"), r.URL.Query().Get("endpoint"))
	if err != nil {
		return f, err
	}
	s := o.State()
	if _, known := s.Snapshot.Services.Get(f.Service); f.Service != (cluster.ServiceName{}) && !known {
		return f, serve.Errorf(http.StatusNotFound, "%s", s.Missing(f.Service))
	}
	return f, nil
}

// open reads the conntrack table.
func (o *Observer) open(r *http.Request) (any, error) {
	f, err := o.filter(r)
	if err != nil {
		return nil, err
	}
	return o.State().Open(r.Context(), f)
}
