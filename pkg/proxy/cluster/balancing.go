package cluster

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// The annotations that say how connections are balanced. The second of each pair is Cilium's, and is read if the first is absent.
const (
	// AnnotationAlgorithm is the annotation of a Service with the name of its [Algorithm].
	AnnotationAlgorithm       = "kube-proxy/lb-algorithm"
	AnnotationCiliumAlgorithm = "service.cilium.io/lb-algorithm"
	// AnnotationWeight is the annotation of an EndpointSlice with the weights of its endpoints, from 0 to 65535: one for all, or one for
	// each address ("10.244.1.2=50"), or both, separated by commas. Cilium has only the first form.
	AnnotationWeight       = "kube-proxy/weight"
	AnnotationCiliumWeight = "service.cilium.io/weight"
)

// DefaultWeight is the weight of an endpoint without an annotation, as in Cilium.
const DefaultWeight = 100

// Weight is the weight of an endpoint. The zero value is DefaultWeight.
type Weight int32

// WeightOf returns a weight of the given value.
func WeightOf(value uint16) Weight { return Weight(value) - DefaultWeight }

// Value returns the value, from 0 to 65535.
func (w Weight) Value() int { return int(w + DefaultWeight) }

// Algorithm is how a connection gets one of a Service's endpoints.
type Algorithm uint8

// The algorithms. Random sends a connection to any endpoint, RoundRobin to the next one. SourceHash sends all connections of a source
// address to one endpoint; Maglev those of a source address and port, which is the same on every node.
const (
	Random Algorithm = iota
	RoundRobin
	SourceHash
	Maglev
)

var algorithmNames = [...]string{Random: "random", RoundRobin: "round-robin", SourceHash: "source-hash", Maglev: "maglev"}

func (a Algorithm) String() string { return algorithmNames[a] }

// Hashes reports whether a connection's addresses determine its endpoint.
func (a Algorithm) Hashes() bool { return a >= SourceHash }

// balancing reads the algorithm of a Service. ignored says why a value cannot be used; the Service is balanced at random then.
func balancing(annotations map[string]string) (algorithm Algorithm, ignored string) {
	name, text := annotation(annotations, AnnotationAlgorithm, AnnotationCiliumAlgorithm)
	if text == "" {
		return Random, ""
	}
	for i, known := range algorithmNames {
		if text == known {
			return Algorithm(i), ""
		}
	}
	return Random, fmt.Sprintf("the annotation %s: %q is not one of %s", name, brief(text), strings.Join(algorithmNames[:], ", "))
}

// annotation returns the first of two annotations that is set.
func annotation(annotations map[string]string, own, cilium string) (name, text string) {
	if text, set := annotations[own]; set {
		return own, strings.TrimSpace(text)
	}
	return cilium, strings.TrimSpace(annotations[cilium])
}

// weights are those of a slice's endpoints: of single addresses, and of all others.
type weights struct {
	of     map[netip.Addr]Weight
	others Weight
}

// readWeights reads the weights of a slice. ignored says why a value cannot be used; all endpoints have the default weight then.
func readWeights(annotations map[string]string) (w weights, ignored string) {
	name, text := annotation(annotations, AnnotationWeight, AnnotationCiliumWeight)
	if text == "" {
		return w, ""
	}
	w.of = map[netip.Addr]Weight{}
	for item := range strings.SplitSeq(text, ",") {
		addr, number, single := strings.Cut(item, "=")
		if !single {
			number = item
		}
		value, err := strconv.ParseUint(strings.TrimSpace(number), 10, 16)
		if err != nil {
			return weights{}, fmt.Sprintf("the annotation %s: %q is not a weight from 0 to %d", name, brief(number), math.MaxUint16)
		}
		if !single {
			w.others = WeightOf(uint16(value))
			continue
		}
		of, err := ParseAddr(strings.TrimSpace(addr))
		if err != nil {
			return weights{}, fmt.Sprintf("the annotation %s: %v", name, err)
		}
		w.of[of] = WeightOf(uint16(value))
	}
	return w, ""
}

// weight returns the weight of an endpoint.
func (w *weights) weight(of netip.Addr) Weight {
	if weight, single := w.of[of]; single {
		return weight
	}
	return w.others
}
