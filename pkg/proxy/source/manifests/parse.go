package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// errEmpty is the error of a file without any content, not even a comment.
var errEmpty = errors.New("the file is empty; to remove its earlier objects, remove the file or write a comment into it")

// File is the content of a file.
type File struct {
	// Objects are the valid objects with the API server's defaults, in the order of the file: *Service, *EndpointSlice,
	// *Node and *ServiceCIDR of the API's v1 packages.
	Objects []runtime.Object
	// Ignored are objects of other kinds.
	Ignored []IgnoredObject
	// Refused is why Objects would not be used if they had not been read leniently, each with its object.
	Refused []*Error
	// Err joins up to ten errors in the file, each an *Error; nil if there are none.
	Err error
}

// IgnoredObject is an object of a kind that a service proxy does not use.
type IgnoredObject struct {
	Line             int // from 1
	APIVersion, Kind string
}

// String returns for example "Deployment (apps/v1) in line 3".
func (o IgnoredObject) String() string {
	return fmt.Sprintf("%s (%s) in line %d", o.Kind, o.APIVersion, o.Line)
}

// Kinds counts objects by kind: "2 Deployment (apps/v1), 1 Pod (v1)".
func Kinds(ignored []IgnoredObject) string {
	counts := map[string]int{}
	for _, o := range ignored {
		counts[fmt.Sprintf("%s (%s)", o.Kind, o.APIVersion)]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// MarshalText makes a JSON log contain an array of strings.
func (o IgnoredObject) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Parse parses a file. name is used in errors, and its extension distinguishes JSON from YAML. Invalid objects and documents
// are left out; all others are returned.
//
// If Parse is lenient, objects are as they are written, without defaults, and what it would refuse of them otherwise is in
// File.Refused; of several with the same name the first one is used. Other versions of an API are other kinds.
func Parse(name string, data []byte, lenient bool) File {
	if len(bytes.TrimSpace(data)) == 0 {
		return File{Err: &Error{File: name, Line: 1, Err: errEmpty}}
	}
	docs, errs := userfile.Split(name, data)
	p := &parser{name: name, lenient: lenient, seen: map[Key]int{}, errs: errs}
	for _, doc := range docs {
		asJSON, errs := doc.JSON()
		if p.errs = append(p.errs, errs...); errs == nil {
			p.doc = doc
			p.value("", asJSON, metav1.TypeMeta{})
		}
	}
	located := make([]*Error, len(p.errs))
	for i, e := range p.errs {
		located[i] = &Error{File: name, Line: e.Line, Err: e.Err}
	}
	return File{Objects: p.objects, Ignored: p.ignored, Refused: p.refused, Err: join(located)}
}

// Apply applies objects that Parse returned to a Builder.
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
	name    string
	lenient bool
	doc     *userfile.Document
	objects []runtime.Object
	ignored []IgnoredObject
	refused []*Error
	seen    map[Key]int // the line of each object's document
	errs    []*userfile.LineError
}

// fail adds an error in a field of the document.
func (p *parser) fail(path, format string, args ...any) {
	p.errs = append(p.errs, &userfile.LineError{Line: p.doc.LineOf(path), Err: fmt.Errorf(format, args...)})
}

// refuse adds an error in a field of an object, which the object is used in spite of if the parser is lenient.
func (p *parser) refuse(path string, k Key, err error) {
	if p.lenient {
		p.refused = append(p.refused, &Error{File: p.name, Line: p.doc.LineOf(path), Object: k, Err: err})
		return
	}
	p.fail(path, "%w", err)
}

// value parses the object or list at path. meta contains the kind and apiVersion of list items that have none.
func (p *parser) value(path string, data []byte, meta metav1.TypeMeta) {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		p.fail(path, "expected an object with apiVersion, kind and metadata")
		return
	}
	// Other errors are found when the object is decoded strictly.
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
		p.fail(path, "kind is missing; use one of %s", knownKinds)
	case object == nil || group(meta.APIVersion) != group(apiVersion) || p.lenient && meta.APIVersion != apiVersion:
		p.ignored = append(p.ignored, IgnoredObject{p.doc.LineOf(userfile.Member(path, "kind")), meta.APIVersion, meta.Kind})
	case meta.APIVersion != apiVersion:
		p.fail(userfile.Member(path, "apiVersion"), "apiVersion %q of kind %s is unknown; use %s", meta.APIVersion, meta.Kind, apiVersion)
	case p.decode(path, data, object):
		p.object(path, object)
	}
}

