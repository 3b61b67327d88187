package nfttest

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxJumps is how deep chains may jump: NFT_JUMP_STACK_SIZE.
const maxJumps = 16

// validate walks the chains from the base chains, as the kernel does when something was added that goes to a chain.
func (s *fakeState) validate() error {
	if s.table == nil {
		return nil
	}
	for name, c := range s.table.chains {
		if c.base != nil {
			w := walk{state: s, base: c.base, above: map[string]bool{}, depths: map[string]int{}}
			if err := w.chain(name, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk visits the chains that packets can reach from a base chain.
type walk struct {
	state  *fakeState
	base   *fakeBase
	above  map[string]bool
	depths map[string]int // at which chains were visited, plus 1
}

func (w *walk) chain(name string, depth int) error {
	if w.above[name] || depth >= maxJumps {
		return refuse(unix.EMLINK, "chains from %s form a loop, or go too deep", name)
	}
	if w.depths[name] > depth {
		return nil
	}
	w.depths[name] = depth + 1
	w.above[name] = true
	defer delete(w.above, name)
	for _, r := range w.state.table.chains[name].rules {
		if err := w.fits(r); err != nil {
			return err
		}
		for _, target := range w.state.targets(r) {
			if err := w.chain(target, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits refuses NAT in chains where the kernel refuses it.
func (w *walk) fits(r fakeRule) error {
	hooks := []uint32(nil)
	text := strings.ReplaceAll(r.text, "ct status dnat", "") // which is a condition
	for word := range strings.FieldsSeq(text) {
		switch word {
		case "dnat", "redirect":
			hooks = []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT}
		case "snat":
			hooks = []uint32{unix.NF_INET_POST_ROUTING, unix.NF_INET_LOCAL_IN}
		case "masquerade":
			hooks = []uint32{unix.NF_INET_POST_ROUTING}
		}
	}
	if hooks != nil && (w.base.typ != "nat" || !slices.Contains(hooks, w.base.hook)) {
		return refuse(unix.EOPNOTSUPP, "%q cannot be reached from a %s chain at hook %d", r.text, w.base.typ, w.base.hook)
	}
	return nil
}

// targets returns the chains that a rule goes to, itself or through a verdict map.
func (s *fakeState) targets(r fakeRule) []string {
	out := slices.Clone(r.chains)
	for _, name := range r.sets {
		if !strings.Contains(r.text, "vmap @"+name) {
			continue
		}
		for chain, n := range s.table.sets[name].goes {
			if n > 0 {
				out = append(out, chain)
			}
		}
	}
	return out
}
