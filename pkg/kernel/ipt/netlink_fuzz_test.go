package ipt

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// FuzzRules gives the readers of nf_tables' rules arbitrary bytes: they must end.
func FuzzRules(f *testing.F) {
	f.Add(netlink.AppendString(netlink.AppendString(nil, unix.NFTA_RULE_TABLE, "nat"), unix.NFTA_RULE_CHAIN, "KUBE-SERVICES"))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(_ *testing.T, attributes []byte) {
		data := message(netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE, Family: unix.NFPROTO_IPV4}, attributes)
		for m := netlink.ReadMessages(data); m.Next(); {
			c := &comparer{}
			c.read(nf.Rule{Message: m.Message})
			c.are([]Rule{{Target: Return}}, true)
			for a := m.Attrs(); a.Next(); {
				counted(a.Nested())
				sameExpressions(a.Data, a.Nested())
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