// object validates the object at path, and adds it if it is valid.
func (p *parser) object(path string, object runtime.Object) {
	before, k := len(p.errs), keyOf(object)
	checked, where := object, k.String()+": "
	if p.lenient {
		checked, where = object.DeepCopyObject(), ""
	}
	source.SetDefaults(checked)
	for _, i := range validate(checked, p.lenient) {
		p.refuse(userfile.Member(path, i.field), k, fmt.Errorf("%s%s: %w", where, i.field, i.err))
	}
	first, twice := p.seen[k]
	if twice {
		p.refuse(userfile.Member(path, "metadata.name"), k, fmt.Errorf("%s is already defined in the document at line %d", k, first))
	}
	if len(p.errs) == before && !twice {
		p.seen[k] = p.doc.Line
		p.objects = append(p.objects, object)
	}
}

// list parses the items of the list at path. typed is the kind of items without one, which ServiceList and the other typed
// lists of the API server have.
func (p *parser) list(path string, data []byte, typed metav1.TypeMeta) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if typed.Kind == "" { // the items of a List have kinds of their own
		if typed.APIVersion != corev1.SchemeGroupVersion.String() {
			p.fail(userfile.Member(path, "apiVersion"), "apiVersion %q of kind List is unknown; use %s", typed.APIVersion, corev1.SchemeGroupVersion)
		}
		typed = metav1.TypeMeta{}
	}
	if p.decode(path, data, &list) {
		for i, item := range list.Items {
			p.value(userfile.Element(userfile.Member(path, "items"), i), item, typed)
		}
	}
}

// group returns the API group of an apiVersion, "" for the core group.
func group(apiVersion string) string {
	group, _, named := strings.Cut(apiVersion, "/")
	if !named {
		return ""
	}
	return group
}

const knownKinds = "Service, EndpointSlice, Node, ServiceCIDR and List"

// newObject returns an empty object of a kind and its required apiVersion, or nil if the kind is not used.
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

// decode decodes the JSON at path into a Go value, and reports whether it has no errors and, unless the parser is lenient, no
// unknown fields.
func (p *parser) decode(path string, data []byte, into any) bool {
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		p.decodeError(path, data, err)
		return false
	}
	k := Key{}
	if object, ok := into.(runtime.Object); ok {
		k = keyOf(object)
	}
	for _, err := range strict {
		field := ""
		if fieldError, ok := errors.AsType[kjson.FieldError](err); ok {
			field = fieldError.FieldPath()
		}
		p.refuse(userfile.Member(path, field), k, err)
	}
	return p.lenient || len(strict) == 0
}

func (p *parser) decodeError(path string, data []byte, err error) {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		p.fail(path, "%v", err)
		return
	}
	field, hint := userfile.PathAt(data, mismatch.Offset), ""
	if mismatch.Type.Kind() == reflect.String && mismatch.Value != "object" && mismatch.Value != "array" {
		hint = "; put it in quotes" // YAML does not parse on, no, y and 1.0 as strings
	}
	p.fail(userfile.Member(path, field), "%s: %s, expected %s%s", field, mismatch.Value, shape(mismatch.Type), hint)
}

// shape describes a Go type in YAML's terms.
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

// Key identifies an object. A Node and a ServiceCIDR have no namespace.
type Key struct{ Kind, Namespace, Name string }

// String returns "Service shop/web" or "Node n1".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

func keyOf(object runtime.Object) Key {
	switch o := object.(type) {
	case *corev1.Service:
		return Key{"Service", cmp.Or(o.Namespace, metav1.NamespaceDefault), o.Name}
	case *discoveryv1.EndpointSlice:
		return Key{"EndpointSlice", cmp.Or(o.Namespace, metav1.NamespaceDefault), o.Name}
	case *corev1.Node:
		return Key{"Node", "", o.Name}
	case *networkingv1.ServiceCIDR:
		return Key{"ServiceCIDR", "", o.Name}
	}
	return Key{Kind: fmt.Sprintf("%T", object)}
}
