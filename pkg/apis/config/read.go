package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// MaxSize is the maximum size of a file in bytes. A ConfigMap cannot hold more.
const MaxSize = 1 << 20

// Versions returns the served versions, the latest first. Files are written in the latest by default.
func Versions() []string { return []string{Version, V1alpha1} }

// File is a configuration file. Check validates its values.
type File struct {
	// Name is the path of the file.
	Name string
	// Version is v1alpha1 or v1alpha2.
	Version string
	// Config is the configuration, with all defaults.
	Config *KubeProxyConfiguration
	// Warnings are unknown and duplicate fields, which had no effect. With configHardFail Check returns them as errors.
	Warnings Problems
	// Dropped are settings of v1alpha1 that v1alpha2 does not have.
	Dropped []Loss

	doc     *userfile.Document
	wrong   Problems        // values that could not be decoded
	invalid field.ErrorList // values of fields that v1alpha2 does not have
}

// ReadFile reads a file, or a pipe. The error is of type Problems if the content is invalid.
func ReadFile(name string) (*File, error) {
	data, err := userfile.Read(name, MaxSize)
	if err != nil {
		return nil, err
	}
	return ParseFile(name, data)
}

// ParseFile decodes the content of a file; name is for messages. It returns an error, of type Problems, only if the content
// cannot be decoded at all. Single values that cannot be decoded get their default, and Check reports them with all
// other errors.
func ParseFile(name string, data []byte) (*File, error) {
	doc, root, problem := parseTree(name, data)
	if problem != nil {
		return nil, Problems{*problem}
	}
	gv, problem := readVersion(name, root)
	if problem != nil {
		return nil, Problems{*problem}
	}

	walk := walkTree(name, gv.Version, root)
	file := &File{Name: name, Version: gv.Version, Warnings: walk.strict.sorted(), wrong: walk.wrong, doc: doc}
	text := doc.Text
	var err error
	if len(walk.wrong) > 0 {
		prune(root)
		text, err = yaml.Marshal(root) // without the values that cannot be decoded
	}
	if err == nil {
		err = file.decode(text)
	}
	switch {
	case err != nil && len(walk.wrong) > 0:
		return nil, append(walk.wrong, walk.strict...).sorted()
	case err != nil:
		return nil, Problems{{File: name, Detail: err.Error()}}
	}
	return file, nil
}

// decode decodes text, as Kubernetes does, into the file's Config.
func (f *File) decode(text []byte) error {
	data, err := sigsyaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := unmarshal(data, &fields); err != nil {
		return err
	}
	withoutNulls(fields)
	if data, err = json.Marshal(fields); err != nil {
		return err
	}
	if f.Version == V1alpha1 {
		return f.decodeOld(data)
	}
	var first struct {
		NodeIPOverride []string `json:"nodeIPOverride"`
	}
	if err := unmarshal(data, &first); err != nil {
		return err
	}
	f.Config = Default(first.NodeIPOverride...)
	if err := unmarshal(data, f.Config); err != nil {
		return err
	}
	f.Config.Complete()
	return nil
}

// decodeOld decodes JSON of v1alpha1.
func (f *File) decodeOld(data []byte) error {
	old := &upstream.KubeProxyConfiguration{}
	if err := unmarshal(data, old); err != nil {
		return err
	}
	f.Dropped, f.invalid = droppedFrom(old), validateV1alpha1(old)
	setV1alpha1Defaults(old)
	f.Config = fromV1alpha1(old)
	return nil
}

