package health

import "net/http"

// Standby answers for a proxy that waits until another one, which serves this node, ends.
type Standby struct {
	// Ready reports whether the proxy could take over at once.
	Ready func() bool
	// WaitingFor describes the proxy that serves this node.
	WaitingFor func() string
}

// standbyReport is the body of an answer.
type standbyReport struct {
	Healthy    bool   `json:"healthy"`
	WaitingFor string `json:"waitingFor"`
}

// Handler serves /healthz: 200 when the proxy is ready, so that a rollout goes on and ends the other one, and 503 before.
// /livez is always 200: to start this process again would help nobody.
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
