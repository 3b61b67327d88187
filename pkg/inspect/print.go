package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Printer shows the objects of the API as text, which a terminal can print.
type Printer struct {
	// Width is that of the terminal in columns; 0 wraps nothing, as for a pipe.
	Width int
	// Wide shows more columns.
	Wide bool
	// Namespaces shows a column with the namespace.
	Namespaces bool
	// NoHeaders shows no line with the names of the columns of a list.
	NoHeaders bool
}

// Problems shows what is wrong with the proxy as a whole, and what it waits for although it serves.
func (Printer) Problems(info *v1alpha1.Info) (text string) {
	for _, wait := range info.Waiting {
		text += "Warning: the proxy waits for " + terminal.Printable(wait) + "\n"
	}
	for _, problem := range info.Problems {
		text += "Warning: " + problem.Reason + ": " + terminal.Printable(problem.Message) + "\n"
	}
	return text
}

// maxPorts is the number of ports that a row of the list names, and of addresses in a column.
const maxPorts = 3

// few shortens the texts of a cell: to the first few, or to one on a narrow terminal.
func (p Printer) few(texts []string) string {
	limit := maxPorts
	if terminal.Narrow(p.Width) {
		limit = 1
	}
	if more := len(texts) - limit; more > 0 {
		texts = append(slices.Clip(texts[:limit]), fmt.Sprintf("+%d", more))
	}
	return cmp.Or(strings.Join(texts, ","), "<none>") // as kubectl does
}

// number formats a count that may be unknown.
func number[T any](n *T) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
