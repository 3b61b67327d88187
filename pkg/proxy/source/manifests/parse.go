package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// errEmpty is the fault of a file that says nothing at all, not even in a comment.
var errEmpty = errors.New("the file is empty; remove it, or write a comment into it, to remove the objects that it held")

// Parse reads the objects of one file, with the API server's defaults filled in: *Service, *EndpointSlice,
// *Node and *ServiceCIDR of the API's v1 packages, in the order of the file. name is told in errors, and its
// ending tells JSON from YAML. Anything wrong makes the whole file bad: then the error joins one Fault for
// every thing that is wrong, up to ten, and there are no objects.
func Parse(name string, data []byte) ([]runtime.Object, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &Fault{File: name, Line: 1, Err: errEmpty}
	}
	docs, flaws := documents(name, data)
	var objects []runtime.Object
	lines := map[key]int{}
	for _, doc := range docs {
		p := &parser{doc: doc, objects: objects, seen: lines}
		p.value("", doc.json, metav1.TypeMeta{})
		objects = p.objects
		flaws = append(flaws, p.flaws...)
	}
	if len(flaws) == 0 {
		return objects, nil
	}
	faults := make([]*Fault, len(flaws))
	for i, f := range flaws {
		faults[i] = &Fault{File: name, Line: f.line, Err: f.err}
	}
	return nil, join(faults)
}

// Apply tells a builder the objects that Parse gave.
func Apply(u *cluster.Update, objects []runtime.Object) {
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Service:
			u.SetService(o)
		case *discoveryv1.EndpointSlice:
			u.SetEndpointSlice(o)
		case *corev1.Node:
			u.SetNode(o)
		case *networkingv1.ServiceCIDR:
			u.SetServiceCIDR(o)
		}
	}
}

// parser reads one document.
type parser struct {
	doc     *document
	places  []place // filled when first needed
	objects []runtime.Object
	seen    map[key]int // the document's line of every object of the file so far
	flaws   []flaw
}

// fail notes what is wrong with a field of the document.
func (p *parser) fail(path, format string, args ...any) {
	if p.places == nil {
		p.places = p.doc.lines(p.doc.text)
	}
	line, found := find(p.places, path)
	if !found {
		line = 1
	}
	p.flaws = append(p.flaws, flaw{p.doc.line + int(line) - 1, fmt.Errorf(format, args...)})
}

// value reads an object or a list that stands at path. Inside lists, what it lacks of kind and apiVersion is
// as given.
func (p *parser) value(path string, data []byte, meta metav1.TypeMeta) {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		p.fail(path, "an object is wanted here: apiVersion, kind, metadata and so on")
		return
	}
	// Only what cannot be read at all is of interest here; the rest is found when it is read strictly.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		p.decodeError(path, data, err)
		return
	}
	if kind, isList := strings.CutSuffix(meta.Kind, "List"); isList {
		p.list(path, data, metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: kind})
		return
	}
	object, apiVersion := newObject(meta.Kind)
	switch {
	case meta.Kind == "":
		p.fail(path, "it has no kind; known are %s", knownKinds)
	case object == nil:
		p.fail(member(path, "kind"), "a service proxy has no use for kind %s; known are %s", meta.Kind, knownKinds)
	case meta.APIVersion != apiVersion:
		p.fail(member(path, "apiVersion"), "apiVersion %q of kind %s is unknown; use %s", meta.APIVersion, meta.Kind, apiVersion)
	case p.decode(path, data, object):
		setDefaults(object)
		for _, w := range validate(object) {
			p.fail(member(path, w.field), "%s: %s: %v", describe(object), w.field, w.err)
		}
		if first, twice := p.seen[keyOf(object)]; twice {
			p.fail(member(path, "metadata.name"), "%s is in the document of line %d already", describe(object), first)
		}
		p.seen[keyOf(object)] = p.doc.line
		p.objects = append(p.objects, object)
	}
}

// list reads what a list at path holds. member gives the kind of items that do not tell theirs: those of a
// ServiceList and its like, as the API server itself sends them.
func (p *parser) list(path string, data []byte, typed metav1.TypeMeta) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if typed.Kind == "" { // a plain List says nothing about its items
		if typed.APIVersion != corev1.SchemeGroupVersion.String() {
			p.fail(member(path, "apiVersion"), "apiVersion %q of kind List is unknown; use %s", typed.APIVersion, corev1.SchemeGroupVersion)
		}
		typed = metav1.TypeMeta{}
	}
	if p.decode(path, data, &list) {
		for i, item := range list.Items {
			p.value(element(member(path, "items"), i), item, typed)
		}
	}
}

const knownKinds = "Service, EndpointSlice, Node, ServiceCIDR and List"

// newObject makes an empty object of a kind, or nil, and tells the apiVersion that it must have.
func newObject(kind string) (object runtime.Object, apiVersion string) {
	switch kind {
	case "Service":
		return &corev1.Service{}, corev1.SchemeGroupVersion.String()
	case "EndpointSlice":
		return &discoveryv1.EndpointSlice{}, discoveryv1.SchemeGroupVersion.String()
	case "Node":
		return &corev1.Node{}, corev1.SchemeGroupVersion.String()
	case "ServiceCIDR":
		return &networkingv1.ServiceCIDR{}, networkingv1.SchemeGroupVersion.String()
	}
	return nil, ""
}

// decode reads JSON that stands at path into a Go value and tells whether all of it was understood.
func (p *parser) decode(path string, data []byte, into any) bool {
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		p.decodeError(path, data, err)
		return false
	}
	for _, err := range strict {
		field := ""
		if fieldError, ok := errors.AsType[kjson.FieldError](err); ok {
			field = fieldError.FieldPath()
		}
		p.fail(member(path, field), "%v", err)
	}
	return len(strict) == 0
}

func (p *parser) decodeError(path string, data []byte, err error) {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		p.fail(path, "%v", err)
		return
	}
	field, hint := pathAt(data, mismatch.Offset), ""
	if mismatch.Type.Kind() == reflect.String && mismatch.Value != "object" && mismatch.Value != "array" {
		hint = "; put it in quotes" // YAML takes on, no, y and 1.0 for something else
	}
	p.fail(member(path, field), "%s: %s where %s is wanted%s", field, mismatch.Value, shape(mismatch.Type), hint)
}

// shape says in words what a manifest should have in place of a Go type.
func shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of " + t.Kind().String()
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return shape(t.Elem())
	default:
		return "a mapping"
	}
}

// describe names an object for a person.
func describe(object runtime.Object) string {
	k := keyOf(object)
	if k.namespace == "" {
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

// key is what only one object in force can have.
type key struct{ kind, namespace, name string }

func keyOf(object runtime.Object) key {
	switch o := object.(type) {
	case *corev1.Service:
		return key{"Service", o.Namespace, o.Name}
	case *discoveryv1.EndpointSlice:
		return key{"EndpointSlice", o.Namespace, o.Name}
	case *corev1.Node:
		return key{"Node", "", o.Name}
	case *networkingv1.ServiceCIDR:
		return key{"ServiceCIDR", "", o.Name}
	}
	return key{kind: fmt.Sprintf("%T", object)}
}
