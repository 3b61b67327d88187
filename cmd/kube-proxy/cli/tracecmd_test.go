package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
)

// TestTraceUsage checks command lines that are refused before anything is read.
func TestTraceUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "nothing to trace: name a Service as NAMESPACE/NAME"},
		{[]string{"default/web", "default/shop"}, "accepts at most 1 arg"},
		{[]string{"default/web", "--from", "pods"}, `--from "pods" is neither a CIDR nor an address`},
		{[]string{"default/web", "--count", "0"}, "--count 0 is not between 1 and 1000"},
		{[]string{"default/web", "--count", "1001"}, "--count 1001 is not between 1 and 1000"},
		{[]string{"default/web", "--duration", "-1s"}, "--duration -1s is not between 0 and 1h0m0s"},
		{[]string{"default/web", "-o", "wide"}, `--output "wide" is not one of text, json, yaml`},
		{[]string{"default/web", "--server", "nowhere"}, `"nowhere" is not an address of a proxy`},
		{[]string{"[::ffff:10.96.0.10]:80"}, "ask for 10.96.0.10"},
	} {
		var out, errs bytes.Buffer
		code := Run(append([]string{"trace"}, test.args...), &out, &errs)
		if code != app.ExitUsage || !strings.Contains(errs.String(), test.want) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %s%s, want %q", test.args, code, &out, &errs, test.want)
		}
	}
}
