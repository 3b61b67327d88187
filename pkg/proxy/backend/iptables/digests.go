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

// asWritten returns whether chains have the rules that were written. It reads the text of all tables, because a program for each
// chain would take minutes after a repair of thousands.
func (s *state) asWritten(ctx context.Context, chains map[chainName]bool) (map[chainName]bool, error) {
	have, err := read(ctx, s.door)
	if err != nil {
		return nil, err
	}
	right := map[chainName]bool{}
	for name := range chains {
		written, ours := s.held.chains.Get(name)
		found, exists := have.chains.Get(name)
		right[name] = ours && exists && written.equal(found)
	}
	return right, nil
}
