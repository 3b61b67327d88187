package health

import "net/http"

// Standby serves the health checks of a proxy that waits until another one on this node ends.
type Standby struct {
	// Ready reports whether the proxy could take over immediately, and the other one serves meanwhile.
	Ready func() bool
	// WaitingFor describes the other proxy.
	WaitingFor func() string
}

// standbyReport is the body of a response.
type standbyReport struct {
	Healthy    bool   `json:"healthy"`
	WaitingFor string `json:"waitingFor"`
}

// Handler serves /healthz: 200 if the proxy is ready, so that a rollout continues and ends the other one, and 503
// before and while the other one does not serve. /livez is always 200, because a restart would not help.
func (s *Standby) Handler() http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, healthy func() bool) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			r := standbyReport{Healthy: healthy(), WaitingFor: s.WaitingFor()}
			answer(w, r.Healthy, r, nil)
		})
	}
	serve("/healthz", s.Ready)
	serve("/livez", func() bool { return true })
	return mux
}
