package inspect

import (
	"strconv"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// Rates are connections per second since an earlier reading. A nil Rates knows none.
type Rates struct{ now, earlier *Counters }

// Counters are the counters of one reading, by a name of their own, with its time.
type Counters struct {
	at     time.Time
	values map[string]uint64
}

// CountersOf returns the counters of Services that were read at a time.
func CountersOf(at time.Time, services ...v1alpha1.Service) *Counters {
	c := &Counters{at: at, values: map[string]uint64{}}
	add := func(name string, n *uint64) {
		if n != nil {
			c.values[name] += *n
		}
	}
	for i := range services {
		s := &services[i]
		add(serviceKey(s), s.Connections)
		add(refusedKey(s), s.Refused)
		for j := range s.Ports {
			port := &s.Ports[j]
			for k := range port.Addresses {
				add(addressKey(s, port, &port.Addresses[k]), port.Addresses[k].Connections)
			}
			for _, e := range port.Endpoints {
				add(endpointKey(s, port, e.Address), e.Connections)
			}
		}
	}
	return c
}

// Since returns the rates between two readings; nil if there is no earlier one.
func (c *Counters) Since(earlier *Counters) *Rates {
	if earlier == nil {
		return nil
	}
	return &Rates{c, earlier}
}

func serviceKey(s *v1alpha1.Service) string { return s.Namespace + "/" + s.Name }

func refusedKey(s *v1alpha1.Service) string { return serviceKey(s) + " refused" }

func portKey(s *v1alpha1.Service, port *v1alpha1.Port) string {
	return serviceKey(s) + " " + port.Name + " " + port.Protocol
}

func addressKey(s *v1alpha1.Service, port *v1alpha1.Port, a *v1alpha1.Address) string {
	return portKey(s, port) + " at " + a.Address + " " + a.Kind
}

func endpointKey(s *v1alpha1.Service, port *v1alpha1.Port, endpoint string) string {
	return portKey(s, port) + " to " + endpoint
}

func (r *Rates) service(s *v1alpha1.Service) float64 { return r.of(serviceKey(s)) }

func (r *Rates) refused(s *v1alpha1.Service) float64 { return r.of(refusedKey(s)) }

// of returns the rate of a counter; one that is smaller than before was created again.
func (r *Rates) of(name string) float64 {
	if r == nil || !r.now.at.After(r.earlier.at) {
		return 0
	}
	now, before := r.now.values[name], r.earlier.values[name]
	if now < before {
		before = 0
	}
	return float64(now-before) / r.now.at.Sub(r.earlier.at).Seconds()
}

func rate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', 1, 64) }
