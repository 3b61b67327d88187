package apiserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFirst dials addresses of which some do not answer, and checks how long it takes, and that no second connection stays open.
func TestFirst(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		name string
		// answers are the times after which addresses answer: 0 is never, and less refuses.
		answers []time.Duration
		winner  int
		took    time.Duration
		err     error
	}{
		{"one", []time.Duration{time.Second}, 0, time.Second, nil},
		{"a dead family", []time.Duration{0, 0, time.Millisecond}, 2, 601 * time.Millisecond, nil},
		{"a slow one", []time.Duration{time.Second, 2 * time.Second}, 0, time.Second, nil},
		{"all refuse", []time.Duration{-1, -1}, 0, 0, refused},
		{"the first refuses", []time.Duration{-1, time.Second}, 1, time.Second, nil},
		{"all are dead", []time.Duration{0, 0}, 0, connectWait + nextWait, context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var addrs []netip.Addr
				var ends sync.Map // by address
				for i := range test.answers {
					addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
				}
				began := time.Now()
				got, err := first(t.Context(), addrs, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
					answer := test.answers[addr.As4()[3]]
					if answer < 0 {
						return nil, refused
					}
					if answer == 0 {
						ctx, cancel := context.WithTimeout(ctx, connectWait)
						defer cancel()
						<-ctx.Done()
						return nil, ctx.Err()
					}
					time.Sleep(answer) // also if the caller gives up: it may answer just then
					end, other := net.Pipe()
					ends.Store(addr, other)
					return end, nil
				})
				if took := time.Since(began); took != test.took || !errors.Is(err, test.err) || (err == nil) != (got != nil) {
					t.Errorf("%v, %v after %s, want %v after %s", got, err, took, test.err, test.took)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for i, addr := range addrs {
					if of, ok := ends.Load(addr); ok {
						end := of.(net.Conn)
						_ = end.SetReadDeadline(time.Now().Add(time.Second))
						if _, err := end.Read(make([]byte, 1)); errors.Is(err, net.ErrClosed) || (err.Error() == "EOF") != (i != test.winner) {
							t.Errorf("the connection to address %d: %v; the first is %d", i, err, test.winner)
						}
					}
				}
			})
		})
	}
}
