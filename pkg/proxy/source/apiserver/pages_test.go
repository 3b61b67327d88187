package apiserver

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// TestPages reads a list, and each beginning of it: only the whole is a list.
func TestPages(t *testing.T) {
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	all := resources("n1")
	if _, err := newLean(codecs, scheme, all); err != nil {
		t.Fatal(err)
	}
	lastFields := []byte{0x1a, 0, 0x22, 0} // an envelope in protobuf ends with two empty ones
	list := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "next", RemainingItemCount: new(int64(3))}}
	for i := range 3 {
		list.Items = append(list.Items, *service(fmt.Sprintf("s%d", i)))
	}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType != apiclient.Protobuf && info.MediaType != runtime.ContentTypeJSON {
			continue
		}
		t.Run(info.MediaType, func(t *testing.T) {
			data, err := runtime.Encode(serializer.NewCodecFactory(scheme).EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), list)
			if err != nil {
				t.Fatal(err)
			}
			read := func(data []byte, of *resource) (names string, _ metav1.ListMeta, _ error) {
				got, err := readPage(iotest.OneByteReader(bytes.NewReader(data)), of, func(object runtime.Object) error {
					names += object.(*corev1.Service).Name + " "
					return nil
				}, func() {})
				return names, got, err
			}
			names, got, err := read(data, all[0])
			if err != nil || names != "s0 s1 s2 " || got.ResourceVersion != "7" || got.Continue != "next" || *got.RemainingItemCount != 3 {
				t.Errorf("got %q, %+v, %v", names, got, err)
			}
			for n := range bytes.TrimRight(data, "\n") {
				if _, _, err := read(data[:n], all[0]); err == nil && !bytes.HasSuffix(lastFields, data[n:]) {
					t.Errorf("the first %d of %d bytes are a list", n, len(data))
				}
			}
			if _, _, err := read(data, all[1]); err == nil {
				t.Error("a list of Services is one of EndpointSlices")
			}
		})
	}
}

// TestForeignPages reads objects in JSON that do not say that they are a list of Services.
func TestForeignPages(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: false, `{"message":"welcome"}`: false, `{"metadata":{"resourceVersion":"7"},"items":[]}`: false, `{"kind":"","items":[]}`: false,
		`{"kind":"PodList","items":[]}`: false, `{"items":[],"kind":"PodList"}`: false,
		`{"kind":"ServiceList","items":[]}`: true, `{"items":null,"kind":"ServiceList"}`: true,
	} {
		_, err := readPage(strings.NewReader(text), services(), func(runtime.Object) error { return nil }, func() {})
		if is := err == nil; is != want {
			t.Errorf("%s is a list: %v (%v)", text, is, err)
		}
	}
}

// FuzzPage checks that no answer causes a panic, or memory for what it only announces.
func FuzzPage(f *testing.F) {
	scheme := newScheme()
	all := resources("n1")
	if _, err := newLean(serializer.NewCodecFactory(scheme).WithoutConversion(), scheme, all); err != nil {
		f.Fatal(err)
	}
	f.Add(append(protoList(3), "\x12\x01a"...))
	f.Add([]byte(`{"kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},null]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = readPage(bytes.NewReader(data), all[0], func(runtime.Object) error { return nil }, func() {})
	})
}
