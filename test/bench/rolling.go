//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A rolling update replaces replacedEach pods a second. An update of many Services at once is repeated.
const replacedEach, updatesAtOnce = 50, 10

// rollingUpdates measures what replaced pods cost, and the delay until packets see it.
func (b *bench) rollingUpdates() error {
	if err := b.oneRolling(); err != nil {
		return err
	}
	return b.manyAtOnce()
}

// oneRolling replaces all pods of one Service, one after another at a steady rate. A connection would rarely reach the one
// that was replaced, so the delay is that of another Service's change, which follows one of these changes in the same
// watch.
func (b *bench) oneRolling() error {
	number := b.CreateWith(corev1.ProtocolTCP, b.pods)
	if _, err := b.wait(number, func() (time.Time, func(netip.Addr) bool) { return time.Now(), anyEndpoint }); err != nil {
		return err
	}
	name := fmt.Sprintf("rolling update of %d pods, %d/s", b.pods, replacedEach)
	err := b.while(name, func(ctx context.Context) (replaced int) {
		steadily(ctx, replacedEach, func(n int) bool {
			b.ReplaceEndpointAt(number, n)
			replaced = n + 1
			return replaced < b.pods
		})
		return replaced
	})
	b.Delete(number)
	return err
}

// manyAtOnce replaces both pods of many Services at once, several times. The delay is that of a random one of these Services
// each time, at a random place among the changes.
func (b *bench) manyAtOnce() error {
	var numbers []int
	for range max(2, b.pods/2) {
		numbers = append(numbers, b.CreateWith(corev1.ProtocolTCP, 2))
	}
	last := numbers[len(numbers)-1]
	if _, err := b.wait(last, func() (time.Time, func(netip.Addr) bool) { return time.Now(), anyEndpoint }); err != nil {
		return err
	}
	err := b.series(fmt.Sprintf("update of %d Services at once", len(numbers)), updatesAtOnce, func(int) (time.Duration, error) {
		rand.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
		probed := numbers[rand.N(len(numbers))]
		return b.wait(probed, func() (time.Time, func(netip.Addr) bool) {
			start := time.Now()
			b.ReplaceAll(numbers...)
			fresh := b.Endpoints(probed) // a slow proxy may still have those of an earlier turn
			return start, func(by netip.Addr) bool { return slices.Contains(fresh, by) }
		})
	})
	for _, number := range numbers {
		b.Delete(number)
	}
	return err
}

// steadily calls do at a steady rate, with 0, 1 and so on, until it returns false or the context is done.
func steadily(ctx context.Context, rate int, do func(n int) bool) {
	start := time.Now()
	ticker := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(rate)))
	defer ticker.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for ; float64(n) < time.Since(start).Seconds()*float64(rate); n++ {
			if !do(n) {
				return
			}
		}
	}
}
