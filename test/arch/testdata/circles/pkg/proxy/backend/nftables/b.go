package nftables

type rule struct{ text string }

func write(s *state, text string) { s.add(rule{text}) } // bad: the other half of the circle
