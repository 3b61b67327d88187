package apiserver

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestVersion serves whatever the server's version is, and logs one line if it is not supported.
func TestVersion(t *testing.T) {
	tests := map[string]struct {
		version string
		lines   int
	}{
		"older":                     {"v1.33.9", 1},
		"the oldest":                {"v1.34.0", 0},
		"the oldest, a provider's":  {"v1.34.2-eks-113cf36", 0},
		"the newest":                {"v1.37.2+k3s1", 0},
		"newer, not released":       {"v1.38.0-alpha.1", 1},
		"another major version":     {"v2.0.0", 1},
		"none":                      {"main", 0},
		"forbidden or not answered": {"", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, func(f *fakeAPI) { f.release = test.version })
			api.put(service("a"), slice("a", 1))
			b := run(t, api, Options{LogVersion: true}).complete()
			b.want("a=1")
			b.until("a request for the version", func() bool { return api.count("version") == 1 })
			if test.lines > 0 {
				b.waitLog("This proxy was not tried with the API server's version", test.version, "1.34 to 1.37")
			}
			api.put(slice("a", 2))
			b.relisted(api.restart)
			b.want("a=2")
			b.stop()
			lines := slices.DeleteFunc(b.logged(), func(line string) bool { return !strings.Contains(line, "not tried") })
			if len(lines) != test.lines || api.count("version") != 1 {
				t.Errorf("%d requests, and the lines %q", api.count("version"), lines)
			}
		})
	}
}

// TestVersionHangs does not wait for the version: neither at the start nor at the end.
func TestVersionHangs(t *testing.T) {
	api := newFakeAPI(t, func(f *fakeAPI) { f.hangs = true })
	api.put(service("a"), slice("a", 1))
	b := run(t, api, Options{LogVersion: true}).complete()
	b.until("a request for the version", func() bool { return api.count("version") == 1 })
	api.put(slice("a", 2))
	b.want("a=2")
	b.stop()
}

// TestVersionIsDocumented compares the supported versions with those that the documentation and the chart name.
func TestVersionIsDocumented(t *testing.T) {
	for file, want := range map[string]string{
		"docs/compatibility.md":              "API servers " + oldestServer + " to " + newestServer + " are supported",
		"build/charts/kube-proxy/Chart.yaml": `kubeVersion: ">=` + oldestServer + `.0-0"`,
	} {
		text, err := os.ReadFile("../../../../" + file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q (%v)", file, want, err)
		}
	}
}
