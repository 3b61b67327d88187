// Package check checks, before a switch to this proxy, after it, and while it serves ([Canary]), whether a node has what the proxy needs. Each
// check is a row of a table, reads through a [Host] and an [API], and changes nothing.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Status is the outcome of a check.
type Status string

// The outcomes, the best first. Warn is what may be intended, or only lasts until the old proxy ends.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Result is one line of the outcome.
type Result struct {
	Status Status `json:"status"`
	// Group and Check name the row.
	Group string `json:"group"`
	Check string `json:"check"`
	// Message says what was found.
	Message string `json:"message"`
	// Fix says what to do; empty if Status is OK.
	Fix string `json:"fix,omitempty"`
}

// Stage is when a check is of interest.
type Stage uint8

// Before is before the switch, when another proxy may still run; After is when this one should serve. During is all the while it does: these
// checks are made by the proxy itself, of what its canary does not meet (--dataplane-canary).
const (
	Before Stage = 1 << iota
	After
	During
)

// Node is what the configuration says about the proxy of this node.
type Node struct {
	Name string
	// Mode is the proxy mode: nftables or iptables.
	Mode string
	// Families are those to be served.
	Families []cluster.Family
	// MetricsAddress and HealthzAddress are the addresses of the HTTP servers; empty is none.
	MetricsAddress, HealthzAddress string
	// LocalhostNodePorts is that the kernel has to route packets to node ports on 127.0.0.1.
	LocalhostNodePorts bool
}

// groups are the groups of checks, in the order of the output.
var groups = [...]string{"config", "kernel", "tools", "settings", "firewall", "proxies", "ports", "api", "proxy"}

// Groups returns the groups of checks, in the order of the output.
func Groups() []string { return slices.Clone(groups[:]) }

// row is a check.
type row struct {
	group, name string
	stages      Stage
	run         func(ctx context.Context, c *Checker) []Result
}

func ok(message string) []Result        { return []Result{{Status: OK, Message: message}} }
func warn(message, fix string) []Result { return []Result{{Status: Warn, Message: message, Fix: fix}} }
func fail(message, fix string) []Result { return []Result{{Status: Fail, Message: message, Fix: fix}} }

// or returns what was found, or if that is nothing, that all is well.
func or(found []Result, message string) []Result {
	if len(found) == 0 {
		return ok(message)
	}
	return found
}

// Checker checks a node.
type Checker struct {
	Stage Stage
	Node  Node
	Host  Host
	// API is the API server; nil if none is configured.
	API API
	// ConfigFile is the configuration file of the proxy, "" if there is none; ConfigError is why it cannot be used: then Node is
	// that of a proxy without a file.
	ConfigFile  string
	ConfigError error

	// asked is what the proxy has answered in this run; nil before it was asked.
	asked *string
}

// patience bounds the time of one check.
const patience = 30 * time.Second

// Run runs the checks of the stage, except those of the groups to skip.
func (c *Checker) Run(ctx context.Context, skip ...string) []Result {
	results := []Result{}
	c.asked = nil
	for _, r := range rows() {
		if r.stages&c.Stage == 0 || slices.Contains(skip, r.group) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, patience)
		for _, found := range r.run(limited, c) {
			found.Group, found.Check = r.group, r.name
			found.Message = oneLine(found.Message)
			results = append(results, found)
		}
		cancel()
	}
	return results
}

// oneLine joins the lines of a message, which are those of joined errors. A cause that several have comes once, after all that it prevents.
func oneLine(message string) string {
	var lines, causes []string
	for line := range strings.Lines(strings.TrimSpace(message)) {
		line = strings.TrimSuffix(line, "\n")
		at := max(strings.LastIndex(line, ": "), 0)
		what, cause := line[:at], line[at:]
		if i := slices.Index(causes, cause); i < 0 {
			lines, causes = append(lines, what), append(causes, cause)
		} else if !slices.Contains(strings.Split(lines[i], ", "), what) {
			lines[i] += ", " + what
		}
	}
	for i, cause := range causes {
		lines[i] += cause
	}
	return strings.Join(lines, "; ")
}

// Failed runs the checks of one group, and returns what is wrong and what to do.
func (c *Checker) Failed(ctx context.Context, group string) (failed []string) {
	others := slices.DeleteFunc(Groups(), func(g string) bool { return g == group })
	for _, result := range c.Run(ctx, others...) {
		if result.Status == Fail {
			failed = append(failed, fmt.Sprintf("%s (%s)", result.Message, strings.TrimSuffix(result.Fix, ".")))
		}
	}
	return failed
}

// configured reports whether the configuration file can be used.
func configured(_ context.Context, c *Checker) []Result {
	switch {
	case c.ConfigFile == "":
		return nil
	case c.ConfigError != nil:
		return fail(c.ConfigError.Error()+"; the checks are those of a proxy without a configuration file",
			"Correct the file; kube-proxy config validate checks it. A proxy that runs keeps its earlier configuration, and does not start again.")
	}
	return ok(c.ConfigFile + " is valid")
}

// Worst returns the worst status of results; OK if there are none.
func Worst(results []Result) Status {
	worst := OK
	for _, r := range results {
		if r.Status == Fail || r.Status == Warn && worst == OK {
			worst = r.Status
		}
	}
	return worst
}

// rows is the table of checks, in the order of the output.
func rows() []row {
	return []row{
		{"config", "file", Before | After, configured},
		{"kernel", "rules", Before, rules},
		{"kernel", "conntrack", Before | After | During, conntrack},
		{"tools", "versions", Before, tools},
		{"tools", "variants", Before | After, variants},
		{"settings", "forwarding", Before | After | During, forwarding},
		{"settings", "rp_filter", Before | After, reversePath},
		{"settings", "route_localnet", Before | After, localnet},
		{"settings", "writable", Before, writable},
		{"firewall", "forward", Before | After | During, forward},
		{"firewall", "input", Before | After, input},
		{"proxies", "lock", Before | After, lock},
		{"proxies", "modes", Before | After, modes},
		{"proxies", "processes", Before | After, processes},
		{"ports", "servers", Before, servers},
		{"ports", "healthCheckNodePorts", Before, healthCheckPorts},
		{"api", "rights", Before | After, rights},
		{"api", "node", Before | After, node},
		{"proxy", "health", After, health},
		{"proxy", "mode", After, mode},
		{"proxy", "rules", After | During, inForce},
		{"proxy", "inputs", After, inputs},
		{"proxy", "services", After, observed},
	}
}
