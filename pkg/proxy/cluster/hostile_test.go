package cluster

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestManyAddresses converts a Service with very many addresses. It does not end within the test's time limit if the time
// grows with the square of their number.
func TestManyAddresses(t *testing.T) {
	const count = 1_000_000
	b := NewBuilder("n1")
	problems := apply(b, func(u *Update) {
		u.SetService(newService("a", "10.0.0.1", func(s *corev1.Service) {
			for i := range count {
				address := fmt.Sprintf("5.%d.%d.%d", i>>16&255, i>>8&255, i&255)
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, address)
			}
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, s.Spec.ExternalIPs[:3]...)
		}))
	})
	service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
	if len(problems) != 0 || len(service.ExternalIPs()) != count {
		t.Errorf("%d addresses, want %d; problems: %v", len(service.ExternalIPs()), count, problems)
	}
	if first, last := service.ExternalIPs()[0].String(), service.ExternalIPs()[count-1].String(); first != "5.0.0.0" || last != "5.15.66.63" {
		t.Errorf("the order has changed: first %s, last %s", first, last)
	}
}

// TestManyProblems checks that an object with many invalid and long fields is reported in a text of limited length, and that
// its valid fields are used.
func TestManyProblems(t *testing.T) {
	long := strings.Repeat("x\x1b[31m\n", 100_000)
	slice := newSlice("s", "a", "10.1.0.1")
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: long}
	for range 100_000 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{long[:200]}})
	}
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.2"}})
	b := NewBuilder("n1")
	err := b.Update(func(u *Update) {
		u.SetService(newService("a", "10.0.0.1", func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{long, "10.0.0.2"}
			s.Spec.LoadBalancerSourceRanges = []string{long}
			s.Spec.Ports[0].Protocol = corev1.Protocol(long)
		}))
		u.SetEndpointSlice(slice)
	})
	if err == nil || len(err.Error()) > 10_000 {
		t.Fatalf("the error has %d bytes", len(err.Error()))
	}
	if strings.ContainsAny(err.Error(), "\x1b") {
		t.Errorf("the error contains control characters: %q", err)
	}
	if want := "99981 more fields cannot be used"; !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not say %q:\n%v", want, err)
	}
	var problem *Problem
	if !errors.As(err, &problem) || problem.Object != "ns/a" {
		t.Errorf("%+v", problem)
	}
	service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
	if len(service.ExternalIPs()) != 1 || len(service.Slices[0].Endpoints) != 2 {
		t.Errorf("%d external IPs and %d endpoints, want 1 and 2", len(service.ExternalIPs()), len(service.Slices[0].Endpoints))
	}
}

// TestZonesAreForgotten checks that the names of zones that no endpoint has any more take no memory.
func TestZonesAreForgotten(t *testing.T) {
	heap := func() uint64 {
		for range 3 { // package unique removes a value after it was found unused
			runtime.GC()
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	b := NewBuilder("n1")
	update := func(version int) {
		slice := newSlice("s", "a")
		for e := range 100 {
			hints := &discoveryv1.EndpointHints{}
			for zone := range 8 {
				hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: fmt.Sprintf("%050d-%d-%d", version, e, zone)})
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.0.%d", e)}, Hints: hints})
		}
		apply(b, func(u *Update) { u.SetEndpointSlice(slice) })
	}
	update(0)
	before := heap()
	for version := range 1000 {
		update(version)
	}
	if after := heap(); after > before+5<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before, after)
	}
	runtime.KeepAlive(b)
}
