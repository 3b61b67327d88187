package serve

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// TurnTimeout is how long a request waits for others, so that there is time for its response.
	TurnTimeout = AnswerTimeout / 2
	// makeTimeout bounds the making of a response, with its turn, so that its error reaches the client before AnswerTimeout.
	makeTimeout = AnswerTimeout - 5*time.Second
	// maxUnread is how many bytes of responses may wait for their readers, unless a single one is larger.
	maxUnread = 8 << 20
	// rest bounds what responses of a resting Turn cost: none begins for this many times as long as the last one took. With 45,000 Services
	// iptables-nft-save takes half a minute.
	rest = 4
)

// Turn bounds the memory of responses that may need much. They are made a few at a time, and then wait for their readers without a turn:
// a client that does not read its response delays nobody. If too much waits, the oldest response of the source that has the most is
// given up. A source has one request at a time that is being made or waits for a turn, so that many of one source do not delay others.
type Turn struct {
	// busy is the error of a request that had to wait too long. rest is the pause after a response, in times of what it took.
	busy  string
	rest  time.Duration
	turns chan struct{}
	// rested is when the next response of a resting Turn may begin; its only turn guards it.
	rested time.Time

	mu sync.Mutex
	// queues are the turns of sources, each for one request, while there are requests.
	queues map[Source]*queue
	// unread are the responses that wait for their readers, in bytes.
	unread shares
}

// queue is a turn among the requests of one source, which are several.
type queue struct {
	turn     chan struct{}
	requests int
}

// NewTurn returns a Turn that makes at most this many responses at a time.
func NewTurn(most int) *Turn {
	return &Turn{busy: "other requests for as much are being served, one after the other: try again later", turns: make(chan struct{}, most), queues: map[Source]*queue{}}
}

// NewRestingTurn returns a Turn for responses that read much of the kernel's state, one at a time with pauses. done is what was done just now when a request
// has to wait too long.
func NewRestingTurn(done string) *Turn {
	t := NewTurn(1)
	t.busy, t.rest = done+" just now, which is bounded in time: try again later", rest
	return t
}

// Handler returns a handler that takes a turn for each request.
func (t *Turn) Handler(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made, err := t.make(handler, w, r)
		switch {
		case r.Context().Err() != nil: // the client is gone
		case err != nil:
			Fail(w, http.StatusServiceUnavailable, err.Error())
		default:
			t.send(w, r, made)
		}
	})
}

// make waits for a turn, and makes a response.
func (t *Turn) make(handler http.Handler, w http.ResponseWriter, r *http.Request) (*response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), makeTimeout)
	defer cancel()
	waiting, cancelWaiting := context.WithTimeout(ctx, TurnTimeout)
	defer cancelWaiting()
	source := SourceOf(r)
	own := t.join(source)
	defer t.leave(source)
	if !take(waiting, own) {
		return nil, errors.New(t.busy)
	}
	defer func() { <-own }()
	if !take(waiting, t.turns) {
		return nil, errors.New(t.busy)
	}
	defer func() { <-t.turns }()
	select {
	case <-time.After(time.Until(t.rested)):
	case <-waiting.Done():
		return nil, errors.New(t.busy)
	}
	began, made := time.Now(), &response{ResponseWriter: w}
	handler.ServeHTTP(made, r.WithContext(ctx))
	if t.rest > 0 {
		t.rested = time.Now().Add(t.rest * time.Since(began))
	}
	return made, nil
}

// take waits for a turn, and reports whether it came before ctx ended.
func take(ctx context.Context, turn chan struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// join returns the turn among the requests of a source, until leave is called.
func (t *Turn) join(source Source) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[source]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		t.queues[source] = q
	}
	q.requests++
	return q.turn
}

func (t *Turn) leave(source Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[source]
	if q.requests--; q.requests == 0 {
		delete(t.queues, source)
	}
}

// response keeps the status and the body.
type response struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(code int) { r.code = code }

// Write implements http.ResponseWriter.
func (r *response) Write(text []byte) (int, error) { return r.body.Write(text) }

// send writes a response.
func (t *Turn) send(w http.ResponseWriter, r *http.Request, made *response) {
	waiting := &part{source: SourceOf(r), size: made.body.Cap(), giveUp: func() {
		// An error means that the connection has no deadline, and so does not wait.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now())
	}}
	t.unread.add(waiting, maxUnread)
	defer t.unread.remove(waiting)
	if made.code != 0 {
		w.WriteHeader(made.code)
	}
	// An error means that the client has closed the connection, or that it was given up.
	_, _ = w.Write(made.body.Bytes())
}
