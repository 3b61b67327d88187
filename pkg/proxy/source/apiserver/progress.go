package apiserver

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
)

// progress tracks the first lists of a Source. It is safe for concurrent use.
type progress struct {
	mu sync.Mutex
	// names are the resources that have not been listed yet, in the order of the requests. why holds the last failure of
	// each, as returned by advice.
	names []string
	why   map[string]failure
}

// failure is the kind of a cause, and what the user can do about it.
type failure struct{ kind, hint string }

func newProgress(all []*resource) *progress {
	p := &progress{why: map[string]failure{}}
	for _, r := range all {
		p.names = append(p.names, r.name)
	}
	return p
}

// failed records the result of a request for a resource; why is zero if it succeeded.
func (p *progress) failed(name string, why failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why[name] = why
}

// listed records that a resource has been listed completely.
func (p *progress) listed(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.names {
		if p.names[i] == name {
			p.names = append(p.names[:i:i], p.names[i+1:]...)
			return
		}
	}
}

// missing describes the resources that have not been listed yet, such as "services (unreachable), nodes"; "" if there
// are none. The hint is for the first one that failed; "" if none did.
func (p *progress) missing() (names, hint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, name := range p.names {
		if why := p.why[name]; why.kind != "" {
			name, hint = fmt.Sprintf("%s (%s)", name, why.kind), cmp.Or(hint, why.hint)
		}
		all = append(all, name)
	}
	return strings.Join(all, ", "), hint
}
