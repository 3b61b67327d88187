package view

import (
	"bytes"
	"fmt"
	"html"
	"reflect"
	"strings"
	"text/template/parse"
)

// templates are written in a part of html/template's language: fields, if, range, template, and functions of at most three arguments.
// html/template itself may call any method by its name, so that the linker would keep the exported methods of all types: the
// program was 20 % larger with it (31.6 MB). A test executes these templates with it, too, and compares the pages.
type templates struct {
	trees map[string]*parse.Tree
	funcs map[string]any
}

// parseTemplates parses a file of templates; name is that of what is in no other one.
func parseTemplates(name, text string, funcs map[string]any) (*templates, error) {
	trees, err := parse.Parse(name, text, "", "", funcs)
	if err != nil {
		return nil, fmt.Errorf("parse the templates of the status page: %w", err)
	}
	return &templates{trees, funcs}, nil
}

// execute writes a template with its data.
func (t *templates) execute(out *bytes.Buffer, name string, data reflect.Value) {
	t.walk(out, t.trees[name].Root, data)
}

// walk writes a part of a template. Values are escaped for texts and for attributes in double quotes: they stand nowhere else.
func (t *templates) walk(out *bytes.Buffer, node parse.Node, dot reflect.Value) {
	switch n := node.(type) {
	case *parse.ListNode:
		for _, part := range n.Nodes {
			t.walk(out, part, dot)
		}
	case *parse.TextNode:
		out.Write(n.Text)
	case *parse.ActionNode:
		text := html.EscapeString(fmt.Sprint(t.pipe(n.Pipe, dot)))
		out.WriteString(strings.ReplaceAll(text, "\x00", "\uFFFD"))
	case *parse.TemplateNode:
		t.execute(out, n.Name, t.pipe(n.Pipe, dot))
	case *parse.IfNode:
		if v := t.pipe(n.Pipe, dot); v.IsValid() && !isEmpty(v) {
			t.walk(out, n.List, dot)
		} else if n.ElseList != nil {
			t.walk(out, n.ElseList, dot)
		}
	case *parse.RangeNode:
		items := t.pipe(n.Pipe, dot)
		for i := range items.Len() {
			t.walk(out, n.List, items.Index(i))
		}
		if items.Len() == 0 && n.ElseList != nil {
			t.walk(out, n.ElseList, dot)
		}
	default:
		panic(fmt.Sprintf("the status page has a template with %T", node)) // not reached: the tests execute all
	}
}

// isEmpty reports whether a value is zero, or has no elements.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}

// pipe evaluates a pipeline of one command: a value, or a function with its arguments.
func (t *templates) pipe(p *parse.PipeNode, dot reflect.Value) reflect.Value {
	args := p.Cmds[0].Args
	name, ok := args[0].(*parse.IdentifierNode)
	if !ok {
		return value(args[0], dot)
	}
	var values []reflect.Value
	for _, arg := range args[1:] {
		values = append(values, value(arg, dot))
	}
	return reflect.ValueOf(t.funcs[name.Ident]).Call(values)[0]
}

// value evaluates a field of a value, the value itself, or a string.
func value(node parse.Node, dot reflect.Value) reflect.Value {
	switch n := node.(type) {
	case *parse.FieldNode:
		for _, name := range n.Ident {
			dot = reflect.Indirect(dot).FieldByName(name)
		}
		return dot
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	default:
		return dot
	}
}
