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
	"github.com/seed-11a05479/kube-proxy/pkg/yamldoc"
)

// errEmpty is the fault of a file that says nothing at all, not even in a comment.
var errEmpty = errors.New("the file is empty; remove it, or write a comment into it, to remove the objects that it held")

// File is what a file holds.
type File struct {
	// Objects are the good ones, with the API server's defaults filled in, in the order of the file: *Service,
	// *EndpointSlice, *Node and *ServiceCIDR of the API's v1 packages.
	Objects []runtime.Object
	// PassedOver are objects of other kinds, which have no effect.
	PassedOver []PassedOver
	// Err is what is wrong with the rest of the file: one Fault for each thing, up to ten. nil if nothing is.
	Err error
}

// PassedOver is an object of a kind that a service proxy has no use for.
type PassedOver struct {
	Line             int // from 1
	APIVersion, Kind string
}

// String gives "Deployment (apps/v1) in line 3".
func (o PassedOver) String() string {
	return fmt.Sprintf("%s (%s) in line %d", o.Kind, o.APIVersion, o.Line)
}

// MarshalText lets a log in JSON have an array of strings.
func (o PassedOver) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Parse reads one file. name is for errors, and its ending tells JSON from YAML. An object with a fault is left out, and
// so is a document that cannot be read; the others of the file are good.
func Parse(name string, data []byte) File {
	if len(bytes.TrimSpace(data)) == 0 {
		return File{Err: &Fault{File: name, Line: 1, Err: errEmpty}}
	}
	docs, errs := yamldoc.Split(name, data)
	p := &parser{seen: map[key]int{}, errs: errs}
	for _, doc := range docs {
		asJSON, errs := doc.JSON()
		if p.errs = append(p.errs, errs...); errs == nil {
			p.doc = doc
			p.value("", asJSON, metav1.TypeMeta{})
		}
	}
	faults := make([]*Fault, len(p.errs))
	for i, e := range p.errs {
		faults[i] = &Fault{File: name, Line: e.Line, Err: e.Err}
	}
	return File{Objects: p.objects, PassedOver: p.passedOver, Err: join(faults)}
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

// parser reads the documents of one file.
type parser struct {
	doc        *yamldoc.Document
	objects    []runtime.Object
	passedOver []PassedOver
	seen       map[key]int // the line of the document that every object so far is in
	errs       []*yamldoc.Error
}

// fail notes what is wrong with a field of the document.
func (p *parser) fail(path, format string, args ...any) {
	p.errs = append(p.errs, &yamldoc.Error{Line: p.doc.LineOf(path), Err: fmt.Errorf(format, args...)})
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
	object, apiVersion := newObject(meta.Kind)
	item, isList := strings.CutSuffix(meta.Kind, "List")
	listed, _ := newObject(item)
	switch {
	case isList && (item == "" || listed != nil):
		p.list(path, data, metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: item})
	case meta.Kind == "":
		p.fail(path, "it has no kind; known are %s", knownKinds)
	case object == nil || group(meta.APIVersion) != group(apiVersion):
		p.passedOver = append(p.passedOver, PassedOver{p.doc.LineOf(yamldoc.Member(path, "kind")), meta.APIVersion, meta.Kind})
	case meta.APIVersion != apiVersion:
		p.fail(yamldoc.Member(path, "apiVersion"), "apiVersion %q of kind %s is unknown; use %s", meta.APIVersion, meta.Kind, apiVersion)
	case p.decode(path, data, object):
		p.object(path, object)
	}
}

// object checks an object that stands at path, and takes it if it is good.
func (p *parser) object(path string, object runtime.Object) {
	before := len(p.errs)
	setDefaults(object)
	for _, w := range validate(object) {
		p.fail(yamldoc.Member(path, w.field), "%s: %s: %v", describe(object), w.field, w.err)
	}
	if first, twice := p.seen[keyOf(object)]; twice {
		p.fail(yamldoc.Member(path, "metadata.name"), "%s is in the document of line %d already", describe(object), first)
	}
	if len(p.errs) == before {
		p.seen[keyOf(object)] = p.doc.Line
		p.objects = append(p.objects, object)
	}
}

// list reads the items of a list at path. typed is the kind of items that do not have one: those of a ServiceList and its
// like, as the API server itself sends them.
func (p *parser) list(path string, data []byte, typed metav1.TypeMeta) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if typed.Kind == "" { // a plain List says nothing about its items
		if typed.APIVersion != corev1.SchemeGroupVersion.String() {
			p.fail(yamldoc.Member(path, "apiVersion"), "apiVersion %q of kind List is unknown; use %s", typed.APIVersion, corev1.SchemeGroupVersion)
		}
		typed = metav1.TypeMeta{}
	}
	if p.decode(path, data, &list) {
		for i, item := range list.Items {
			p.value(yamldoc.Element(yamldoc.Member(path, "items"), i), item, typed)
		}
	}
}

// group is the API group of an apiVersion; "" is the core group.
func group(apiVersion string) string {
	group, _, named := strings.Cut(apiVersion, "/")
	if !named {
		return ""
	}
	return group
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
		p.fail(yamldoc.Member(path, field), "%v", err)
	}
	return len(strict) == 0
}

func (p *parser) decodeError(path string, data []byte, err error) {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		p.fail(path, "%v", err)
		return
	}
	field, hint := yamldoc.PathAt(data, mismatch.Offset), ""
	if mismatch.Type.Kind() == reflect.String && mismatch.Value != "object" && mismatch.Value != "array" {
		hint = "; put it in quotes" // YAML takes on, no, y and 1.0 for something else
	}
	p.fail(yamldoc.Member(path, field), "%s: %s where %s is wanted%s", field, mismatch.Value, shape(mismatch.Type), hint)
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
