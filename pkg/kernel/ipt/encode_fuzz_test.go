package ipt

import (
	"strings"
	"testing"
)

// FuzzEncode reads lines as values: of those that the encoder accepts, the Fake, which is as strict as iptables, accepts the text.
func FuzzEncode(f *testing.F) {
	for _, line := range encodable {
		table, rule, _ := strings.Cut(line, " ")
		f.Add(table == "NAT", false, rule)
		f.Add(table == "NAT", true, addresses6.Replace(in6(rule)))
	}
	for _, rule := range []string{ // which iptables refuses, or reads in another way
		"-d 0.0.0.0/0 -d 10.0.0.1", "-p tcp -m tcp --dport 0x50", "-d 10.0.0.0/0x8", "-p tcp -m tcp --dport 080", "-d 10.0.0.0/08",
	} {
		f.Add(true, false, rule)
	}
	encoders := map[Family]*encoder{IPv4: {family: IPv4}, IPv6: {family: IPv6}}
	fake := newFakeTable(nil)
	f.Fuzz(func(t *testing.T, nat, six bool, text string) {
		d := dialect{family: IPv4, table: "filter", features: Features{AddressBits: true}}
		if six {
			d.family = IPv6
		}
		if nat {
			d.table = "nat"
		}
		rule, ok := ruleOf(text)
		if !ok {
			return
		}
		if _, _, ok = encoders[d.family].rule(nil, rule); !ok {
			return
		}
		if _, err := d.rule(rule, fake); err != nil && !strings.Contains(err.Error(), "does not exist") && !strings.Contains(err.Error(), "only valid in the table") {
			t.Errorf("%q was encoded, and the fake refuses it: %v", rule.Text(), err)
		}
	})
}
