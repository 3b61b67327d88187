package nft

import "strings"

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
