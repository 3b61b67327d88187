package ipt

import (
	"context"
	"errors"
	"strings"
)

// Policy is the policy of a built-in chain.
type Policy struct {
	Drops bool
	Rules int
}

// Policies returns the policy of each built-in chain of the table filter of the legacy variant, such as FORWARD: DROP,
// and how many rules the chain has. It does not create the table; without it there are none.
func Policies(ctx context.Context, family Family) (map[string]Policy, error) {
	if !legacyTableExists(family, "filter") {
		return nil, nil
	}
	t, err := Open(ctx, family, Legacy)
	if err != nil {
		return nil, err
	}
	text, err := t.Save(ctx, "filter")
	if err := errors.Join(err, t.Close()); err != nil {
		return nil, err
	}
	return parsePolicies(text), nil
}

// parsePolicies parses the output of iptables-save.
func parsePolicies(saved string) map[string]Policy {
	policies := map[string]Policy{}
	for line := range strings.Lines(saved) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 2 && strings.HasPrefix(fields[0], ":") && fields[1] != "-":
			policies[fields[0][1:]] = Policy{Drops: fields[1] == "DROP"}
		case len(fields) >= 3 && strings.HasPrefix(fields[0], "[") && fields[1] == "-A":
			if p, builtIn := policies[fields[2]]; builtIn {
				p.Rules++
				policies[fields[2]] = p
			}
		}
	}
	return policies
}
