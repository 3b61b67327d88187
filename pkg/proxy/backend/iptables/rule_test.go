package iptables

import (
	"math"
	"testing"
)

// TestSharesAreEqual computes the shares of endpoints from the probabilities as the kernel stores them: they are equal
// to within a millionth.
func TestSharesAreEqual(t *testing.T) {
	var chances [1001]float64
	chances[1] = 1
	for n := 2; n < len(chances); n++ {
		chances[n] = float64(chance(1, n)) / (1 << 31)
		left := 1.0
		for i := n; i > 0; i-- {
			if off := left*chances[i]*float64(n) - 1; math.Abs(off) > 1e-6 {
				t.Fatalf("endpoint %d of %d gets %g more than its share", n-i, n, off)
			}
			left *= 1 - chances[i]
		}
	}
}
