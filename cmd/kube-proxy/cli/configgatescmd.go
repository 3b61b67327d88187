package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

func newGatesCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "feature-gates",
		Short: "List the feature gates with stage, default, effect and planned end",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gates := features.Describe()
			return show(cmd, output, struct {
				v1alpha1.TypeMeta
				Items []features.Description `json:"items"`
			}{v1alpha1.Meta(v1alpha1.KindFeatureGateList), gates}, func() (text string) {
				for _, gate := range gates {
					text += fmt.Sprintf("%s\n%s\nPlanned end: %s.\n\n", gate, terminal.Wrap(gate.Effect, 100), gate.End)
				}
				return text
			})
		},
	}
	outputFlag(command, &output, outputText, outputJSON, outputYAML)
	return command
}
