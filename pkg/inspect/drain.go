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

const (
	// drainInterval is the least time between two counts; it is at least drainRest times as long as a count took, which bounds what a
	// large conntrack table costs.
	drainInterval = time.Second
	drainRest     = 4
)

// clearLine moves the cursor of a terminal to the begin of its line and clears it.
const clearLine = "\r\x1b[K"

// Drain waits until no selected connection is open.
type Drain struct {
	// Count counts the connections.
	Count func(ctx context.Context) (*v1alpha1.OpenConnections, error)
	// Timeout bounds the wait; 0 counts once.
	Timeout time.Duration
	// Out gets the progress: one line that changes if it is a Terminal, else a line for each change.
	Out      io.Writer
	Terminal bool
}

// Run waits, and returns the last count, or its error. Only the first count must not fail: the proxy may restart meanwhile.
func (d Drain) Run(ctx context.Context) (*v1alpha1.OpenConnections, error) {
	began, shown := time.Now(), ""
	for first := true; ; first = false {
		asked := time.Now()
		open, err := d.Count(ctx)
		var text string
		switch {
		case err != nil && first:
			return nil, err
		case err != nil:
			text = err.Error()
		default:
			text = drainText(open)
		}
		left := d.Timeout - time.Since(began)
		if err == nil && open.Connections == 0 || left <= 0 || ctx.Err() != nil {
			if shown != "" && d.Terminal {
				_, _ = fmt.Fprint(d.Out, clearLine)
			}
			return open, err
		}
		d.progress(text, shown, time.Since(began))
		shown = text
		select {
		case <-ctx.Done():
		case <-time.After(min(left, max(drainInterval, drainRest*time.Since(asked)))):
		}
	}
}

// progress shows a text. A failure to do so does not end the wait.
func (d Drain) progress(text, shown string, after time.Duration) {
	text = terminal.Printable(text)
	switch after = after.Round(time.Second); {
	case d.Terminal:
		_, _ = fmt.Fprintf(d.Out, "%s%s, %s of %s", clearLine, text, after, d.Timeout)
	case text != shown:
		_, _ = fmt.Fprintf(d.Out, "%s: %s\n", after, text)
	}
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

// PrintOpen prints open connections.
func (p Printer) PrintOpen(out io.Writer, open *v1alpha1.OpenConnections) error {
	text := drainText(open)
	if open.NodeDraining {
		text += "; this Node is being removed: load balancers get 503 from /healthz"
	}
	if _, err := fmt.Fprintln(out, terminal.Wrap(text, p.Width)); err != nil || len(open.Items) == 0 {
		return err
	}
	t := &table{width: p.Width}
	t.add("NAMESPACE", "NAME", "ENDPOINT", "CONNS", "STATE")
	for _, item := range open.Items[:min(maxOpen, len(open.Items))] {
		t.add(terminal.Printable(item.Namespace), terminal.Printable(item.Name), item.Endpoint+"/"+item.Protocol, strconv.Itoa(item.Connections), status.Phase(item.State))
	}
	if err := t.print(out); err != nil {
		return err
	}
	if more := len(open.Items) - maxOpen + open.EndpointsNotListed; more > 0 {
		_, err := fmt.Fprintf(out, "and %s with fewer (-o json)\n", terminal.Count(more, "endpoint"))
		return err
	}
	return nil
}
