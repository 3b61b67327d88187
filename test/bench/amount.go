//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// mode is one of the proxy's modes, and what is measured of it.
type mode struct {
	name   string
	amount amount
	sizes  []synthetic.Size
	plan   plan
}

// amount is how much is measured of a mode unless the command line says otherwise.
type amount struct {
	sizes, rates string
	changes      int
	churn        time.Duration
}

// within is how long all of it may take, apart from peers. What is not done by then is left out, and the output says so.
func within(quick bool) time.Duration {
	if quick {
		return 150 * time.Second // and half a minute to compile
	}
	return 17 * time.Minute // and three for the stages alone: make bench
}

// amountOf is chosen so that both modes fit. A change costs iptables some tenths of a second in large clusters, so that
// a thousand a second say nothing of it.
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

// String is for a person.
func (a amount) String() string {
	churn := "no churn"
	if a.rates != "none" {
		churn = fmt.Sprintf("churn of %s changes a second for %v each", strings.ReplaceAll(a.rates, ",", ", "), a.churn)
	}
	return fmt.Sprintf("%s; %d changes of each kind; %s", strings.ReplaceAll(a.sizes, ",", ", "), a.changes, churn)
}

// or takes what the command line says in place of the defaults.
func (a amount) or(o amount) amount {
	return amount{sizes: orElse(o.sizes, a.sizes), rates: orElse(o.rates, a.rates), changes: orElse(o.changes, a.changes), churn: orElse(o.churn, a.churn)}
}

// of makes an amount a plan.
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
			return nil, fmt.Errorf("-churn-rates: %q is not a number from 1 on", text)
		}
		m.plan.rates = append(m.plan.rates, rate)
	}
	if a.changes < 1 || a.churn < time.Second {
		return nil, fmt.Errorf("-changes must be 1 or more, and -churn a second or more")
	}
	return m, nil
}
