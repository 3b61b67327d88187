package page

import (
	"fmt"
	"math"
	"net/url"
	"strconv"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

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
	case v1alpha1.LocationThisNode:
		return "this node"
	case v1alpha1.LocationOtherNode:
		return "another node"
	default:
		return "no node name"
	}
}
