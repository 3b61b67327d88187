package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Rules is part of [Table].
func (t *kernelTable) Rules(ctx context.Context) (map[string][]string, error) {
	// Terse leaves out the elements of sets, which may be very many; stateless the counters of rules.
	command := exec.CommandContext(ctx, "nft", "--stateless", "--terse", "list", "table", string(t.family), t.name)
	var words strings.Builder
	command.Stderr = &words
	out, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = numbered(fmt.Errorf("%w: %s", err, strings.TrimSpace(words.String())))
		if exit.ExitCode() < 0 {
			err = fmt.Errorf("%w: %w", err, errCrash)
		}
	}
	if err != nil {
		return nil, wrap("list rules", t.family, t.name, err)
	}
	return rulesIn(string(out)), nil
}

// rulesIn returns the rules of each chain in a listing of a table.
func rulesIn(listing string) map[string][]string {
	chains, chain := map[string][]string{}, ""
	for line := range strings.Lines(listing) {
		words := strings.TrimSpace(line)
		switch title, isChain := strings.CutPrefix(words, "chain "); {
		case words == "}":
			chain = ""
		case chain == "" && isChain:
			chain = strings.TrimSuffix(title, " {")
			chains[chain] = nil
		case chain == "" || words == "":
		case strings.HasPrefix(words, "type ") || strings.HasPrefix(words, "comment "): // of the chain
		default:
			chains[chain] = append(chains[chain], words)
		}
	}
	return chains
}
