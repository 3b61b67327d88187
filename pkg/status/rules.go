package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Rules is how plans become rules.
type Rules struct {
	// Mode is the proxy mode, Renderers are those of all modes.
	Mode      string
	Renderers map[string]backend.Renderer
	// Families are those that have rules, and counters.
	Families []cluster.Family
}

// renderer returns the renderer of a mode; empty is the proxy's own.
func (r *Rules) renderer(mode string) (backend.Renderer, string, error) {
	if mode == "" {
		mode = r.Mode
	}
	found, ok := r.Renderers[mode]
	if !ok {
		return nil, "", &QuestionError{fmt.Sprintf("mode %q has no rules: write %s", mode, strings.Join(slices.Sorted(maps.Keys(r.Renderers)), " or "))}
	}
	return found, mode, nil
}

// Ruleset returns the rules of a mode that the plans in force make; an empty mode is the proxy's own.
func (s *State) Ruleset(mode string) (*v1alpha1.Ruleset, error) {
	renderer, mode, err := s.Rules.renderer(mode)
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.Ruleset{TypeMeta: v1alpha1.Meta(v1alpha1.KindRuleset), Mode: mode}
	for _, family := range s.Rules.Families {
		out.Families = append(out.Families, v1alpha1.FamilyRules{Family: family.String(), Rules: renderer.Render(s.inForce(family), family)})
	}
	return out, nil
}

// Compare compares the kernel's rules with those of a mode that the plans in force make; an empty mode is the proxy's own.
func (s *State) Compare(ctx context.Context, mode string) (*v1alpha1.Comparison, error) {
	renderer, mode, err := s.Rules.renderer(mode)
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.Comparison{TypeMeta: v1alpha1.Meta(v1alpha1.KindComparison), Mode: mode, Items: []v1alpha1.Difference{}}
	for _, family := range s.Rules.Families {
		differences, err := renderer.Compare(ctx, s.inForce(family), family)
		if err != nil {
			return nil, fmt.Errorf("compare with the kernel's rules: %w", err)
		}
		for _, d := range differences {
			out.Items = append(out.Items, v1alpha1.Difference{Family: family.String(), Object: d.Object, Note: d.Note, Missing: d.Missing, Extra: d.Extra})
		}
	}
	return out, nil
}
