package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/scheme"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha1"
)

// MaxSize is the size in bytes beyond which a file is refused unread. A ConfigMap cannot hold more.
const MaxSize = 1 << 20

// File is a configuration file that could be decoded. Whether its values are valid is for Check to say.
type File struct {
	// Name is the path it was read from.
	Name string
	// Version is v1alpha1 or v1alpha2.
	Version string
	// Config is what it says, with all defaults filled in.
	Config *config.KubeProxyConfiguration
	// Warnings are unknown and duplicate fields, which had no effect. With configHardFail they are errors of Check.
	Warnings Problems
	// Dropped are settings that the internal form has no place for.
	Dropped []config.Loss

	lines   map[string]int  // path of each field in the file to its line
	invalid field.ErrorList // values of fields that the internal form has no place for
}

// Read reads a file. The error is of type Problems if the file's content is to blame.
func Read(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, Problems{{File: name, Detail: "is a directory; name a file in it"}}
	}
	return ReadFrom(name, f)
}

// ReadFrom reads a file from r; name is for messages.
func ReadFrom(name string, r io.Reader) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, Problems{{File: name, Detail: "larger than 1 MiB, which no configuration is; is it the right file?"}}
	}
	return Parse(name, data)
}

// Parse decodes the content of a file; name is for messages. The error is of type Problems and tells all of them.
func Parse(name string, data []byte) (*File, error) {
	if json.Valid(data) {
		// YAML allows no tabs between tokens and JSON does; in JSON they are never anything else.
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	root, problem := parseTree(name, data)
	if problem != nil {
		return nil, Problems{*problem}
	}
	gv, problem := version(name, root)
	if problem != nil {
		return nil, Problems{*problem}
	}

	s := scheme.New()
	versioned, err := s.New(gv.WithKind(config.Kind))
	if err != nil {
		return nil, Problems{{File: name, Detail: err.Error()}}
	}
	walk := walkTree(name, gv.Version, root, versioned)
	if len(walk.wrong) > 0 {
		return nil, append(walk.wrong, walk.strict...).sorted()
	}
	file := &File{Name: name, Version: gv.Version, Config: &config.KubeProxyConfiguration{}, Warnings: walk.strict.sorted(), lines: walk.lines}
	if err := file.decode(s, data, versioned); err != nil {
		return nil, Problems{{File: name, Detail: err.Error()}}
	}
	return file, nil
}

// decode fills versioned and the file's Config from data.
func (f *File) decode(s *runtime.Scheme, data []byte, versioned runtime.Object) error {
	asJSON, err := sigsyaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, versioned); err != nil {
		return err
	}
	if old, ok := versioned.(*upstream.KubeProxyConfiguration); ok {
		f.Dropped = v1alpha1.Dropped(old)
		f.invalid = v1alpha1.Validate(old)
	}
	s.Default(versioned)
	return s.Convert(versioned, f.Config, nil)
}

// parseTree parses the one document of a file.
func parseTree(name string, data []byte) (*yaml.Node, *Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root *yaml.Node
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, syntaxProblem(name, err)
		}
		content := document.Content[0]
		if content.Kind == yaml.ScalarNode && content.Tag == "!!null" {
			continue
		}
		if root != nil {
			return nil, &Problem{File: name, Line: content.Line, Detail: "a second document begins here; a configuration is one document"}
		}
		root = content
	}
	switch {
	case root == nil:
		return nil, &Problem{File: name, Detail: "is empty; " + wanted()}
	case root.Kind != yaml.MappingNode:
		return nil, &Problem{File: name, Line: root.Line, Detail: fmt.Sprintf("is %s, not a set of fields; %s", describe(root), wanted())}
	}
	return root, nil
}

// syntaxProblem takes the line out of the parser's words.
func syntaxProblem(name string, err error) *Problem {
	p := &Problem{File: name, Detail: "is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := regexp.MustCompile(`^yaml: line (\d+): (.*)`).FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Detail = "is not YAML: " + m[2]
	}
	return p
}

// version reads apiVersion and kind.
func version(name string, root *yaml.Node) (schema.GroupVersion, *Problem) {
	apiVersion, apiLine := scalarField(root, "apiVersion")
	kind, kindLine := scalarField(root, "kind")
	gv, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case apiVersion == "":
		return gv, &Problem{File: name, Line: apiLine, Field: "apiVersion", Detail: "missing; " + wanted()}
	case kind == "":
		return gv, &Problem{File: name, Line: kindLine, Field: "kind", Detail: "missing; " + wanted()}
	case err != nil || gv.Group != config.GroupName || !slices.Contains(scheme.Versions(), gv.Version):
		return gv, &Problem{File: name, Line: apiLine, Field: "apiVersion", Detail: fmt.Sprintf("%q is not served; %s", apiVersion, wanted())}
	case kind != config.Kind:
		return gv, &Problem{File: name, Line: kindLine, Field: "kind", Detail: fmt.Sprintf("%q is not served; %s", kind, wanted())}
	}
	return gv, nil
}

// wanted names what a file must begin with.
func wanted() string {
	var versions []string
	for _, v := range scheme.Versions() {
		versions = append(versions, config.GroupName+"/"+v)
	}
	return fmt.Sprintf("want kind %s with apiVersion %s", config.Kind, strings.Join(versions, " or "))
}

// scalarField gives the value and the line of a field of a mapping.
func scalarField(mapping *yaml.Node, name string) (string, int) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if value := mapping.Content[i+1]; mapping.Content[i].Value == name && value.Kind == yaml.ScalarNode {
			return value.Value, value.Line
		}
	}
	return "", 0
}

// Check joins what validation says of Config with what only the file knows: lines, the names of its version, and with
// configHardFail its unknown and duplicate fields. The paths of errs are those of v1alpha2. It returns Problems, or nil.
func (f *File) Check(errs field.ErrorList) error {
	var problems Problems
	if f.Config.ConfigHardFail {
		problems = append(problems, f.Warnings...)
	}
	for _, e := range f.invalid {
		problems = append(problems, f.locate(e, e.Field))
	}
	for _, e := range errs {
		path := e.Field
		if f.Version == v1alpha1.Version {
			path = v1alpha1.Path(e.Field, f.Config.Mode)
		}
		problems = append(problems, f.locate(e, path))
	}
	return problems.orNil()
}

// locate gives the line of a field, or of the section that lacks it.
func (f *File) locate(e *field.Error, path string) Problem {
	p := Problem{File: f.Name, Field: path, Detail: e.ErrorBody()}
	for at := path; at != ""; {
		if line, ok := f.lines[at]; ok {
			p.Line = line
			break
		}
		cut := strings.LastIndexAny(at, ".[")
		at = at[:max(cut, 0)]
	}
	return p
}
