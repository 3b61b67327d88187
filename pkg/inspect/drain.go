package inspect

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// drainRest makes large conntrack tables be counted less often.
const drainRest = 4

// Drain waits until no selected connection is open.
type Drain struct {
	// Count counts the connections.
	Count func(ctx context.Context) (*v1alpha1.OpenConnections, error)
	// Timeout bounds the wait; 0 counts once.
	Timeout time.Duration
	// Progress shows the last count. If it has no terminal, Out gets a line for each change.
	Progress terminal.Progress
	Out      io.Writer
}

// Run waits, and returns the last count, and the error of a later one that failed.
func (d Drain) Run(ctx context.Context) (*v1alpha1.OpenConnections, error) {
	shown := ""
	defer d.Progress.Clear()
	return Wait[*v1alpha1.OpenConnections]{
		Ask: d.Count, Done: func(open *v1alpha1.OpenConnections) bool { return open.Connections == 0 }, Timeout: d.Timeout, Rest: drainRest,
		Show: func(open *v1alpha1.OpenConnections, err error, after time.Duration) {
			after = after.Round(time.Second)
			var text string
			if err != nil {
				text = err.Error()
			} else {
				text = drainText(open)
			}
			d.Progress.Show("%s, %s of %s", text, after, d.Timeout)
			if d.Progress.Out == nil && text != shown {
				fmt.Fprintf(d.Out, "%s: %s\n", after, terminal.Printable(text))
				shown = text
			}
		},
	}.Run(ctx)
}

// drainText sums up the connections.
func drainText(open *v1alpha1.OpenConnections) string {
	if open.Connections == 0 {
		return "no connection is open"
	}
	services := map[string]bool{}
	for _, item := range open.Items {
		services[item.Namespace+"/"+item.Name] = true
	}
	text := terminal.Count(open.Connections, "open connection") + " to " + terminal.Count(len(open.Items)+open.EndpointsNotListed, "endpoint")
	if len(services) > 1 {
		text += " of " + terminal.Count(len(services), "Service")
	}
	return text
}

// maxOpen is how many endpoints are printed.
const maxOpen = 20

// OpenConnections shows open connections.
func (p Printer) OpenConnections(open *v1alpha1.OpenConnections) string {
	text := drainText(open)
	if open.NodeDraining {
		text += "; this Node is being removed: load balancers get 503 from /healthz"
	}
	text = terminal.Wrap(text, p.Width) + "\n"
	if len(open.Items) == 0 {
		return text
	}
	t := &terminal.Table{Width: p.Width}
	t.Add("NAMESPACE", "NAME", "ENDPOINT", "CONNS", "STATE")
	for _, item := range open.Items[:min(maxOpen, len(open.Items))] {
		t.Add(item.Namespace, item.Name, item.Endpoint+"/"+item.Protocol, strconv.Itoa(item.Connections), status.Phase(item.State))
	}
	text += t.String()
	if more := len(open.Items) - maxOpen + open.EndpointsNotListed; more > 0 {
		text += "and " + terminal.Count(more, "endpoint") + " with fewer (-o json)\n"
	}
	return text
}
