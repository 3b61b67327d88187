package apiserver

import (
	"fmt"
	"strings"
	"sync"
)

// progress is how far the first lists of a Source are. It may be used by several goroutines.
type progress struct {
	mu sync.Mutex
	// names are the resources that are not listed yet, in the order in which they are asked for. why has the kind of each
	// one's last failure, in the words of advice.
	names []string
	why   map[string]string
}

func newProgress(all []*resource) *progress {
	p := &progress{why: map[string]string{}}
	for _, r := range all {
		p.names = append(p.names, r.name)
	}
	return p
}

// failed notes how a request for a resource went; why is empty if it went well.
func (p *progress) failed(name, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why[name] = why
}

// listed notes that a resource has been listed in full.
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

// missing describes what is not listed yet, such as "services (unreachable), nodes"; "" if there is nothing.
func (p *progress) missing() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, name := range p.names {
		if why := p.why[name]; why != "" {
			name = fmt.Sprintf("%s (%s)", name, why)
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}
