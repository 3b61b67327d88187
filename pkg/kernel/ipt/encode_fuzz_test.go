package ipt_test

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
)

// FuzzEncode reads lines as values: of those that the encoder accepts, the fake, which is as strict as iptables, accepts the text.
func FuzzEncode(f *testing.F) {
	for _, line := range ipt.Encodable {
		table, rule, _ := strings.Cut(line, " ")
		f.Add(table == "NAT", false, rule)
		f.Add(table == "NAT", true, ipt.EncodableIn6(rule))
	}
	for _, rule := range []string{ // which iptables refuses, or reads in another way
		"-d 0.0.0.0/0 -d 10.0.0.1", "-p tcp -m tcp --dport 0x50", "-d 10.0.0.0/0x8", "-p tcp -m tcp --dport 080", "-d 10.0.0.0/08", "-m sctp --dport 53",
	} {
		f.Add(true, false, rule)
	}
	fakes := map[ipt.Family]*ipttest.Fake{ipt.IPv4: ipttest.New(ipt.IPv4, ipt.NFT), ipt.IPv6: ipttest.New(ipt.IPv6, ipt.NFT)}
	f.Fuzz(func(t *testing.T, nat, six bool, text string) {
		family, table := ipt.IPv4, "filter"
		if six {
			family = ipt.IPv6
		}
		if nat {
			table = "nat"
		}
		rule, ok := ipt.RuleOf(text)
		if !ok || strings.Contains(text, "\n") || !ipt.Encodes(family, rule) { // a rule is a line
			return
		}
		err := fakes[family].Append(t.Context(), table, "KUBE-FUZZ", rule)
		if err == nil {
			err = fakes[family].Delete(t.Context(), table, "KUBE-FUZZ", rule)
		}
		if err != nil && !strings.Contains(err.Error(), "does not exist") && !strings.Contains(err.Error(), "only valid in the table") {
			t.Errorf("%q was encoded, and the fake refuses it: %v", rule.Text(), err)
		}
	})
}
