package inspect

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// Printer prints the objects of the API as text.
type Printer struct {
	// Width is that of the terminal in columns; 0 wraps nothing, as for a pipe.
	Width int
	// Wide prints more columns.
	Wide bool
	// Namespaces prints a column with the namespace.
	Namespaces bool
	// NoHeaders prints no line with the names of the columns of a list.
	NoHeaders bool
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

// Reasons returns the reasons of problems, each once.
func Reasons(problems []v1alpha1.Problem) (reasons []string) {
	for _, problem := range problems {
		if !slices.Contains(reasons, problem.Reason) {
			reasons = append(reasons, problem.Reason)
		}
	}
	return reasons
}

// Ago formats how long ago a time was, as kubectl does.
func Ago(now, at time.Time) string {
	d := max(0, now.Sub(at))
	switch {
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
