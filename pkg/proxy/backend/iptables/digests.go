package iptables

import (
	"context"
	"errors"
)

// asWritten returns whether chains have the rules that were written.
func (s *state) asWritten(ctx context.Context, chains map[chainName]bool) (map[chainName]bool, error) {
	right, byTable := map[chainName]bool{}, map[string][]string{}
	for name := range chains {
		byTable[name.table] = append(byTable[name.table], name.name)
	}
	for table, names := range byTable {
		compared, err := s.door.Compare(ctx, table, s.held.expected(table), names...)
		if errors.Is(err, errors.ErrUnsupported) {
			return s.asWrittenInText(ctx, chains)
		}
		if err != nil {
			return nil, err
		}
		for name, found := range compared {
			right[chainName{table, name}] = found.Equal
		}
	}
	return right, nil
}

// asWrittenInText does the same with the text of all tables, because a program for each chain would take minutes after a repair of
// thousands.
func (s *state) asWrittenInText(ctx context.Context, chains map[chainName]bool) (map[chainName]bool, error) {
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

// readAll returns the digests of all chains. If compare is set, and chains can be compared without their text, it also returns
// whether they have the rules that were written; otherwise nil.
func (s *state) readAll(ctx context.Context, compare bool) (found map[chainName]uint64, asWritten map[chainName]bool, err error) {
	if !compare {
		found, err = s.digestsOf(ctx, nil)
		return found, nil, err
	}
	found, asWritten = map[chainName]uint64{}, map[chainName]bool{}
	for _, table := range tables() {
		compared, err := s.door.Compare(ctx, table, s.held.expected(table))
		if errors.Is(err, errors.ErrUnsupported) {
			found, err = s.digestsOf(ctx, nil)
			return found, nil, err
		}
		if err != nil {
			return nil, nil, err
		}
		for chain, c := range compared {
			name := chainName{table, chain}
			found[name], asWritten[name] = c.Digest, c.Equal
		}
	}
	return found, asWritten, nil
}

// digestsOf returns the digests of the given chains, or if given is nil of all chains in our tables.
func (s *state) digestsOf(ctx context.Context, given []chainName) (map[chainName]uint64, error) {
	all, byTable := map[chainName]uint64{}, map[string][]string{}
	for _, name := range given {
		byTable[name.table] = append(byTable[name.table], name.name)
	}
	for _, table := range tables() {
		if given != nil && byTable[table] == nil {
			continue
		}
		found, err := s.door.Digests(ctx, table, byTable[table]...)
		if err != nil {
			return nil, err
		}
		for name, digest := range found {
			all[chainName{table, name}] = digest
		}
	}
	return all, nil
}
