package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestRenderDiffExitCodes checks that a difference decides the exit code of "render --diff", and that a failed sync is reported anyway.
func TestRenderDiffExitCodes(t *testing.T) {
	for _, test := range []struct {
		differs bool
		failed  string
		code    int
	}{{false, "", 0}, {false, "busy", app.ExitFailure}, {true, "", exitDiffers}, {true, "busy", exitDiffers}} {
		answers := map[string]any{
			"/info":    v1alpha1.Info{TypeMeta: v1alpha1.Meta(v1alpha1.KindInfo), Sync: &v1alpha1.Sync{Families: []v1alpha1.FamilySync{{Family: "IPv4", Error: test.failed}}}},
			"/repairs": v1alpha1.RepairList{TypeMeta: v1alpha1.Meta(v1alpha1.KindRepairList)},
		}
		comparison := v1alpha1.Comparison{TypeMeta: v1alpha1.Meta(v1alpha1.KindComparison), Mode: "nftables"}
		if test.differs {
			comparison.Items = []v1alpha1.Difference{{Family: "IPv4", Object: "set a", Missing: []string{"b"}}}
		}
		answers["/comparison"] = comparison
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answers[strings.TrimPrefix(r.URL.Path, v1alpha1.Path)])
		}))
		var out, errs bytes.Buffer
		code := Run([]string{"render", "--diff", "--server", server.URL}, &out, &errs)
		server.Close()
		if code != test.code || strings.Contains(errs.String(), "busy") != (test.failed != "") {
			t.Errorf("%+v: exit code %d\n%s%s", test, code, &out, &errs)
		}
	}
}
