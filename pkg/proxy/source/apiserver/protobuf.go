package apiserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// lean is a set of serializers that decodes protobuf streams with few allocations.
//
// In a stream each object has two envelopes, a WatchEvent around an Unknown, and apimachinery's serializers copy it for each:
// a third of the allocations at start. These decode the envelopes in place, and of the objects only what is read. Field
// numbers are those of the files generated.proto in apimachinery.
type lean struct {
	runtime.NegotiatedSerializer
	infos []runtime.SerializerInfo
}

// newLean returns the serializers of a scheme. Only the fields that the resources read are decoded from protobuf.
func newLean(all runtime.NegotiatedSerializer, scheme *runtime.Scheme, resources []*resource) (lean, error) {
	l := lean{NegotiatedSerializer: all}
	kinds, err := newKinds(scheme, resources)
	if err != nil {
		return l, err
	}
	for _, info := range all.SupportedMediaTypes() {
		if info.StreamSerializer == nil {
			continue // YAML, which no server streams
		}
		stream := *info.StreamSerializer
		if info.MediaType == apiclient.Protobuf {
			info.Serializer = objects{info.Serializer, kinds}
			stream.Serializer = events{stream.Serializer}
		}
		stream.Framer = frames{stream.Framer}
		info.StreamSerializer = &stream
		l.infos = append(l.infos, info)
	}
	return l, nil
}

// kind is how objects of one kind are decoded.
type kind struct {
	version schema.GroupVersionKind
	of      reflect.Type
	// mask selects the fields that are decoded.
	mask *mask
	// spare are objects that are no longer in use; nil if there never are any.
	spare *sync.Pool
}

// decode decodes an object.
func (k *kind) decode(data []byte) (runtime.Object, error) {
	var object any
	if k.spare != nil {
		object = k.spare.Get()
	}
	if object == nil {
		object = reflect.New(k.of).Interface()
	}
	to := reflect.ValueOf(object).Elem()
	k.mask.reset(to)
	return object.(runtime.Object), k.mask.decode(to, data)
}

// typeMeta is the apiVersion and the kind of an object.
type typeMeta struct{ version, kind string }

// newKinds returns all kinds of a scheme that can be decoded from protobuf.
func newKinds(scheme *runtime.Scheme, resources []*resource) (map[typeMeta]*kind, error) {
	kinds := map[typeMeta]*kind{}
	for version, of := range scheme.AllKnownTypes() {
		if reflect.PointerTo(of).Implements(reflect.TypeFor[unmarshaler]()) {
			kinds[typeMeta{version.GroupVersion().String(), version.Kind}] = &kind{version: version, of: of, mask: &mask{whole: true}}
		}
	}
	for _, r := range resources {
		version := r.Version.String()
		name := reflect.TypeOf(r.Example).Elem().Name()
		object := kinds[typeMeta{version, name}]
		var err error
		if object.mask, err = newMask(object.of, r.reads...); err != nil {
			return nil, err
		}
		object.spare = &r.spare
		r.decode = object.decode
	}
	return kinds, nil
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (l lean) SupportedMediaTypes() []runtime.SerializerInfo { return l.infos }

// frames adds a read buffer to a Framer, which reads an object's length and the object separately, and reports to the meter
// where objects end.
type frames struct{ runtime.Framer }

// NewFrameReader implements runtime.Framer.
func (f frames) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	m, _ := r.(*meter) // nil if the request has none
	return frameReader{f.Framer.NewFrameReader(struct {
		io.Reader
		io.Closer
	}{bufio.NewReaderSize(r, readAhead), r}), m}
}

type frameReader struct {
	io.ReadCloser
	meter *meter
}

// Read implements io.Reader. There is no error if the object is complete.
func (r frameReader) Read(to []byte) (int, error) {
	n, err := r.ReadCloser.Read(to)
	if err == nil && r.meter != nil {
		r.meter.objectEnds()
	}
	return n, err
}

// events decodes the outer envelope.
type events struct{ runtime.Serializer }

// Decode implements runtime.Decoder. The event's object is a part of data, and must be decoded before data is
// overwritten, as client-go's watches do.
func (e events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return e.Serializer.Decode(data, defaults, into)
	}
	kind, noKind := fieldValue(data, 1)
	object, noObject := fieldValue(data, 2, 1)
	*event = metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}
	if err := errors.Join(noKind, noObject); err != nil {
		return nil, nil, fmt.Errorf("decoding a watch event: %w", err)
	}
	return event, defaults, nil
}

// objects decodes the inner envelope and the object.
type objects struct {
	runtime.Serializer
	kinds map[typeMeta]*kind
}

// magic is the prefix of every object with its kind.
var magic = []byte("k8s\x00")

// Decode implements runtime.Decoder.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	envelope, found := bytes.CutPrefix(data, magic)
	if !found || into != nil {
		return o.Serializer.Decode(data, defaults, into)
	}
	apiVersion, noVersion := fieldValue(envelope, 1, 1)
	name, noName := fieldValue(envelope, 1, 2)
	body, noBody := fieldValue(envelope, 2)
	if err := errors.Join(noVersion, noName, noBody); err != nil {
		return nil, nil, fmt.Errorf("decoding an object's envelope: %w", err)
	}
	kind := o.kinds[typeMeta{string(apiVersion), string(name)}]
	if kind == nil {
		return o.Serializer.Decode(data, defaults, into)
	}
	object, err := kind.decode(body)
	if err != nil {
		return nil, &kind.version, fmt.Errorf("decoding a %s: %w", kind.version.Kind, err)
	}
	return object, &kind.version, nil
}

// fieldValue returns the bytes of a message's field with this number; inner continues in the message that it contains. The
// last one counts if there are several. It returns nil if the field is missing.
func fieldValue(message []byte, number protowire.Number, inner ...protowire.Number) (value []byte, err error) {
	for len(message) > 0 {
		at, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(at, kind, message); n < 0 {
			return nil, protowire.ParseError(n)
		}
		if at == number && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message)
		}
		message = message[n:]
	}
	if value == nil || len(inner) == 0 {
		return value, nil
	}
	return fieldValue(value, inner[0], inner[1:]...)
}
