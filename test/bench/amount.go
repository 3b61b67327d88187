//go:build linux

package main

import (
	"cmp"
	"fmt"
	"strconv"
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

// amount is the default amount of measurements for a mode. details is the largest number of Services for which
// established traffic, idle cost and rolling updates are measured: they depend little on the size of the cluster.
type amount struct {
	sizes, rates           string
	changes, pods, details int
	churn, resting         time.Duration
}

// mostDefaults is the largest number of Services for which the default settings are measured.
const mostDefaults = 1000

// within returns the default time limit without peers. Measurements that exceed it are skipped and listed in the output.
func within(quick bool) time.Duration {
	if quick {
		return 200 * time.Second // plus half a minute to compile
	}
	return 22 * time.Minute // plus three minutes for the stages alone: make bench
}

// amountOf returns the default amount for a mode, chosen so that both modes fit into the time limit. In iptables mode the time of a
// change grows with the cluster, so a rate of a thousand changes a second would not be useful. The idle cost is measured for as
// long as the default syncPeriod, with which Kubernetes' kube-proxy checks that its iptables rules exist; a quick run may miss that.
func amountOf(mode string, quick bool) amount {
	const large = "1000x2,10000x2,5000x50,45000x1"
	switch {
	case quick && mode == "nftables":
		return amount{sizes: "1000x2,5000x50", rates: "100", changes: 50, churn: 5 * time.Second, pods: 200, resting: 4 * time.Second, details: 1000}
	case quick:
		return amount{sizes: "1000x2", rates: "100", changes: 25, churn: 5 * time.Second, pods: 200, resting: 4 * time.Second, details: 1000}
	case mode == "nftables":
		return amount{sizes: large, rates: "10,100,1000", changes: 60, churn: 30 * time.Second, pods: 1000, resting: 30 * time.Second, details: 10_000}
	}
	return amount{sizes: large, rates: "10,100", changes: 50, churn: 5 * time.Second, pods: 1000, resting: 30 * time.Second, details: 10_000}
}

// String describes the amount.
func (a amount) String() string {
	churn := "no churn"
	if a.rates != "none" {
		churn = fmt.Sprintf("churn of %s changes a second for %v each", strings.ReplaceAll(a.rates, ",", ", "), a.churn)
	}
	return fmt.Sprintf("%s; %d changes of each kind; %s; with up to %d Services: established traffic, a rolling update of %d pods, idle for %v; with up to %d: default settings",
		strings.ReplaceAll(a.sizes, ",", ", "), a.changes, churn, a.details, a.pods, a.resting, mostDefaults)
}

// or replaces the defaults with the values of the command line.
func (a amount) or(o amount) amount {
	return amount{
		sizes: cmp.Or(o.sizes, a.sizes), rates: cmp.Or(o.rates, a.rates), changes: cmp.Or(o.changes, a.changes), churn: cmp.Or(o.churn, a.churn),
		pods: cmp.Or(o.pods, a.pods), resting: cmp.Or(o.resting, a.resting), details: cmp.Or(o.details, a.details),
	}
}

// of converts an amount to a plan.
func (a amount) of(name string) (*mode, error) {
	m := &mode{name: name, amount: a, plan: plan{
		changes: a.changes, churn: a.churn, pods: a.pods, resting: a.resting, details: a.details,
	}}
	for _, text := range list(a.sizes) {
		size, err := synthetic.ParseSize(text)
		if err != nil {
			return nil, err
		}
		m.sizes = append(m.sizes, size)
	}
	for _, text := range list(a.rates) {
		if text == "none" {
			continue
		}
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return nil, fmt.Errorf("-churn-rates: %q is not a positive number", text)
		}
		m.plan.rates = append(m.plan.rates, rate)
	}
	if a.changes < 1 || a.churn < time.Second || a.pods < 1 || a.resting < time.Second {
		return nil, fmt.Errorf("-changes and -pods must be at least 1, -churn and -idle at least 1s")
	}
	return m, nil
}
