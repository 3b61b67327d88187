package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAlgorithmAnnotation reads the algorithms by both names, and keeps a Service whose value is invalid, with the reason.
func TestAlgorithmAnnotation(t *testing.T) {
	for _, c := range []struct {
		own, cilium string
		want        Algorithm
		ignored     string
	}{
		{},
		{own: "random"},
		{own: " maglev ", want: Maglev},
		{cilium: "maglev", want: Maglev},
		{cilium: "source-hash", want: SourceHash},
		{own: "round-robin", cilium: "maglev", want: RoundRobin},
		{own: "Maglev", cilium: "maglev", ignored: AnnotationAlgorithm + `: "Maglev" is not one of random, round-robin, source-hash, maglev`},
		{cilium: strings.Repeat("x", 200), ignored: `xxx..." is not one of`},
	} {
		annotations := map[string]string{}
		for name, value := range map[string]string{AnnotationAlgorithm: c.own, AnnotationCiliumAlgorithm: c.cilium} {
			if value != "" {
				annotations[name] = value
			}
		}
		s, problems := (&converter{}).service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}}})
		if s.Algorithm != c.want || !strings.Contains(s.Ignored, c.ignored) || (s.Ignored == "") != (c.ignored == "") || len(problems) > 0 {
			t.Errorf("%v: %s, ignored %q, %v; want %s and %q", annotations, s.Algorithm, s.Ignored, problems, c.want, c.ignored)
		}
	}
}

// TestWeightAnnotation reads the weights of a slice with the endpoints 10.0.0.1 and 10.0.0.2.
func TestWeightAnnotation(t *testing.T) {
	for _, c := range []struct {
		own, cilium   string
		first, second int
		ignored       string
	}{
		{first: 100, second: 100},
		{cilium: "0", first: 0, second: 0},
		{cilium: "65535", own: "7", first: 7, second: 7},
		{own: "10.0.0.2=0", first: 100, second: 0},
		{own: "5, 10.0.0.2 = 9 ,10.0.0.77=1", first: 5, second: 9},
		{own: "65536", first: 100, second: 100, ignored: `"65536" is not a weight from 0 to 65535`},
		{own: "-1", first: 100, second: 100, ignored: `"-1" is not a weight`},
		{own: "3,", first: 100, second: 100, ignored: `"" is not a weight`},
		{own: "3,pod=1", first: 100, second: 100, ignored: `"pod" is not an IP address`},
	} {
		annotations := map[string]string{}
		for name, value := range map[string]string{AnnotationWeight: c.own, AnnotationCiliumWeight: c.cilium} {
			if value != "" {
				annotations[name] = value
			}
		}
		s, _ := (&converter{}).slice(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}}}})
		if first, second := s.Endpoints[0].Weight.Value(), s.Endpoints[1].Weight.Value(); first != c.first || second != c.second || !strings.Contains(s.Ignored, c.ignored) || (s.Ignored == "") != (c.ignored == "") {
			t.Errorf("%v: %d and %d, ignored %q; want %d and %d, and %q", annotations, first, second, s.Ignored, c.first, c.second, c.ignored)
		}
	}
}
