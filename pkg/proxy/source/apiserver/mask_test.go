package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// marshaler is the encoder that Kubernetes generates for every type.
type marshaler interface {
	runtime.Object
	unmarshaler
	Marshal() ([]byte, error)
}

// fresh returns an empty object of a resource.
func fresh(r *resource) marshaler {
	return reflect.New(reflect.TypeOf(r.Example).Elem()).Interface().(marshaler)
}

// pruned returns an object as JSON that contains only the fields of the given paths.
func pruned(t *testing.T, object runtime.Object, paths []string) string {
	t.Helper()
	object = object.DeepCopyObject()
	object.(metav1.Object).SetManagedFields(nil) // random ones are not valid JSON, and so are random target ports
	if service, ok := object.(*corev1.Service); ok {
		for i := range service.Spec.Ports {
			service.Spec.Ports[i].TargetPort = intstr.IntOrString{}
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	text, err = json.MarshalIndent(prune(all, paths), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prune keeps what the paths lead to. It does without the types, unlike the code under test.
func prune(value any, paths []string) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = prune(value[i], paths)
		}
	case map[string]any:
		for name := range value {
			var inner []string
			whole := false
			if list, ok := value[name].([]any); ok && len(list) == 0 {
				value[name] = nil // a list whose memory is used again is empty, and not nil
			}
			for _, path := range paths {
				rest, deeper := strings.CutPrefix(path, name+".")
				whole = whole || path == name
				if deeper {
					inner = append(inner, rest)
				}
			}
			switch {
			case whole:
			case inner == nil:
				delete(value, name)
			default:
				value[name] = prune(value[name], inner)
				if left, ok := value[name].(map[string]any); ok && len(left) == 0 {
					delete(value, name)
				}
			}
		}
	}
	return value
}

// random fills objects of a resource with random values, and the fields that are read sometimes with values that the
// Builder can use.
func random(seed int64) *randfill.Filler {
	addresses := []string{"10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.300", "0.0.0.0"}
	text := func(s *string, c randfill.Continue) {
		*s = append(addresses, "TCP", "Local", "ClientIP", "VIP", "10.0.0.0/8", "n1", c.String(8))[c.Intn(len(addresses)+7)]
	}
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).Funcs(
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.Namespace, m.Name = "ns", "n1"
			for _, key := range []string{discoveryv1.LabelServiceName, cluster.LabelServiceProxyName, corev1.IsHeadlessService, corev1.LabelTopologyZone} {
				if m.Labels != nil && (key == discoveryv1.LabelServiceName || c.Intn(4) == 0) {
					m.Labels[key] = c.String(8)
				}
			}
			for _, key := range cluster.Annotations() {
				if m.Annotations != nil && c.Intn(2) == 0 { // each value is right for some of them
					m.Annotations[key] = []string{"2026-11-22T10:00:00Z", "true", "open=7", "maglev", "50", "PreserveDuringTermination"}[c.Intn(6)]
				}
			}
		},
		func(s *corev1.ServiceSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Type, s.ClusterIP = corev1.ServiceTypeLoadBalancer, addresses[c.Intn(2)]
			for i := range s.Ports {
				s.Ports[i].Port = int32(c.Intn(1 << 16))
			}
		},
		func(p *discoveryv1.EndpointPort, c randfill.Continue) {
			p.Name, p.Port = new(c.String(8)), new(int32(1+c.Intn(100)))
		},
		func(a *discoveryv1.AddressType, c randfill.Continue) {
			*a = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, "FQDN"}[c.Intn(3)]
		},
		func(a *corev1.NodeAddressType, c randfill.Continue) {
			*a = []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, "other"}[c.Intn(3)]
		},
		func(s *string, c randfill.Continue) { text(s, c) },
		func(p *corev1.Protocol, c randfill.Continue) { text((*string)(p), c) },
		func(p *corev1.ServiceExternalTrafficPolicy, c randfill.Continue) { text((*string)(p), c) },
		func(p *corev1.ServiceInternalTrafficPolicy, c randfill.Continue) { text((*string)(p), c) },
		func(p *corev1.ServiceAffinity, c randfill.Continue) { text((*string)(p), c) },
		func(p *corev1.LoadBalancerIPMode, c randfill.Continue) { text((*string)(p), c) },
	)
}

// masked decodes an object as our serializer does.
func masked(r *resource, data []byte) (runtime.Object, error) {
	m, err := newMask(reflect.TypeOf(r.Example), r.reads...)
	if err != nil {
		return nil, err
	}
	k := &kind{of: reflect.TypeOf(r.Example).Elem(), mask: m, spare: &r.spare}
	return k.decode(data)
}

