package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConnectionLimits reads the annotation, and keeps a Service whose value is invalid, with the reason.
func TestConnectionLimits(t *testing.T) {
	for text, want := range map[string]AskedFence{
		"per-second=1000": {Fence: Fence{PerSecond: 1000}},
		" open = 5 ,client-open=2,client-per-second=100000,per-second=1": {Fence: Fence{1, 5, 100_000, 2}},
		"open=1, open=2":    {Fence: Fence{Open: 2}},
		"":                  {Ignored: `: "" is not per-second or client-per-second with = and a number from 1 to 100000, nor open or client-open with one from 1 to 5000`},
		"open":              {Ignored: `"open" is not`},
		"open=0":            {Ignored: `"open=0" is not`},
		"open=5001":         {Ignored: `"open=5001" is not`},
		"client-open=5001":  {Ignored: `"client-open=5001" is not`},
		"per-second=100001": {Ignored: `"per-second=100001" is not`},
		"open=5000":         {Fence: Fence{Open: 5000}},
		"open=-1":           {Ignored: `"open=-1" is not`},
		"open=1,rate=2":     {Ignored: `"rate=2" is not`},
		"per-second=1/s,":   {Ignored: `"per-second=1/s" is not`},
	} {
		s, problems := (&converter{}).service(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}},
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationConnectionLimits: text}}})
		if s.Fence == nil || s.Fence.Fence != want.Fence || !strings.Contains(s.Fence.Ignored, want.Ignored) || (s.Fence.Ignored == "") != (want.Ignored == "") || len(problems) > 0 {
			t.Errorf("%q: %+v, %v; want %+v", text, s.Fence, problems, want)
		}
	}
	s, _ := (&converter{}).service(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}}})
	if s.Fence != nil {
		t.Errorf("without an annotation: %+v", s.Fence)
	}
}

func TestFenceWithin(t *testing.T) {
	a, b := Fence{1, 0, 3, 9}, Fence{2, 7, 0, 4}
	if got, want := a.Within(b), (Fence{1, 7, 3, 4}); got != want || b.Within(a) != want {
		t.Errorf("got %v and %v, want %v", got, b.Within(a), want)
	}
	if got := b.String(); got != "2 new a second, 7 open, 4 open of each client" {
		t.Error(got)
	}
}

// TestFenceGuarded puts a rate before what counts open connections, and keeps lower ones.
func TestFenceGuarded(t *testing.T) {
	for _, c := range [][2]Fence{
		{{PerSecond: 1000, ClientPerSecond: 1000}, {PerSecond: 1000, ClientPerSecond: 1000}},
		{{Open: 1}, {PerSecond: 800, Open: 1}},
		{{ClientOpen: 1}, {ClientPerSecond: 800, ClientOpen: 1}},
		{{801, 1, 801, 1}, {800, 1, 800, 1}},
		{{2, 1, 3, 1}, {2, 1, 3, 1}},
	} {
		if got := c[0].Guarded(); got != c[1] {
			t.Errorf("%v is guarded as %v, want %v", c[0], got, c[1])
		}
	}
}
