package findings

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/yamldoc"
)

// Documents analyzes the Services and Nodes, and if they are needed the EndpointSlices and ServiceCIDRs, in the YAML or JSON
// documents of a file, including those in lists. name is used in errors, and its extension distinguishes JSON from YAML.
// ignored counts objects of other kinds by "Kind (apiVersion)", and Services whose endpoints cannot be looked at. Objects that
// cannot be parsed are left out; the error joins one line for each.
func (a *Analyzer) Documents(name string, data []byte) (ignored map[string]int, err error) {
	r := reader{analyzer: a, name: name, ignored: map[string]int{}}
	docs, errs := yamldoc.Split(name, data)
	r.note(errs)
	for _, doc := range docs {
		asJSON, errs := doc.JSON()
		if r.note(errs); errs == nil {
			r.doc = doc
			r.object("", asJSON, metav1.TypeMeta{})
		}
	}
	return r.ignored, errors.Join(r.errs...)
}

// reader reads the documents of one file.
type reader struct {
	analyzer *Analyzer
	name     string
	doc      *yamldoc.Document
	ignored  map[string]int
	errs     []error
}

func (r *reader) note(errs []*yamldoc.Error) {
	for _, e := range errs {
		r.errs = append(r.errs, fmt.Errorf("%s:%d: %w", r.name, e.Line, e.Err))
	}
}

// object analyzes the object at path, or those in a list. meta contains the kind and apiVersion of list items
// that have none.
func (r *reader) object(path string, data []byte, meta metav1.TypeMeta) {
	if string(data) == "null" {
		return // nothing but comments
	}
	list := struct {
		*metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}{TypeMeta: &meta}
	if !r.decode(path, data, &list) {
		return
	}
	item, isList := strings.CutSuffix(meta.Kind, "List")
	core := meta.APIVersion == corev1.SchemeGroupVersion.String()
	slice := r.analyzer.NeedsSlices() && meta.APIVersion == discoveryv1.SchemeGroupVersion.String()
	cidr := r.analyzer.NeedsSlices() && meta.APIVersion == networkingv1.SchemeGroupVersion.String()
	switch {
	case core && meta.Kind == "Service":
		var service corev1.Service
		if r.decode(path, data, &service) {
			r.complete(&service)
			if r.analyzer.NeedsSlices() && unallocated(&service) {
				r.ignored["Service without spec.clusterIP, which an API server would allocate"]++
			}
			r.analyzer.Service(&service)
		}
	case core && meta.Kind == "Node":
		var node corev1.Node
		if r.decode(path, data, &node) {
			r.complete(&node)
			r.analyzer.Node(&node)
		}
	case slice && meta.Kind == "EndpointSlice":
		var object discoveryv1.EndpointSlice
		if r.decode(path, data, &object) {
			r.complete(&object)
			r.analyzer.Slice(&object)
		}
	case cidr && meta.Kind == "ServiceCIDR":
		var object networkingv1.ServiceCIDR
		if r.decode(path, data, &object) {
			r.analyzer.ServiceCIDR(&object)
		}
	case core && isList, slice && item == "EndpointSlice", cidr && item == "ServiceCIDR":
		typed := metav1.TypeMeta{}
		if item != "" {
			typed = metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: item}
		}
		for i, text := range list.Items {
			r.object(yamldoc.Element(yamldoc.Member(path, "items"), i), text, typed)
		}
	case meta.Kind == "":
		r.errs = append(r.errs, fmt.Errorf("%s:%d: kind is missing", r.name, r.doc.LineOf(path)))
	default:
		r.ignored[fmt.Sprintf("%s (%s)", meta.Kind, meta.APIVersion)]++
	}
}

// complete sets the defaults that an API server sets, where the rules of a Service depend on them. Remedies print objects as they are
// written.
func (r *reader) complete(object runtime.Object) {
	if r.analyzer.NeedsSlices() {
		source.SetDefaults(object)
	}
}

// decode decodes the JSON at path, and reports whether that succeeded.
func (r *reader) decode(path string, data []byte, into any) bool {
	err := json.Unmarshal(data, into)
	if mismatch := (*json.UnmarshalTypeError)(nil); errors.As(err, &mismatch) {
		field := yamldoc.PathAt(data, mismatch.Offset)
		path, err = yamldoc.Member(path, field), fmt.Errorf("%s: %s cannot be used as %s", field, mismatch.Value, mismatch.Type)
	}
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s:%d: %w", r.name, r.doc.LineOf(path), err))
	}
	return err == nil
}
