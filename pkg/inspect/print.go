package inspect

import (
	"fmt"
	"slices"
)

// Printer prints the objects of the API as text.
type Printer struct {
	// Width is that of the terminal in columns; 0 wraps nothing, as for a pipe.
	Width int
	// Wide prints more columns.
	Wide bool
	// Namespaces prints a column with the namespace.
	Namespaces bool
}

// maxPorts is the number of ports that a row of the list names, and of addresses in a column.
const maxPorts = 3

// few shortens the texts of a cell: to the first few, or to one on a narrow terminal.
func (p Printer) few(texts []string) string {
	limit := maxPorts
	if p.Width > 0 && p.Width < narrow {
		limit = 1
	}
	if more := len(texts) - limit; more > 0 {
		texts = append(slices.Clip(texts[:limit]), fmt.Sprintf("+%d", more))
	}
	return orNone(texts)
}
