package view

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// The tones of states and reasons: classes of the style.
const (
	good = "good"
	warn = "warn"
	bad  = "bad"
)

// unknown stands for a number that is not known.
const unknown = "–"

// functions are those of the templates.
func functions() map[string]any {
	return map[string]any{
		"count": count, "counter": counterText, "seconds": seconds, "where": status.Where, "reasons": status.Reasons, "tone": toneOf,
		"address": status.Address, "addresses": addresses, "ports": ports, "state": status.EndpointState, "why": why,
		"some":   func(texts []string) some { return cut(texts, 5) },
		"date":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"clock":  func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"minute": func(t time.Time) string { return t.UTC().Format("15:04") },
		"joined": func(texts []string) string { return strings.Join(texts, ", ") },
		"plural": func(n int, words ...string) string { return plural(n, strings.Join(words, " ")) },
	}
}

// toneOf returns the tone of a problem's reason, of a verdict, or of an endpoint's state: warn for what may be intended.
func toneOf(word string) string {
	switch word {
	case v1alpha1.VerdictBalance, "ready":
		return good
	case plan.ProblemNoLocalEndpoints, plan.ProblemExternalIPsNotServed, plan.ProblemFamilyNotServed, plan.ProblemStatusNotServed, plan.ProblemClusterCIDR, "terminating", "terminated":
		return warn
	default:
		return bad
	}
}

// some are the first texts of a list.
type some struct {
	First []string
	More  int
}

// cut returns the first texts and the number of the others.
func cut(texts []string, limit int) some {
	return some{texts[:min(len(texts), limit)], max(0, len(texts)-limit)}
}

// addresses returns what a row shows of a Service's addresses.
func addresses(s *v1alpha1.Service) some {
	return cut(slices.Concat(s.ClusterIPs, s.LoadBalancerIPs, s.ExternalIPs), 3)
}

// ports returns what a row shows of a Service's ports.
func ports(s *v1alpha1.Service) some { return cut(status.Ports(s), 2) }

// why returns the reasons why an endpoint is not used, each once.
func why(left []v1alpha1.LeftOut) string {
	var texts []string
	for _, l := range left {
		if !slices.Contains(texts, l.Message) {
			texts = append(texts, l.Message)
		}
	}
	return strings.Join(texts, "; ")
}

// number formats a number with commas; one decimal only if there are any.
func number(v float64) string {
	if v != math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func count(n int) string { return number(float64(n)) }

// counterText formats a counter that may be unknown.
func counterText(n *uint64) string {
	if n == nil {
		return unknown
	}
	return number(float64(*n))
}

// perSecond formats a rate.
func perSecond(v float64) string {
	if v >= 100 {
		return number(math.Round(v))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// plural returns "1 sync", "2,000 syncs".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return count(n) + " " + noun
}

// seconds formats a duration in seconds. Its unit does not break off.
func seconds(s float64) string {
	switch d := time.Duration(s * float64(time.Second)); {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return digits(s*1e6) + "\u00a0µs"
	case d < time.Second:
		return digits(s*1e3) + "\u00a0ms"
	default:
		return digits(s) + "\u00a0s"
	}
}

// digits formats a number with one decimal below 10, and without trailing zeros.
func digits(v float64) string {
	if v >= 10 {
		return number(math.Round(v))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

// serviceURL returns the address of a Service's page.
func serviceURL(of cluster.ServiceName) string {
	return "/services/" + url.PathEscape(of.Namespace) + "/" + url.PathEscape(of.Name)
}
