package view

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

// rationTimeout bounds an answer of a ration, with its turn, so that its error reaches the client before serve.AnswerTimeout.
const rationTimeout = serve.AnswerTimeout - 5*time.Second

// rationPause bounds what such answers cost: none begins for this many times as long as the last one took. With 45,000 Services
// iptables-nft-save takes half a minute.
const rationPause = 4

// ration bounds what reading much of the kernel's state costs: it makes one answer at a time, with pauses.
type ration struct {
	// what was done just now, when a request has to wait too long.
	what string
	turn chan struct{}
	// rested is when the next one may begin; turn guards it.
	rested time.Time
}

func newRation(what string) *ration { return &ration{what: what, turn: make(chan struct{}, 1)} }

// do makes an answer when it is its turn.
func (q *ration) do(ctx context.Context, answer func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, rationTimeout)
	defer cancel()
	turn, cancelTurn := context.WithTimeout(ctx, serve.TurnTimeout)
	defer cancelTurn()
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-turn.Done():
		return nil, q.busy()
	}
	select {
	case <-time.After(time.Until(q.rested)):
	case <-turn.Done():
		return nil, q.busy()
	}
	began := time.Now()
	defer func() { q.rested = time.Now().Add(rationPause * time.Since(began)) }()
	return answer(ctx)
}

// busy is the error of a request that had to wait too long.
func (q *ration) busy() error {
	return serve.Errorf(http.StatusServiceUnavailable, "%s just now, which is bounded in time: try again later", q.what)
}
