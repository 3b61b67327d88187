package ipt

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// FuzzNotices gives the readers of nf_tables' notifications and rules arbitrary bytes: they must end, name only chains that the
// bytes contain, and not depend on how often a message is repeated.
func FuzzNotices(f *testing.F) {
	named := netlink.AppendString(netlink.AppendString(nil, unix.NFTA_RULE_TABLE, "nat"), unix.NFTA_RULE_CHAIN, "KUBE-SERVICES")
	f.Add(uint8(unix.NFT_MSG_NEWRULE), named)
	f.Add(uint8(unix.NFT_MSG_NEWGEN), netlink.AppendString(nil, unix.NFTA_GEN_PROC_NAME, "iptables"))
	f.Add(uint8(unix.NFT_MSG_NEWCHAIN), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, kind uint8, attributes []byte) {
		data := message(netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(kind), Family: unix.NFPROTO_IPV4}, attributes)
		n := &notices{family: unix.NFPROTO_IPV4}
		c := &Changes{Chains: map[ChainName]string{}}
		var open []ChainName
		for range 2 {
			for m := netlink.ReadMessages(data); m.Next(); {
				open = n.add(c, open, m.Message)
				for a := m.Attrs(); a.Next(); {
					counted(a.Nested())
				}
				digest := newRuleDigest()
				digest.of(nf.Rule{Message: m.Message})
			}
		}
		if len(c.Chains) > 1 {
			t.Fatalf("one message, sent twice, changed %d chains: %v", len(c.Chains), c.Chains)
		}
		for name := range c.Chains {
			if !strings.Contains(string(attributes), name.Chain) || !strings.Contains(string(attributes), name.Table) {
				t.Fatalf("%q is not in %q", name, attributes)
			}
		}
	})
}

// message returns a message with these attributes.
func message(h netlink.Header, attributes []byte) []byte {
	b := netlink.AppendMessage(nil, h)
	b = append(b, attributes...)
	netlink.EndMessage(b, 0)
	return b
}

// FuzzWords splits arbitrary text. The words, in quotation marks, must be split into the same words again.
func FuzzWords(f *testing.F) {
	f.Add(`-A KUBE-SERVICES -m comment --comment "a \"b\" \\ c" -j DROP`)
	f.Add(`"" "`)
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Words(line)
		if err != nil {
			return
		}
		var quoted []string
		for _, word := range words {
			quoted = append(quoted, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word)+`"`)
		}
		again, err := Words(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(words, again) {
			t.Fatalf("%q: %q became %q, %v", line, words, again, err)
		}
	})
}
