package nftables

type state struct{ rules []rule } // bad: rule's file uses state's method

func (s *state) add(r rule) { s.rules = append(s.rules, r) }
