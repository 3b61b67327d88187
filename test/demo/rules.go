//go:build linux

package main

import (
	"encoding/json"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// contents is the size of all tables in the kernel, both families together.
type contents struct{ chains, rules, elements int }

// String is, for example, "40 chains, 62 rules, 131 elements".
func (c contents) String() string {
	return fmt.Sprintf("%s chains, %s rules, %s elements", thousands(c.chains), thousands(c.rules), thousands(c.elements))
}

// kernelContents counts what nft lists in a host.
func kernelContents(host *netns.Host) (contents, error) {
	output, err := host.Command("nft", "--json", "list", "ruleset").Output()
	if err != nil {
		return contents{}, err
	}
	return countRules(output)
}

// countRules counts the objects in the JSON output of nft(8); see libnftables-json(5).
func countRules(listing []byte) (c contents, err error) {
	type filled struct {
		Elements []json.RawMessage `json:"elem"`
	}
	var list struct {
		Objects []struct {
			Chain, Rule json.RawMessage
			Map, Set    filled
		} `json:"nftables"`
	}
	if err := json.Unmarshal(listing, &list); err != nil {
		return c, fmt.Errorf("parse the output of nft: %w", err)
	}
	for _, object := range list.Objects {
		if object.Chain != nil {
			c.chains++
		}
		if object.Rule != nil {
			c.rules++
		}
		c.elements += len(object.Map.Elements) + len(object.Set.Elements)
	}
	return c, nil
}
