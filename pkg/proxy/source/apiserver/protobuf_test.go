package apiserver

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// serializers returns apimachinery's serializer for protobuf, and ours.
func serializers(t testing.TB) (theirs, ours runtime.SerializerInfo) {
	t.Helper()
	scheme := newScheme()
	all := serializer.NewCodecFactory(scheme).WithoutConversion()
	theirs, known := runtime.SerializerInfoForMediaType(all.SupportedMediaTypes(), apiclient.Protobuf)
	lean, err := newLean(all, scheme, resources("n1"))
	if err != nil {
		t.Fatal(err)
	}
	ours, knownToo := runtime.SerializerInfoForMediaType(lean.SupportedMediaTypes(), apiclient.Protobuf)
	if !known || !knownToo {
		t.Fatal("no serializer for " + apiclient.Protobuf)
	}
	return theirs, ours
}

func encode(t testing.TB, as runtime.Encoder, object runtime.Object) []byte {
	t.Helper()
	var to bytes.Buffer
	if err := as.Encode(object, &to); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

// TestProtobufDecodesAlike checks that our serializer decodes objects that contain only what is read like apimachinery's.
func TestProtobufDecodesAlike(t *testing.T) {
	theirs, ours := serializers(t)
	objects := map[string]runtime.Object{
		"service": service("web"),
		"slice":   slice("web", 3),
		"node":    &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		"list":    &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Service{*service("a"), *service("b")}},
		"status":  &metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired},
		"nothing": &corev1.Service{},
	}
	for name, object := range objects {
		t.Run(name, func(t *testing.T) {
			kinds, _, err := newScheme().ObjectKinds(object)
			if err != nil {
				t.Fatal(err)
			}
			object.GetObjectKind().SetGroupVersionKind(kinds[0])
			data := encode(t, theirs.Serializer, object)
			want, wantKind, err := runtime.WithoutVersionDecoder{Decoder: theirs.Serializer}.Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, gotKind, err := runtime.WithoutVersionDecoder{Decoder: ours.Serializer}.Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || *wantKind != *gotKind {
				t.Errorf("decoded as %v, want %v (-want +got):\n%s", gotKind, wantKind, diff)
			}

			event := &metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: data}}
			var wantEvent, gotEvent metav1.WatchEvent
			frame := encode(t, theirs.StreamSerializer.Serializer, event)
			if _, _, err := theirs.StreamSerializer.Decode(frame, nil, &wantEvent); err != nil {
				t.Fatal(err)
			}
			into, _, err := ours.StreamSerializer.Decode(frame, nil, &gotEvent)
			if err != nil || into != &gotEvent {
				t.Fatalf("decoded %v into %p, want %p", err, into, &gotEvent)
			}
			if diff := cmp.Diff(wantEvent, gotEvent); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestProtobufInvalid decodes truncated data, and an object of an unknown kind.
func TestProtobufInvalid(t *testing.T) {
	theirs, ours := serializers(t)
	object := service("web")
	object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	data := encode(t, theirs.Serializer, object)
	frame := encode(t, theirs.StreamSerializer.Serializer, &metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Raw: data}})
	decoders := map[string]struct {
		whole        []byte
		theirs, ours func([]byte) error
	}{
		"object": {data, decodes(theirs.Serializer), decodes(ours.Serializer)},
		"event":  {frame, decodesEvent(theirs.StreamSerializer), decodesEvent(ours.StreamSerializer)},
	}
	for name, d := range decoders {
		t.Run(name, func(t *testing.T) {
			// Our serializer ignores the last 4 bytes, two empty fields. Empty data is a valid event.
			for length := 1; length < len(d.whole)-4; length++ {
				if want, got := d.theirs(d.whole[:length]), d.ours(d.whole[:length]); (got == nil) != (want == nil) {
					t.Errorf("%d of %d bytes: %v, want %v", length, len(d.whole), got, want)
				}
			}
		})
	}
	other := bytes.Replace(data, []byte("Service"), []byte("Servile"), 1)
	if err := decodes(ours.Serializer)(other); err == nil || !strings.Contains(err.Error(), `no kind "Servile"`) {
		t.Errorf("another kind: %v", err)
	}
}

func decodes(by runtime.Decoder) func([]byte) error {
	return func(data []byte) error { _, _, err := by.Decode(data, nil, nil); return err }
}

func decodesEvent(by runtime.Decoder) func([]byte) error {
	return func(data []byte) error { _, _, err := by.Decode(data, nil, &metav1.WatchEvent{}); return err }
}
