package serve

import (
	"slices"
	"sync"
)

// shares are what sources have of something that they share: the oldest part first. If that is too much together, the source that has the
// most gives up a part. So one that has little keeps it, whatever the others do, and they may have what nobody else needs.
type shares struct {
	mu    sync.Mutex
	parts []*part
}

// part is a connection, or a response that waits for its reader.
type part struct {
	source Source
	size   int
	giveUp func()
	// idle parts are given up before others of sources with as much. The shares' mu guards it.
	idle bool
}

// add adds a part, and before that lets others be given up, as many as there must be so that all together are at most this size.
func (s *shares) add(p *part, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for surplus := s.surplus(p, most); surplus != nil; surplus = s.surplus(p, most) {
		surplus.giveUp()
		s.forget(surplus)
	}
	s.parts = append(s.parts, p)
}

// surplus returns the part to give up before another one is added; nil if there is room, or nothing to give up.
func (s *shares) surplus(added *part, most int) (found *part) {
	total, sizes := added.size, map[Source]int{added.source: added.size}
	for _, p := range s.parts {
		total += p.size
		sizes[p.source] += p.size
	}
	if total <= most {
		return nil
	}
	for _, p := range s.parts {
		if found == nil || sizes[p.source] > sizes[found.source] || sizes[p.source] == sizes[found.source] && p.idle && !found.idle {
			found = p
		}
	}
	return found
}

// remove removes a part; it may have been given up before.
func (s *shares) remove(p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(p)
}

func (s *shares) forget(gone *part) {
	s.parts = slices.DeleteFunc(s.parts, func(p *part) bool { return p == gone })
}
