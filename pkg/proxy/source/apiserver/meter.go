package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The limits of an answer. They are far from what an API server sends, so that they only end what would never end, or would
// take all memory.
const (
	// maxObject is the maximum size of one object in bytes. An API server accepts requests of 3 MiB, and etcd of 1.5 MiB.
	maxObject = 8 << 20
	// readAhead is how much of the objects that follow may be in memory.
	readAhead = 32 << 10
	// maxList is the maximum size of a list in bytes, with all pages: some ten million endpoints (docs/scale.md). It is not
	// in memory at once.
	maxList = 4 << 30
	// maxPaging is the time from the first page of a list to the last request. An API server keeps what a list in pages needs
	// for five to ten minutes.
	maxPaging = 10 * time.Minute
	// headerWait is how long an answer may take to begin. An API server ends requests after a minute itself.
	headerWait = 75 * time.Second
	// minProgress bytes have to arrive in each progressWait, until a list, or the object that has begun, is complete. This is
	// 1 kB/s.
	minProgress  = 32 << 10
	progressWait = 30 * time.Second
	// watchGrace is how much longer than requested a watch may last. Servers end them.
	watchGrace = 30 * time.Second
	// maxRetryAfter is how long a server may ask to wait: it may be fine long before. client-go obeys any other number.
	maxRetryAfter = 5 // seconds
)

// tooLargeError and tooSlowError report an answer that was given up.
type (
	tooLargeError struct{ what string }
	tooSlowError  struct{ what string }
)

func (e *tooLargeError) Error() string { return "the API server's answer is too large: " + e.what }

func (e *tooSlowError) Error() string { return "the API server's answer is too slow: " + e.what }

// meter bounds the size and the time of the answer to one request. It is the body of the response.
type meter struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser

	mu sync.Mutex
	// late ends the request. It runs while the server has to make progress, and begins again whenever it does.
	late *time.Timer
	// list is the size of the list so far; nil if the answer is no list, or its list has ended.
	list *int64
	// object is the number of bytes since the end of an object, fresh those since late began.
	object, fresh int64
}

// meterKey is the key of a request's meter in its context.
type meterKey struct{}

// newMeter returns a meter for a request that is sent with its ctx. list counts the bytes of a list; nil for other requests. The
// caller must call end.
func newMeter(parent context.Context, list *int64) *meter {
	m := &meter{list: list}
	m.ctx, m.cancel = context.WithCancelCause(context.WithValue(parent, meterKey{}, m))
	m.late = time.AfterFunc(headerWait, func() {
		m.cancel(&tooSlowError{fmt.Sprintf("it has not begun, or less than %d kB have arrived in %s", minProgress>>10, progressWait)})
	})
	return m
}

// end gives the answer up, if it is not complete.
func (m *meter) end() {
	m.late.Stop()
	m.cancel(nil)
}

// why returns why the answer was given up; err if it was not.
func (m *meter) why(err error) error {
	cause := context.Cause(m.ctx)
	large, slow := (*tooLargeError)(nil), (*tooSlowError)(nil)
	if errors.As(cause, &large) || errors.As(cause, &slow) {
		return cause
	}
	return err
}

// begins makes the meter the body of a response.
func (m *meter) begins(response *http.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.body, response.Body = response.Body, m
	m.object, m.fresh = 0, 0
	m.awaitProgress()
}

// awaitProgress starts or stops the time in which the server has to make progress.
func (m *meter) awaitProgress() {
	m.fresh = 0
	if m.list != nil || m.object > 0 {
		m.late.Reset(progressWait)
	} else {
		m.late.Stop()
	}
}

// Read implements io.Reader.
func (m *meter) Read(to []byte) (int, error) {
	n, err := m.body.Read(to[:min(len(to), readAhead)])
	m.mu.Lock()
	defer m.mu.Unlock()
	begins := m.object == 0
	m.object += int64(n)
	m.fresh += int64(n)
	if m.list != nil {
		if *m.list += int64(n); *m.list > maxList {
			m.cancel(&tooLargeError{fmt.Sprintf("a list has more than %d GiB", maxList>>30)})
		}
	}
	if m.object > maxObject+2*readAhead {
		m.cancel(&tooLargeError{fmt.Sprintf("an object has more than %d MiB", maxObject>>20)})
	}
	if begins && n > 0 && m.list == nil || m.fresh >= minProgress {
		m.awaitProgress()
	}
	if why := m.why(nil); why != nil {
		return 0, why
	}
	return n, err
}

// Close implements io.Closer.
func (m *meter) Close() error { return m.body.Close() }

// objectEnds is called after each object.
func (m *meter) objectEnds() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.object = 0
	if m.list == nil {
		m.awaitProgress()
	}
}

// listEnds is called when the list has ended. A watch that follows may be silent.
func (m *meter) listEnds() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = nil
	m.awaitProgress()
}

// metered is a client's transport, with a meter for each request that has one in its context.
type metered struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(request *http.Request) (*http.Response, error) {
	m, ok := request.Context().Value(meterKey{}).(*meter)
	if !ok {
		return t.RoundTripper.RoundTrip(request)
	}
	m.late.Reset(headerWait) // client-go may repeat a request
	response, err := t.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	m.begins(response)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > maxRetryAfter {
		response.Header.Set("Retry-After", strconv.Itoa(maxRetryAfter))
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport.
func (t metered) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
