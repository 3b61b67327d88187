//go:build linux

package netif

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestWatchBacksOff has subscriptions that fail, or end without a change, for an hour: they are renewed ever more rarely, with a line in the
// log each time. One that ends after a change is renewed soon, and silently.
func TestWatchBacksOff(t *testing.T) {
	for name, err := range map[string]error{"cannot be made": errors.New("too many open files"), "ends": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logged
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
				var count atomic.Int32
				var works atomic.Bool
				end := make(chan struct{})
				changed := watch(ctx, func(updates chan<- int, done <-chan struct{}) error {
					count.Add(1)
					working := works.Load()
					switch {
					case working:
						go func() {
							updates <- 1
							select {
							case <-end:
							case <-done:
							}
							close(updates)
						}()
					case err == nil:
						close(updates)
					}
					if working {
						return nil
					}
					return err
				})
				time.Sleep(time.Hour)
				synctest.Wait()
				tries, lines := int(count.Load()), strings.Count(log.String(), "Cannot follow changes")
				if tries < 60 || tries > 75 || lines < tries-2 || !strings.Contains(log.String(), fmt.Sprint(err)) && err != nil {
					t.Errorf("%d subscriptions and %d lines in an hour:\n%s", tries, lines, log.String())
				}
				works.Store(true)
				time.Sleep(maxResubscribe)
				<-changed
				before, written := count.Load(), log.String()
				for range 5 {
					end <- struct{}{}
					time.Sleep(2 * resubscribe)
				}
				if renewed := count.Load() - before; renewed != 5 || log.String() != written {
					t.Errorf("renewed %d times of 5, log: %s", renewed, log.String()[len(written):])
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text []byte
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
