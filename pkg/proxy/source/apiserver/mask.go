package apiserver

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// mask selects the fields of a protobuf message that are decoded, and decodes them.
//
// Most of an object is never read: managedFields, annotations of other programs, the pod behind each endpoint. Decoding
// that takes more time and memory than decoding the rest. Only a field that is selected as a whole and that is a message is
// decoded by Kubernetes' own code.
type mask struct {
	// index is that of the field in its struct.
	index int
	// whole selects all fields.
	whole bool
	// fields are the masks of the selected fields, by number; nil for other fields.
	fields []*mask
	// keys are the selected keys if the field is a map, each with itself.
	keys map[string]string
}

// newMask returns the mask of some fields of an API type. A path consists of JSON names, without indices of lists. The
// rest of a path that has reached a map is a key: "spec.ports.name", "metadata.labels.kubernetes.io/service-name". The
// types' tags contain the numbers of the fields.
func newMask(of reflect.Type, paths ...string) (*mask, error) {
	m := &mask{}
	for _, path := range paths {
		if err := m.add(of, path); err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", path, of, err)
		}
	}
	return m, nil
}

// add selects a field of a type.
func (m *mask) add(of reflect.Type, path string) error {
	of = element(of)
	if of.Kind() == reflect.Map {
		if of != reflect.TypeFor[map[string]string]() {
			return fmt.Errorf("%s cannot be decoded", of)
		}
		if m.keys == nil {
			m.keys = map[string]string{}
		}
		m.keys[path] = path
		return nil
	}
	name, rest, deeper := strings.Cut(path, ".")
	number, field, err := fieldOf(of, name)
	if err != nil {
		return err
	}
	for len(m.fields) <= int(number) {
		m.fields = append(m.fields, nil)
	}
	inner := m.fields[number]
	if inner == nil {
		inner = &mask{index: field.Index[0], whole: !deeper}
		m.fields[number] = inner
	}
	if inner.whole == deeper {
		return errors.New("it is selected both as a whole and in part")
	}
	if !deeper {
		return decodable(element(field.Type))
	}
	return inner.add(field.Type, rest)
}

// element returns what a type points to, or what it is a list of.
func element(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	return of
}

// decodable returns an error if set cannot decode a whole field of a type.
func decodable(of reflect.Type) error {
	switch of.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		return nil
	case reflect.Struct:
		if reflect.PointerTo(of).Implements(reflect.TypeFor[unmarshaler]()) {
			return nil
		}
	}
	return fmt.Errorf("%s cannot be decoded", of)
}

// fieldOf returns the number and the field of a struct by its JSON name.
func fieldOf(of reflect.Type, name string) (number protowire.Number, field reflect.StructField, err error) {
	unknown := fmt.Errorf("%s has no such field in protobuf", of)
	if of.Kind() != reflect.Struct {
		return 0, field, unknown
	}
	for field := range of.Fields() {
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if json, _, _ := strings.Cut(field.Tag.Get("json"), ","); json != name || len(tag) < 2 {
			continue
		}
		number, err := strconv.Atoi(tag[1])
		return protowire.Number(number), field, err
	}
	return 0, field, unknown
}

// of returns the mask of a field; nil if it is not selected.
func (m *mask) of(number protowire.Number) *mask {
	if int(number) >= len(m.fields) {
		return nil
	}
	return m.fields[number]
}

// unmarshaler is implemented by all messages of Kubernetes.
type unmarshaler interface{ Unmarshal(data []byte) error }

// decode adds the selected fields of a message to a struct. Errors within other fields are not noticed.
func (m *mask) decode(to reflect.Value, message []byte) error {
	if m.whole {
		return to.Addr().Interface().(unmarshaler).Unmarshal(message)
	}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		v := value{kind: kind}
		switch kind {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			v.content, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if inner := m.of(number); inner != nil {
			if err := inner.set(to.Field(inner.index), v); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

// value is the value of a field: number is that of a varint, content that of bytes.
type value struct {
	kind    protowire.Type
	number  uint64
	content []byte
}

// errWireType means that a field has a type that its definition does not allow.
var errWireType = errors.New("a field has the wrong wire type")

// set decodes the value of a field.
func (m *mask) set(to reflect.Value, v value) error {
	switch to.Kind() {
	case reflect.Pointer:
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
		}
		return m.set(to.Elem(), v)
	case reflect.Slice:
		n := to.Len()
		to.Grow(1)
		to.SetLen(n + 1)
		m.reset(to.Index(n)) // it may be left from another object
		return m.set(to.Index(n), v)
	case reflect.Bool, reflect.Int32, reflect.Int64:
		if v.kind != protowire.VarintType {
			return errWireType
		}
		if to.Kind() == reflect.Bool {
			to.SetBool(v.number != 0)
		} else {
			to.SetInt(int64(v.number))
		}
		return nil
	}
	if v.kind != protowire.BytesType {
		return errWireType
	}
	switch to.Kind() {
	case reflect.String:
		to.SetString(string(v.content))
		return nil
	case reflect.Map:
		return m.setKey(to, v.content)
	default:
		return m.decode(to, v.content)
	}
}

// setKey adds an entry to a map if its key is selected.
func (m *mask) setKey(to reflect.Value, entry []byte) error {
	name, err := fieldValue(entry, 1)
	key, selected := m.keys[string(name)]
	if err != nil || !selected {
		return err
	}
	value, err := fieldValue(entry, 2)
	if err != nil {
		return err
	}
	if to.IsNil() {
		to.Set(reflect.MakeMap(to.Type()))
	}
	to.Interface().(map[string]string)[key] = string(value)
	return nil
}

// reset empties the selected fields of a value, for the next object. It keeps the memory of lists and maps.
func (m *mask) reset(value reflect.Value) {
	switch {
	case value.Kind() == reflect.Slice:
		value.SetLen(0)
	case value.Kind() == reflect.Map:
		value.Clear()
	case value.Kind() == reflect.Struct && !m.whole:
		for _, field := range m.fields {
			if field != nil {
				field.reset(value.Field(field.index))
			}
		}
	default:
		value.SetZero()
	}
}
