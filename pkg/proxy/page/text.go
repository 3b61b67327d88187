package page

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"time"
)

// functions are those of the template.
var functions = template.FuncMap{
	"count":   func(n int) string { return number(float64(n)) },
	"counter": counterText,
	"where":   where,
	"tone":    toneOf,
	"more":    func(noun string) string { return "more " + noun },
	"seconds": seconds,
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"minute":  func(t time.Time) string { return t.UTC().Format("15:04") },
	"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"plural":  plural,
}

// number formats a number with commas; decimals only if there are any.
func number(v float64) string {
	if v != math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	if v < 0 {
		return "-" + text
	}
	return text
}

// perSecond formats a rate.
func perSecond(v float64) string {
	if v >= 100 {
		return number(math.Round(v))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// plural returns "1 sync", "2 syncs".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", number(float64(n)), noun)
}

// serviceURL returns the address of a Service's page.
func serviceURL(namespace, name string) string {
	return "/services/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// counterText formats a counter that may be unknown.
func counterText(n *uint64) string {
	if n == nil {
		return "–"
	}
	return number(float64(*n))
}

// where formats an endpoint's location.
func where(location string) string {
	switch location {
	case "ThisNode":
		return "this node"
	case "OtherNode":
		return "another node"
	default:
		return "no node name"
	}
}