// unmarshal decodes JSON; the case of field names counts.
func unmarshal(data []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// withoutNulls removes fields without a value, which have their default.
func withoutNulls(fields map[string]any) {
	for name, value := range fields {
		if inner, section := value.(map[string]any); section {
			withoutNulls(inner)
		}
		if value == nil {
			delete(fields, name)
		}
	}
}

// parseTree parses the only document of a file.
func parseTree(name string, data []byte) (*userfile.Document, *yaml.Node, *Problem) {
	docs, errs := userfile.Split(name, data)
	if len(errs) > 0 {
		return nil, nil, &Problem{File: name, Line: errs[0].Line, Detail: "is " + errs[0].Err.Error()}
	}
	var doc *userfile.Document
	var root *yaml.Node
	for _, d := range docs {
		n, errs := d.Node()
		switch {
		case len(errs) > 0:
			return nil, nil, &Problem{File: name, Line: errs[0].Line, Detail: "is " + errs[0].Err.Error()}
		case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
			continue
		case root != nil:
			return nil, nil, &Problem{File: name, Line: n.Line, Detail: "a second document begins here; want only one"}
		}
		doc, root = d, n
	}
	switch {
	case root == nil:
		return nil, nil, &Problem{File: name, Detail: "is empty; " + wanted()}
	case root.Kind != yaml.MappingNode:
		return nil, nil, &Problem{File: name, Line: root.Line, Detail: fmt.Sprintf("is %s, not a set of fields; %s", describe(root), wanted())}
	}
	return doc, root, nil
}

// readVersion reads apiVersion and kind.
func readVersion(name string, root *yaml.Node) (schema.GroupVersion, *Problem) {
	apiVersion, apiLine := scalarField(root, "apiVersion")
	kind, kindLine := scalarField(root, "kind")
	gv, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case kind == "ConfigMap" || kind == "List" || kind == "ConfigMapList":
		return gv, &Problem{File: name, Line: kindLine, Field: "kind",
			Detail: fmt.Sprintf("a %s is not a configuration; \"kube-proxy config convert\" extracts the one in it", kind)}
	case apiVersion == "":
		return gv, &Problem{File: name, Line: apiLine, Field: "apiVersion", Detail: "missing; " + wanted()}
	case kind == "":
		return gv, &Problem{File: name, Line: kindLine, Field: "kind", Detail: "missing; " + wanted()}
	case err != nil || gv.Group != GroupName || !slices.Contains(Versions(), gv.Version):
		return gv, &Problem{File: name, Line: apiLine, Field: "apiVersion", Detail: fmt.Sprintf("%q is not served; %s", apiVersion, wanted())}
	case kind != Kind:
		return gv, &Problem{File: name, Line: kindLine, Field: "kind", Detail: fmt.Sprintf("%q is not served; %s", kind, wanted())}
	}
	return gv, nil
}

// wanted describes the required apiVersion and kind.
func wanted() string {
	var versions []string
	for _, v := range Versions() {
		versions = append(versions, GroupName+"/"+v)
	}
	return fmt.Sprintf("want kind %s with apiVersion %s", Kind, strings.Join(versions, " or "))
}

// scalarField returns the value and the line of a field of a mapping; "" if there is none.
func scalarField(mapping *yaml.Node, name string) (string, int) {
	if value := child(mapping, name); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value, value.Line
	}
	return "", 0
}

// Check adds to the errors of validation what only the file knows: lines, the field names of its version, values that
// could not be decoded, and with configHardFail unknown and duplicate fields. The paths of errs are those of v1alpha2.
// It returns Problems, or nil.
func (f *File) Check(errs field.ErrorList) error {
	problems := slices.Clone(f.wrong)
	if f.Config.ConfigHardFail || len(f.wrong) > 0 {
		problems = append(problems, f.Warnings...)
	}
	for _, e := range f.invalid {
		problems = append(problems, f.locate(e, e.Field))
	}
	for _, e := range errs {
		path := e.Field
		if f.Version == V1alpha1 {
			path = PathInV1alpha1(e.Field, f.Config.Mode)
		}
		if !f.undecoded(path) {
			problems = append(problems, f.locate(e, path))
		}
	}
	return problems.orNil()
}

// undecoded reports whether an error of the field at path is only a consequence of a value that could not be decoded:
// of the field itself, of a section that contains it, or of the syncPeriod that a minSyncPeriod is compared with.
func (f *File) undecoded(path string) bool {
	compared := path
	if section, found := strings.CutSuffix(path, "minSyncPeriod"); found {
		compared = section + "syncPeriod"
	}
	return slices.ContainsFunc(f.wrong, func(p Problem) bool {
		rest, found := strings.CutPrefix(path, p.Field)
		return p.Field == compared || found && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// locate returns the line of a field, or of the section where it is missing.
func (f *File) locate(e *field.Error, path string) Problem {
	p := Problem{File: f.Name, Field: path, Detail: e.ErrorBody()}
	if line, found := f.doc.Find(path); found {
		p.Line = line
	}
	return p
}
