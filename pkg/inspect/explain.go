package inspect

import (
	"cmp"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Explanation shows the decisions about a connection, step by step, and the results of real ones.
func (p Printer) Explanation(e *v1alpha1.Explanation) string {
	t := &terminal.Table{Width: p.Width}
	t.Add("From:", fromText(e))
	t.Add("To:", e.To+"/"+e.Protocol)
	for _, step := range e.Steps {
		t.Add("  "+step.Subject, step.Text)
	}
	t.Add("Verdict:", verdictText(e))
	if e.Trial == nil {
		return t.String()
	}
	return t.String() + trialText(e.Trial)
}

func fromText(e *v1alpha1.Explanation) string {
	if e.From == e.Source {
		return e.Source
	}
	return e.From + " (" + e.Source + ")"
}

func verdictText(e *v1alpha1.Explanation) string {
	switch e.Verdict {
	case v1alpha1.VerdictBalance:
		seen := e.Source
		if e.Masqueraded {
			seen = "an address of this node"
		}
		if len(e.Endpoints) == 1 {
			return fmt.Sprintf("sent to %s, which sees %s as the source", e.Endpoints[0], seen)
		}
		if e.Hairpin {
			seen += " (or an address of this node, if it is the source itself)"
		}
		return fmt.Sprintf("sent to one of %d endpoints %s, which sees %s as the source", len(e.Endpoints), cmp.Or(e.Picked, "with equal probability"), seen)
	case v1alpha1.VerdictReject:
		return "rejected: " + e.Reason
	case v1alpha1.VerdictDrop:
		return "dropped: " + e.Reason
	case v1alpha1.VerdictPass:
		return "left alone: " + e.Reason
	default:
		return e.Verdict + ": " + e.Reason
	}
}
