package iptables

import (
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Render writes the rules that a plan makes in one family, the way iptables-save prints them and iptables-restore
// --noflush loads them. Every capability is taken for given.
func Render(p *plan.Plan, family cluster.Family, opts Options) string {
	r := &renderer{family: family, opts: opts, can: probe(ipt.Features{Variant: ipt.NFT, RandomFully: true}, noSettings{})}
	want := r.render(p, nil)
	var b strings.Builder
	for _, table := range tables() {
		fmt.Fprintf(&b, "*%s\n", table)
		for name := range want.chains.All() {
			if name.table == table {
				fmt.Fprintf(&b, ":%s - [0:0]\n", name.name)
			}
		}
		for _, j := range want.jumps {
			if j.from.table == table && j.to != chainLocalnet {
				fmt.Fprintf(&b, "-I %s %s\n", j.from.name, j.words())
			}
		}
		for name, chain := range want.chains.All() {
			for _, l := range chain.lines {
				if name.table == table {
					fmt.Fprintf(&b, "-A %s %s\n", name.name, l.text)
				}
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// words write a jump out; a word with blanks is quoted.
func (j jump) words() string {
	words := j.rule()
	for i, word := range words {
		if strings.ContainsRune(word, ' ') {
			words[i] = `"` + word + `"`
		}
	}
	return strings.Join(words, " ")
}

// noSettings is a kernel without any.
type noSettings struct{}

// Read is part of [Settings].
func (noSettings) Read(name string) (string, error) { return "", fmt.Errorf("no setting %s", name) }

// Write is part of [Settings].
func (noSettings) Write(name, _ string) error { return fmt.Errorf("no setting %s", name) }
