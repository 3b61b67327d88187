//go:build linux

package netif

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
				var log strings.Builder
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
				tries, works := 0, false
				end := make(chan struct{})
				changed := watch(ctx, func(updates chan<- int, done <-chan struct{}) error {
					tries++
					switch {
					case works:
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
					if works {
						return nil
					}
					return err
				})
				time.Sleep(time.Hour)
				synctest.Wait()
				lines := strings.Count(log.String(), "Cannot follow changes")
				if tries < 60 || tries > 75 || lines < tries-2 || !strings.Contains(log.String(), fmt.Sprint(err)) && err != nil {
					t.Errorf("%d subscriptions and %d lines in an hour:\n%s", tries, lines, log.String())
				}
				works = true
				time.Sleep(maxResubscribe)
				<-changed
				before, written := tries, log.Len()
				for range 5 {
					end <- struct{}{}
					time.Sleep(2 * resubscribe)
				}
				if tries != before+5 || log.Len() != written {
					t.Errorf("renewed %d times of 5, log: %s", tries-before, log.String()[written:])
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