// TestMask decodes random objects: with the mask, exactly the fields that are read are the same as without it, and the
// Builder makes the same of both.
func TestMask(t *testing.T) {
	for _, r := range resources("n1") {
		t.Run(r.Name, func(t *testing.T) {
			useful := 0
			for seed := range int64(500) {
				filled, whole := fresh(r), fresh(r)
				random(seed).Fill(filled)
				data, err := filled.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				if err := whole.Unmarshal(bytes.Clone(data)); err != nil {
					t.Fatal(err)
				}
				got, err := masked(r, data)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if diff := cmp.Diff(pruned(t, whole, r.reads), pruned(t, got, r.reads)); diff != "" {
					t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
				}
				if accessor := got.(metav1.Object); accessor.GetManagedFields() != nil || accessor.GetOwnerReferences() != nil {
					t.Fatalf("seed %d: it contains fields that nothing reads: %v", seed, got)
				}
				want, problems := built(r, whole)
				result, problemsToo := built(r, got)
				if diff := cmp.Diff(want, result); diff != "" || problems != problemsToo {
					t.Fatalf("seed %d: (-want +got):\n%s\nproblems %q and %q", seed, diff, problems, problemsToo)
				}
				if empty, _ := built(r, nil); want != empty {
					useful++
				}
				r.spare.Put(got)
			}
			if useful < 40 {
				t.Errorf("only %d random objects had an effect", useful)
			}
		})
	}
}

// built describes what a Builder makes of an object, and the problems that it reports.
func built(r *resource, object runtime.Object) (state, problems string) {
	b := cluster.NewBuilder("n1")
	err := b.Update(func(u *cluster.Update) {
		if object != nil {
			r.set(u, object)
		}
	})
	var text strings.Builder
	s := b.Snapshot()
	fmt.Fprintf(&text, "%+v\n%v\n", *s.Node, s.ServiceCIDRs)
	for service := range s.Services.Values() {
		plain := *service
		plain.External, plain.Fence, plain.FastPath = nil, nil, nil // pointers
		fmt.Fprintf(&text, "%+v %v %v %v %+v %t %t\n", plain, service.LoadBalancerIPs(), service.ExternalIPs(), service.SourceRanges(), ptr.Deref(service.Fence, cluster.AskedFence{}),
			service.FastPath != nil, ptr.Deref(service.FastPath, false))
	}
	for _, of := range b.Unowned() {
		for _, slice := range of.Slices {
			fmt.Fprintf(&text, "%s: %+v\n", of.Service, *slice)
		}
	}
	return text.String(), fmt.Sprint(err)
}

// TestMaskPaths rejects paths that do not exist.
func TestMaskPaths(t *testing.T) {
	for _, test := range []struct {
		paths []string
		want  string
	}{
		{[]string{"spec.clusterIPS"}, "no such field"},
		{[]string{"spec.clusterIP.x"}, "no such field"},
		{[]string{"kind"}, "no such field"},
		{[]string{"spec", "spec.type"}, "in part"},
		{[]string{"spec.type", "spec"}, "in part"},
		{[]string{"spec.type", "spec.ports.port", "spec.type", "metadata.labels.a.b/c"}, ""},
	} {
		_, err := newMask(reflect.TypeFor[*corev1.Service](), test.paths...)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.paths, err, test.want)
		}
	}
}

// FuzzMask decodes any bytes: what the decoder accepts with and without the mask is the same, and everything that an encoder
// writes is accepted.
func FuzzMask(f *testing.F) {
	all := resources("n1")
	for i, r := range all {
		for seed := range int64(5) {
			object := fresh(r)
			random(seed).Fill(object)
			data, err := object.Marshal()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), data)
		}
	}
	f.Add(uint8(0), []byte{0x0a, 4, 0x5a, 2, 0x08, 1})          // a label with a number as its key
	f.Add(uint8(1), []byte{0x0a, 6, 0x5a, 4, 0x0a, 0, 0x0a, 0}) // a label with two keys
	f.Add(uint8(2), []byte{0x0b, 0x0c})                         // a group
	f.Add(uint8(0), []byte{0x12, 6, 0x0a, 4, 0x22, 2, 0x08, 2}) // a target port of an unknown type
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		r := all[int(kind)%len(all)]
		whole := fresh(r)
		failed := whole.Unmarshal(bytes.Clone(data))
		got, err := masked(r, bytes.Clone(data))
		if failed != nil {
			return
		}
		if err == nil {
			if diff := cmp.Diff(pruned(t, whole, r.reads), pruned(t, got, r.reads)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r.spare.Put(got)
		}
		encoded, err := whole.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got, err = masked(r, encoded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pruned(t, whole, r.reads), pruned(t, got, r.reads)); diff != "" {
			t.Errorf("encoded again (-want +got):\n%s", diff)
		}
	})
}
