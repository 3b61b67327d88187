package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// The libraries that only some packages may import are rules of depguard in .golangci.yml.

// row lists the packages of this module that one part of the tree may import. A pattern is a folder, in which * matches
// one name and a final /... everything below; a package may always import the packages below its own match.
type row struct {
	packages string
	imports  []string
}

// rows is the import table. The first row that matches a package applies; a package without a row is an error, so that
// every new folder gets a row. Packages that read the plan may import cluster too, because a plan uses its names, families
// and protocols.
var rows = []row{
	// The wiring: of the proxy, which imports no readers of a running one, and of the commands; and the packages that only it may import.
	{"cmd/*/app", []string{"pkg/apis/...", "pkg/check", "pkg/features", "pkg/kernel/...", "pkg/packets", "pkg/proxy/..."}},
	{"cmd/...", []string{"pkg/...", "cmd/..."}},
	{"pkg/apis/config/...", []string{"pkg/logonce", "pkg/userfile"}},
	{"pkg/apis/status/...", nil},
	{"pkg/features/...", nil},
	{"pkg/check", append([]string{"pkg/apis/status/...", "pkg/apiclient", "pkg/kernel/..."}, observed...)},
	{"pkg/findings", []string{"pkg/apiclient", "pkg/apis/status/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/source", "pkg/proxy/source/manifests", "pkg/terminal"}},

	// The reader of files that users name, and of the documents in them, independent of their content.
	{"pkg/userfile", nil},

	// Clients of an API server.
	{"pkg/apiclient", nil},

	// When to log a condition that lasts: everything that runs for long may use it.
	{"pkg/logonce", nil},

	// The two ends: doors import no other package of ours except the client of nf_tables, netif and host, sources fill a snapshot.
	{"pkg/kernel/internal/...", nil},
	{"pkg/kernel/nf", []string{"pkg/kernel/host", "pkg/kernel/internal/netlink", "pkg/kernel/nf/nftest"}},
	{"pkg/kernel/netif", []string{"pkg/kernel/host"}},
	{"pkg/kernel/ipvs", []string{"pkg/kernel/netif"}},
	{"pkg/kernel/*/...", []string{"pkg/kernel/internal/...", "pkg/kernel/nf/..."}},
	{"pkg/proxy/source", []string{"pkg/proxy/cluster", "pkg/logonce"}},
	{"pkg/proxy/source/manifests/...", []string{"pkg/proxy/cluster", "pkg/proxy/source", "pkg/logonce", "pkg/userfile"}},
	{"pkg/proxy/source/apiserver", []string{"pkg/apiclient", "pkg/proxy/cluster", "pkg/proxy/source", "pkg/logonce"}},
	{"pkg/proxy/source/*/...", []string{"pkg/proxy/cluster", "pkg/proxy/source", "pkg/logonce"}},

	// The pipeline: each stage imports the previous one.
	{"pkg/proxy/cluster/...", nil},
	{"pkg/proxy/plan/...", []string{"pkg/proxy/cluster"}},
	{"pkg/proxy/backend", []string{"pkg/proxy/cluster", "pkg/proxy/plan"}},
	{"pkg/proxy/backend/keeper", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/kernel/nf", "pkg/kernel/host"}},
	{"pkg/proxy/backend/nftables/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/backend/keeper", "pkg/kernel/nft/...", "pkg/kernel/nf", "pkg/logonce"}},
	{"pkg/proxy/backend/iptables/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/backend/keeper", "pkg/kernel/ipt/...", "pkg/kernel/nf", "pkg/kernel/host"}},
	{"pkg/proxy/backend/backendtest/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/source/manifests", "test/..."}},

	// Removal of what earlier modes left behind.
	{"pkg/proxy/backend/ipvs", []string{"pkg/proxy/cluster", "pkg/proxy/backend", "pkg/kernel/ipvs"}},

	// The common part of observers that serve HTTP.
	{"pkg/proxy/serve/...", []string{"pkg/apis/status/...", "pkg/logonce"}},

	// The observers: they import the types that the loop passes to them, and at most their own door.
	{"pkg/proxy/health/...", observed},
	{"pkg/proxy/conntrack/...", append([]string{"pkg/kernel/conntrack/..."}, observed...)},
	{"pkg/proxy/localhost/...", observed},
	{"pkg/proxy/metrics/...", observed},
	{"pkg/proxy/node/...", append([]string{"pkg/kernel/host/..."}, observed...)},
	{"pkg/proxy/takeover/...", append([]string{"pkg/kernel/netlock"}, observed...)},
	{"pkg/proxy/view/...", append([]string{"pkg/apis/status/...", "pkg/status"}, observed...)},

	// What a proxy tells users, in its log and through the API server.
	{"pkg/proxy/announce", append([]string{"pkg/apiclient"}, observed...)},

	// The loop: it imports no backend, door or observer, and only the common part of the sources.
	{"pkg/proxy", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/source", "pkg/logonce"}},

	// What a proxy does with a plan, as objects and in words: the server of a running proxy and the commands import it, and neither
	// imports the other.
	{"pkg/status", []string{"pkg/apis/status/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend"}},

	// The readers of a running proxy, or of objects without one, for the commands.
	{"pkg/inspect", []string{"pkg/apiclient", "pkg/apis/status/...", "pkg/status", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/source", "pkg/terminal"}},

	// What became of packets, for a command and the canary of a running proxy.
	{"pkg/packets", []string{"pkg/apis/status/...", "pkg/kernel/nft/trace", "pkg/proxy/cluster", "pkg/status", "pkg/terminal"}},

	// The proxies of all nodes, asked through the API server.
	{"pkg/fleet", []string{"pkg/apiclient", "pkg/apis/status/...", "pkg/inspect", "pkg/status", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/terminal"}},

	// How texts are shown on a terminal.
	{"pkg/terminal", nil},

	// Not part of the program.
	{"test/arch/...", nil},
	{"test/netns/...", nil},
	{"test/...", []string{"pkg/..."}},
	{"build/...", []string{"pkg/apis/..."}},
}

// observed lists what an observer may import: the loop's Observer, the types of its arguments, and the helpers.
var observed = []string{"pkg/proxy", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/serve", "pkg/logonce"}

// testImports lists what the _test.go files of any package may import in addition to its row: they build the input of the
// tested stage, and use the tools below test/.
var testImports = []string{"test/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend/backendtest/...", "pkg/proxy/source/manifests"}

// rowOf returns the row of a package; nil if it has none.
func rowOf(dir string) *row {
	for _, r := range rows {
		if _, ok := match(r.packages, dir); ok {
			return &r
		}
	}
	return nil
}

// forbidden returns why the package in dir, which has a row, may not import our package in target, or "". Tests may import more.
func forbidden(dir, target string, test bool) string {
	r := rowOf(dir)
	own, _ := match(r.packages, dir)
	below := strings.HasSuffix(r.packages, "/...") && strings.HasPrefix(target, own+"/")
	switch {
	case !test && isForTests(target) && !isForTests(dir):
		return target + " is for tests"
	case target == own, target == dir, below, matchAny(r.imports, target), test && matchAny(testImports, target):
		return ""
	}
	return fmt.Sprintf("%s may not import %s, only %q (test/arch/imports.go): move the code, or let the caller pass a value or a function",
		r.packages, target, r.imports)
}

// isForTests reports whether a package is for tests only, and so never part of the program: a fake or a suite, which has the name of
// its folder's package with test behind it, or one below test/.
func isForTests(dir string) bool {
	return path.Base(dir) == path.Base(path.Dir(dir))+"test" || strings.HasPrefix(dir, "test/")
}

// match matches a folder against a pattern and returns the part of the folder that the pattern matches without a final
// /... .
func match(pattern, dir string) (own string, ok bool) {
	pattern, below := strings.CutSuffix(pattern, "/...")
	want, have := strings.Split(pattern, "/"), strings.Split(dir, "/")
	if len(have) < len(want) || len(have) > len(want) && !below {
		return "", false
	}
	for i := range want {
		if want[i] != "*" && want[i] != have[i] {
			return "", false
		}
	}
	return strings.Join(have[:len(want)], "/"), true
}

// matchAny reports whether dir matches one of the patterns.
func matchAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { _, ok := match(pattern, dir); return ok })
}
