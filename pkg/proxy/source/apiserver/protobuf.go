package apiserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lean is a set of serializers that decodes protobuf streams with few allocations.
//
// In a stream each object has two envelopes, a WatchEvent around an Unknown, and apimachinery's serializers copy it for each:
// a third of the allocations at start. These decode the envelopes in place, and leave the objects to Kubernetes' own code.
// Field numbers are those of the files generated.proto in apimachinery.
type lean struct {
	runtime.NegotiatedSerializer
	infos []runtime.SerializerInfo
}

func newLean(all runtime.NegotiatedSerializer, scheme *runtime.Scheme) lean {
	l := lean{NegotiatedSerializer: all}
	for _, info := range all.SupportedMediaTypes() {
		if info.MediaType == protobuf {
			info.Serializer = objects{info.Serializer, scheme}
			info.StreamSerializer = &runtime.StreamSerializerInfo{
				Serializer: events{info.StreamSerializer.Serializer},
				Framer:     frames{info.StreamSerializer.Framer},
			}
		}
		l.infos = append(l.infos, info)
	}
	return l
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (l lean) SupportedMediaTypes() []runtime.SerializerInfo { return l.infos }

// frames adds a read buffer to a Framer, which reads an object's length and the object separately.
type frames struct{ runtime.Framer }

// NewFrameReader implements runtime.Framer.
func (f frames) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return f.Framer.NewFrameReader(struct {
		io.Reader
		io.Closer
	}{bufio.NewReaderSize(r, 1<<15), r})
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
	kind, noKind := field(data, 1)
	object, noObject := field(data, 2, 1)
	*event = metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}
	if err := errors.Join(noKind, noObject); err != nil {
		return nil, nil, fmt.Errorf("decoding a watch event: %w", err)
	}
	return event, defaults, nil
}

// objects decodes the inner envelope and the object.
type objects struct {
	runtime.Serializer
	scheme *runtime.Scheme
}

// magic is the prefix of every object with its kind.
var magic = []byte("k8s\x00")

// Decode implements runtime.Decoder.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	envelope, found := bytes.CutPrefix(data, magic)
	if !found || into != nil {
		return o.Serializer.Decode(data, defaults, into)
	}
	apiVersion, noVersion := field(envelope, 1, 1)
	name, noName := field(envelope, 1, 2)
	body, noBody := field(envelope, 2)
	if err := errors.Join(noVersion, noName, noBody); err != nil {
		return nil, nil, fmt.Errorf("decoding an object's envelope: %w", err)
	}
	kind := schema.FromAPIVersionAndKind(string(apiVersion), string(name))
	object, err := o.scheme.New(kind)
	if err != nil {
		return nil, &kind, err
	}
	message, ok := object.(interface{ Unmarshal(data []byte) error })
	if !ok {
		return nil, &kind, fmt.Errorf("%s cannot be decoded from protobuf", kind)
	}
	if err := message.Unmarshal(body); err != nil {
		return nil, &kind, fmt.Errorf("decoding a %s: %w", kind.Kind, err)
	}
	return object, &kind, nil
}

// field returns the bytes of a message's field with this number; inner continues in the message that it contains. It
// returns nil if the field is missing.
func field(message []byte, number protowire.Number, inner ...protowire.Number) ([]byte, error) {
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
			value, _ := protowire.ConsumeBytes(message)
			if len(inner) > 0 {
				return field(value, inner[0], inner[1:]...)
			}
			return value, nil
		}
		message = message[n:]
	}
	return nil, nil
}
