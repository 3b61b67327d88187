package iptables

import "context"

// read returns the digests of the given chains, or if given is nil of all chains in our tables. If compare is set, it also returns
// whether they have the rules that were written.
func (s *state) read(ctx context.Context, given []chainName, compare bool) (found map[chainName]uint64, asWritten map[chainName]bool, err error) {
	found, byTable := map[chainName]uint64{}, map[string][]string{}
	if compare {
		asWritten = map[chainName]bool{}
	}
	for _, name := range given {
		byTable[name.table] = append(byTable[name.table], name.name)
	}
	for _, table := range tables() {
		if given != nil && byTable[table] == nil {
			continue
		}
		if !compare {
			digests, err := s.door.Digests(ctx, table, byTable[table]...)
			if err != nil {
				return nil, nil, err
			}
			for name, digest := range digests {
				found[chainName{table, name}] = digest
			}
			continue
		}
		compared, err := s.door.Compare(ctx, table, s.held.expected(table), byTable[table]...)
		if err != nil {
			return nil, nil, err
		}
		for name, c := range compared {
			found[chainName{table, name}], asWritten[chainName{table, name}] = c.Digest, c.Equal
		}
	}
	return found, asWritten, nil
}

// asWritten returns whether chains have the rules that were written, by their text. It lists few chains one by one. A program for each
// would take minutes after a repair of thousands.
func (s *state) asWritten(ctx context.Context, chains map[chainName]bool) (map[chainName]bool, error) {
	names := map[string][]chainName{}
	for name := range chains {
		names[name.table] = append(names[name.table], name)
	}
	have := (&ruleset{}).chains.Edit()
	for table, some := range names {
		if err := list(ctx, s.door, table, some, have); err != nil {
			return nil, err
		}
	}
	found, right := have.Map(), map[chainName]bool{}
	for name := range chains {
		written, ours := s.held.chains.Get(name)
		now, exists := found.Get(name)
		right[name] = ours && exists && written.equal(now)
	}
	return right, nil
}
