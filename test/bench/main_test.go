//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// TestUnstarted skips what a program cannot start with in time, and only that.
func TestUnstarted(t *testing.T) {
	all, m := unstarted{}, &mode{name: "nftables"}
	size := func(services int) synthetic.Size { return synthetic.Size{Services: services, Endpoints: 2} }
	run := newRun("slow", m.name, size(5000))
	run.note("cold start: not completed in time")
	all.note("slow", size(5000), run)
	failed := newRun("broken", m.name, size(5000))
	failed.Failed = "cold start: exited"
	all.note("broken", size(5000), failed)
	fast := newRun("fast", m.name, size(5000))
	fast.add(coldStart, "ms", 1)
	all.note("fast", size(5000), fast)
	for _, test := range []struct {
		program  string
		services int
		skipped  bool
	}{{"slow", 45000, true}, {"slow", 5000, true}, {"slow", 1000, false}, {"broken", 45000, false}, {"fast", 45000, false}} {
		skipped := all.skip(test.program, m, size(test.services))
		if (skipped != nil) != test.skipped || skipped != nil && len(skipped.Notes) != 1 {
			t.Errorf("%s with %d Services: %+v", test.program, test.services, skipped)
		}
	}
}

// TestParse checks that flags replace only their own defaults, and that those without an effect are rejected.
func TestParse(t *testing.T) {
	o, err := parse(strings.Fields("-proxy a -peer b,c -proxy-mode iptables -sizes 1000x2,5000x50 -churn-rates none -idle 7s"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.programs, " "); got != "a b c" {
		t.Errorf("the programs are %q", got)
	}
	if len(o.modes) != 1 || o.modes[0].name != "iptables" || len(o.modes[0].sizes) != 2 {
		t.Fatalf("the modes are %+v", o.modes)
	}
	usual := amountOf("iptables", false)
	if p := o.modes[0].plan; len(p.rates) > 0 || p.resting != 7*time.Second || p.changes != usual.changes || p.pods != usual.pods {
		t.Errorf("the plan is %+v", p)
	}
	if o.within != within(false) || o.starts != 0 {
		t.Errorf("the time limit is %v, with %d starts", o.within, o.starts)
	}
	for args, want := range map[string]string{
		"more":                     `unexpected arguments ["more"]`,
		"-sizes 1000":              "1000x2",
		"-churn-rates 10,0":        `-churn-rates: "0" is not a positive number`,
		"-churn-rates 10,5x":       `-churn-rates: "5x" is not a positive number`,
		"-idle 1ms":                "-churn and -idle at least 1s",
		"-changes -1":              "-changes and -pods must be at least 1",
		"-profiles /tmp":           "-profiles needs it",
		"-starts -1":               "-starts must be at least 1",
		"-starts 2 -profiles /tmp": "",
	} {
		_, err := parse(strings.Fields(args))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", args, err, want)
		}
	}
}
