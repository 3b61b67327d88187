package apiserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// page reads one response to a list request, and takes one object after another: neither the response nor all of its objects
// are in memory at once.
type page struct {
	of   *resource
	from *bufio.Reader
	// taken is called with each object, objectEnds after it.
	taken      func(runtime.Object) error
	objectEnds func()

	meta metav1.ListMeta
	// object is the memory of the object that is being read.
	object []byte
}

// readPage reads a page in protobuf or JSON.
func readPage(from io.Reader, of *resource, taken func(runtime.Object) error, objectEnds func()) (metav1.ListMeta, error) {
	p := &page{of: of, from: bufio.NewReaderSize(from, readAhead), taken: taken, objectEnds: objectEnds}
	read := p.json
	if start, _ := p.from.Peek(len(magic)); bytes.Equal(start, magic) { // after an error, reading has it too
		read = p.protobuf
	}
	err := read()
	if err == nil {
		_, err = io.Copy(io.Discard, p.from) // so that the connection can be used again
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return metav1.ListMeta{}, fmt.Errorf("reading a list of %s: %w", of.Name, err)
	}
	return p.meta, nil
}

// kind is the kind of the list.
func (p *page) kind() string { return reflect.TypeOf(p.of.Example).Elem().Name() + "List" }

// foreignError means that an answer is no list of objects that were requested.
type foreignError struct{ sent, want string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("the API server sent %.100s instead of %s", e.sent, e.want)
}

// take takes an object of the page.
func (p *page) take(object runtime.Object, err error) error {
	if err == nil {
		err = p.taken(object)
	}
	p.objectEnds()
	return err
}

// protobuf reads the envelope. The list is its last field that matters: the kind comes first, because serializers write fields in
// their order.
func (p *page) protobuf() error {
	if _, err := p.from.Discard(len(magic)); err != nil {
		return err
	}
	kind := "nothing"
	for {
		number, size, err := p.field()
		switch {
		case errors.Is(err, io.EOF):
			return &foreignError{kind, p.kind()}
		case err != nil:
			return err
		case number == 2 && kind == p.kind():
			return p.list(size)
		}
		if err := p.read(size); err != nil {
			return err
		}
		if number == 1 {
			name, err := fieldValue(p.object, 2)
			if err != nil {
				return err
			}
			kind = string(name)
		}
	}
}

// list reads a list of so many bytes.
func (p *page) list(size uint64) error {
	whole := p.from
	defer func() { p.from = whole }()
	rest := &io.LimitedReader{R: whole, N: int64(min(size, maxList))}
	p.from = bufio.NewReaderSize(rest, readAhead)
	for {
		number, size, err := p.field()
		switch {
		case errors.Is(err, io.EOF) && rest.N == 0:
			return nil
		case err != nil:
			return err
		}
		if err := p.read(size); err != nil {
			return err
		}
		switch number {
		case 1:
			err = p.meta.Unmarshal(p.object)
		case 2:
			err = p.take(p.of.decode(p.object))
		}
		if err != nil {
			return err
		}
	}
}

// field reads the number and the size of a field. All fields of lists and envelopes are messages or strings. The error is io.EOF
// only at the end.
func (p *page) field() (number protowire.Number, size uint64, err error) {
	tag, err := binary.ReadUvarint(p.from)
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType {
		return 0, 0, fmt.Errorf("field %d has wire type %d, want a message", number, kind)
	}
	if size, err = binary.ReadUvarint(p.from); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return number, size, err
}

// read reads the content of a field that is in memory as a whole.
func (p *page) read(size uint64) error {
	if size > maxObject {
		return &tooLargeError{fmt.Sprintf("an object has more than %d MiB", maxObject>>20)}
	}
	if uint64(cap(p.object)) < size {
		p.object = make([]byte, size)
	}
	p.object = p.object[:size]
	_, err := io.ReadFull(p.from, p.object)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// json reads a list in JSON.
func (p *page) json() error {
	from := json.NewDecoder(p.from)
	if err := delimiter(from, '{'); err != nil {
		return err
	}
	kind := ""
	for from.More() {
		name, err := from.Token()
		if err != nil {
			return err
		}
		switch name {
		case "kind":
			err = from.Decode(&kind)
		case "metadata":
			err = from.Decode(&p.meta)
		case "items":
			err = p.items(from)
		default:
			err = from.Decode(new(json.RawMessage))
		}
		if err == nil && kind != "" && kind != p.kind() {
			err = &foreignError{kind, p.kind()}
		}
		if err != nil {
			return err
		}
	}
	if kind == "" { // anything may be between this node and the API server
		return &foreignError{"an object without a kind", p.kind()}
	}
	return delimiter(from, '}')
}

// items reads the objects of a list in JSON.
func (p *page) items(from *json.Decoder) error {
	switch start, err := from.Token(); {
	case err != nil:
		return err
	case start == nil: // null
		return nil
	case start != json.Delim('['):
		return fmt.Errorf("items is %.100q, want a list", fmt.Sprint(start))
	}
	for from.More() {
		text := json.RawMessage(p.object[:0])
		if err := from.Decode(&text); err != nil {
			return err
		}
		p.object = text
		object := reflect.New(reflect.TypeOf(p.of.Example).Elem()).Interface().(runtime.Object)
		if err := p.take(object, kjson.UnmarshalCaseSensitivePreserveInts(text, object)); err != nil {
			return err
		}
	}
	return delimiter(from, ']')
}

// delimiter reads this token.
func delimiter(from *json.Decoder, want json.Delim) error {
	got, err := from.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%.100q, want %q", fmt.Sprint(got), want)
	}
	return err
}
