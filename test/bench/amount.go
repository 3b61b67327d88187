//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// mode is a proxy mode and the plan of its measurements.
type mode struct {
	name   string
	amount amount
	sizes  []synthetic.Size
	plan   plan
}

// amount is the default amount of measurements for a mode.
type amount struct {
	sizes, rates string
	changes      int
	churn        time.Duration
}

// within returns the default time limit without peers. Measurements that exceed it are skipped and listed in the output.
func within(quick bool) time.Duration {
	if quick {
		return 150 * time.Second // plus half a minute to compile
	}
	return 17 * time.Minute // plus three minutes for the stages alone: make bench
}

// amountOf returns the default amount for a mode, chosen so that both modes fit into the time limit. In iptables mode a
// change takes tenths of a second in large clusters, so a rate of a thousand changes a second would not be useful.
func amountOf(mode string, quick bool) amount {
	const large = "1000x2,10000x2,5000x50,45000x1"
	switch {
	case quick && mode == "nftables":
		return amount{sizes: "1000x2,5000x50", rates: "100", changes: 50, churn: 5 * time.Second}
	case quick:
		return amount{sizes: "1000x2", rates: "100", changes: 25, churn: 5 * time.Second}
	case mode == "nftables":
		return amount{sizes: large, rates: "10,100,1000", changes: 60, churn: 30 * time.Second}
	}
	return amount{sizes: large, rates: "10,100", changes: 50, churn: 5 * time.Second}
}

// String describes the amount.
func (a amount) String() string {
	churn := "no churn"
	if a.rates != "none" {
		churn = fmt.Sprintf("churn of %s changes a second for %v each", strings.ReplaceAll(a.rates, ",", ", "), a.churn)
	}
	return fmt.Sprintf("%s; %d changes of each kind; %s", strings.ReplaceAll(a.sizes, ",", ", "), a.changes, churn)
}

// or replaces the defaults with the values of the command line.
func (a amount) or(o amount) amount {
	return amount{sizes: orElse(o.sizes, a.sizes), rates: orElse(o.rates, a.rates), changes: orElse(o.changes, a.changes), churn: orElse(o.churn, a.churn)}
}

// of converts an amount to a plan.
func (a amount) of(name string, api synthetic.Options) (*mode, error) {
	m := &mode{name: name, amount: a, plan: plan{changes: a.changes, churn: a.churn, defaults: 1000, api: api}}
	for _, text := range list(a.sizes) {
		size, err := synthetic.ParseSize(text)
		if err != nil {
			return nil, err
		}
		m.sizes = append(m.sizes, size)
	}
	for _, text := range list(a.rates) {
		var rate int
		if text == "none" {
			continue
		}
		if _, err := fmt.Sscanf(text, "%d", &rate); err != nil || rate < 1 {
			return nil, fmt.Errorf("-churn-rates: %q is not a positive number", text)
		}
		m.plan.rates = append(m.plan.rates, rate)
	}
	if a.changes < 1 || a.churn < time.Second {
		return nil, fmt.Errorf("-changes must be at least 1, and -churn at least 1s")
	}
	return m, nil
}
