package cluster

import "fmt"

// Problem describes a field of an object that cannot be used and was left out.
type Problem struct {
	// Kind and Object name the object: "Service", "default/web".
	Kind, Object string
	// Field is the path of the field in the API: "spec.ports[0].port".
	Field string
	Err   error
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s %s: %s: %v", p.Kind, p.Object, p.Field, p.Err)
}

func (p *Problem) Unwrap() error { return p.Err }

// maxProblems is how many fields of an object are reported one by one. What is reported is logged, and an object may have as
// many invalid fields as its author likes.
const maxProblems = 20

// problems collects the Problems of an object.
type problems struct {
	first []*Problem
	// more is the number of fields that are not reported one by one.
	more int
}

func (p *problems) add(field path, format string, args ...any) {
	if len(p.first) == maxProblems {
		p.more++
		return
	}
	p.first = append(p.first, &Problem{Field: field.String(), Err: fmt.Errorf(format, args...)})
}

func (p *problems) count() int { return len(p.first) + p.more }

// all returns the Problems. The last one counts those that are not reported one by one.
func (p *problems) all() []*Problem {
	if p.more == 0 {
		return p.first
	}
	return append(p.first, &Problem{Field: "others", Err: fmt.Errorf("%d more fields cannot be used", p.more)})
}

// path is a field's path in an object: list[index].name, or only one of the two parts. It is formatted only if there
// is a problem.
type path struct {
	list  string
	index int
	name  string
}

// field returns the path of a field of the list's element.
func (p path) field(name string) path {
	p.name = name
	return p
}

func (p path) String() string {
	switch {
	case p.list == "":
		return p.name
	case p.name == "":
		return fmt.Sprintf("%s[%d]", p.list, p.index)
	}
	return fmt.Sprintf("%s[%d].%s", p.list, p.index, p.name)
}
