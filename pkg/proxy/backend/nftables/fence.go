package nftables

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// A Service with a fence has a chain that its new connections meet before an endpoint is picked, and two sets, of the bounds of its clients.

// The prefixes of the names of these sets.
const (
	ratePrefix = "rate-"
	openPrefix = "open-"
)

// idle is how long a client's rate is remembered: after a second without a connection it may have as many as at first.
const idle = 2 * time.Second

// meters returns the sets that a chain of kind bounds needs; none without a fence.
func (s *schema) meters(t target, f *cluster.Fence) (sets []*set) {
	add := func(prefix string, timeout bool) {
		sets = append(sets, &set{dialect: s.dialect, name: fmt.Sprintf("%s%016x", prefix, t.id), key: []column{s.addrColumn("saddr", frontendAddr)},
			byType: true, size: cluster.MaxClients, timeout: timeout})
	}
	if f != nil && f.ClientPerSecond > 0 {
		add(ratePrefix, true)
	}
	if f != nil && f.ClientOpen > 0 { // the kernel removes clients without an open connection
		add(openPrefix, false)
	}
	return sets
}

// parseMeter returns the chain that needs a set of that name.
func parseMeter(name string) (chain target, ok bool) {
	for _, prefix := range []string{ratePrefix, openPrefix} {
		if digits, is := strings.CutPrefix(name, prefix); is && len(digits) == 16 {
			id, err := strconv.ParseUint(digits, 16, 64)
			return target{kind: bounds, id: id}, err == nil
		}
	}
	return target{}, false
}
