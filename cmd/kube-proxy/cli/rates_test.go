package cli

import (
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestServiceRates compares each round with the last one whose counters were read.
func TestServiceRates(t *testing.T) {
	of := func(connections uint64) v1alpha1.Service {
		return v1alpha1.Service{Namespace: "default", Name: "web", Connections: &connections}
	}
	o, start := &serviceOptions{}, time.Now()
	if got := o.rates("", start, of(10)); got != nil {
		t.Errorf("the first round has the rates %+v", got)
	}
	if got := o.rates("not read", start.Add(time.Second), of(0)); got != nil {
		t.Errorf("a round without counters has the rates %+v", got)
	}
	if got := o.rates("", start.Add(2*time.Second), of(30)); got == nil {
		t.Error("the third round has no rates")
	}
}
