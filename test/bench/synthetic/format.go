package synthetic

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// The formats of objects.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	jsonText = "application/json"
)

// writer writes objects of one kind in one format. It reuses its buffers.
type writer interface {
	// event returns the next frame of a watch, which is valid until the next call.
	event(typ watch.EventType, o object) ([]byte, error)
	// list writes a list with all objects that visit yields; it calls visit twice if it needs the length.
	list(to io.Writer, meta *metav1.ListMeta, visit func(func(object) error) error) error
}

// format returns the format that the client prefers.
func format(accept string, k *kind, onlyJSON bool) (media string, w writer) {
	if !onlyJSON && strings.Contains(accept, protobuf) {
		return protobuf, &protoWriter{kind: k}
	}
	return jsonText, &jsonWriter{kind: k}
}

// protoMagic is the prefix of every top-level object in protobuf.
const protoMagic = "k8s\x00"

// protoWriter writes protobuf: a message of the kind in a runtime.Unknown, in a metav1.WatchEvent for watches.
type protoWriter struct {
	*kind
	object, frame []byte
}

// Field tags of runtime.Unknown, runtime.TypeMeta, WatchEvent, RawExtension and of all lists.
const (
	tagFirst  = 1<<3 | 2
	tagSecond = 2<<3 | 2
)

func appendField(b []byte, tag byte, content []byte) []byte {
	b = binary.AppendUvarint(append(b, tag), uint64(len(content)))
	return append(b, content...)
}

func fieldSize(n int) int { return 1 + len(binary.AppendUvarint(nil, uint64(n))) + n }

// typeMeta is a runtime.Unknown's first field.
func (w *protoWriter) typeMeta(kind string) []byte {
	m := appendField(nil, tagFirst, []byte(w.version.String()))
	return appendField(nil, tagFirst, appendField(m, tagSecond, []byte(kind)))
}

// marshal puts an object into the buffer for it.
func (w *protoWriter) marshal(o object) ([]byte, error) {
	w.object = slices.Grow(w.object[:0], o.Size())[:o.Size()]
	_, err := o.MarshalToSizedBuffer(w.object)
	return w.object, err
}

func (w *protoWriter) event(typ watch.EventType, o object) ([]byte, error) {
	content, err := w.marshal(o)
	if err != nil {
		return nil, err
	}
	meta := w.typeMeta(w.name)
	unknown := len(protoMagic) + len(meta) + fieldSize(len(content))
	var length [4]byte
	frame := appendField(append(w.frame[:0], length[:]...), tagFirst, []byte(typ))
	frame = binary.AppendUvarint(append(frame, tagSecond), uint64(fieldSize(unknown)))
	frame = binary.AppendUvarint(append(frame, tagFirst), uint64(unknown))
	frame = append(append(frame, protoMagic...), meta...)
	frame = appendField(frame, tagSecond, content)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	w.frame = frame
	return frame, nil
}

func (w *protoWriter) list(to io.Writer, meta *metav1.ListMeta, visit func(func(object) error) error) error {
	header, err := meta.Marshal()
	if err != nil {
		return err
	}
	size := fieldSize(len(header))
	if err := visit(func(o object) error { size += fieldSize(o.Size()); return nil }); err != nil {
		return err
	}
	b := append([]byte(protoMagic), w.typeMeta(w.name+"List")...)
	b = binary.AppendUvarint(append(b, tagSecond), uint64(size))
	if _, err := to.Write(appendField(b, tagFirst, header)); err != nil {
		return err
	}
	return visit(func(o object) error {
		content, err := w.marshal(o)
		if err == nil {
			w.frame = appendField(w.frame[:0], tagSecond, content)
			_, err = to.Write(w.frame)
		}
		return err
	})
}

// jsonWriter writes JSON.
type jsonWriter struct{ *kind }

func (w *jsonWriter) event(typ watch.EventType, o object) ([]byte, error) {
	o.GetObjectKind().SetGroupVersionKind(w.version.WithKind(w.name))
	frame, err := json.Marshal(metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Object: o}})
	return append(frame, '\n'), err
}

func (w *jsonWriter) list(to io.Writer, meta *metav1.ListMeta, visit func(func(object) error) error) error {
	header, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, w.name+"List", w.version.String(), header)
	if err != nil {
		return err
	}
	separator := ""
	err = visit(func(o object) error {
		content, err := json.Marshal(o)
		if err == nil {
			_, err = fmt.Fprintf(to, "%s%s", separator, content)
		}
		separator = ","
		return err
	})
	if err == nil {
		_, err = io.WriteString(to, "]}\n")
	}
	return err
}

// bookmark returns the object that ends the initial events of a stream.
func (k *kind) bookmark(version int64) object {
	o := k.empty()
	o.SetResourceVersion(strconv.FormatInt(version, 10))
	o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}
