package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Documents looks at the Services and Nodes among the YAML or JSON documents of a file, and at those in lists. Other
// kinds are passed over. name is told in errors.
func (a *Auditor) Documents(name string, from io.Reader) error {
	decoder := yaml.NewYAMLOrJSONDecoder(from, 4096)
	for number := 1; ; number++ {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.object(document)
		}
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", name, number, err)
		}
	}
}

// object looks at a Service, a Node, or a list of such; other kinds are none of its business.
func (a *Auditor) object(document []byte) error {
	if len(document) == 0 || string(document) == "null" {
		return nil // nothing but comments
	}
	var object struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(document, &object); err != nil {
		return err
	}
	var err error
	switch {
	case object.APIVersion == "v1" && object.Kind == "Service":
		var service corev1.Service
		if err = json.Unmarshal(document, &service); err == nil {
			a.Service(&service)
		}
	case object.APIVersion == "v1" && object.Kind == "Node":
		var node corev1.Node
		if err = json.Unmarshal(document, &node); err == nil {
			a.Node(&node)
		}
	case object.APIVersion == "v1" && strings.HasSuffix(object.Kind, "List"):
		for _, item := range object.Items {
			err = errors.Join(err, a.item(item, strings.TrimSuffix(object.Kind, "List")))
		}
	}
	return err
}

// item looks at an item of a list. Those of a ServiceList or NodeList may leave out what they are.
func (a *Auditor) item(item []byte, kind string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item, &fields); err != nil {
		return err
	}
	if _, told := fields["kind"]; !told && kind != "" {
		fields["kind"], fields["apiVersion"] = json.RawMessage(`"`+kind+`"`), json.RawMessage(`"v1"`)
		var err error
		if item, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	return a.object(item)
}
