package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

func newConfigExplainCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "explain [FIELD]",
		Short:   "Describe a field, with its unit and default",
		Long:    "Describe a field, with its unit and default; without FIELD, list all. Names of v1alpha1 are accepted.",
		Example: "  kube-proxy config explain linux.conntrack.maxPerCore",
		Args:    usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			fields, out := config.Fields(), cmd.OutOrStdout()
			switch {
			case len(args) == 0:
				printFields(out, "FIELDS:", fields)
			default:
				field, within, err := config.FindField(fields, args[0])
				if err != nil {
					return err
				}
				printField(out, field)
				printFields(out, "\nFIELDS:", within)
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var paths []string
			for _, f := range config.Fields() {
				paths = append(paths, f.Path)
			}
			return paths, cobra.ShellCompDirectiveNoFileComp
		},
	}
	return command
}

// printField prints the description of one field.
func printField(out io.Writer, f config.Field) {
	fmt.Fprintf(out, "FIELD:    %s <%s>\n", f.Path, f.Type)
	def := f.Default
	if f.OldDefault != "" {
		def = fmt.Sprintf("%s (%s in v1alpha1 and without --config)", f.Default, f.OldDefault)
	}
	for _, row := range [][2]string{{"DEFAULT", def}, {"FLAG", flagFor(f.Path)}} {
		if row[1] != "" {
			fmt.Fprintf(out, "%-9s %s\n", row[0]+":", row[1])
		}
	}
	if f.V1alpha1 != f.Path && f.V1alpha1 != "" {
		fmt.Fprintf(out, "V1ALPHA1: %s\n", f.V1alpha1)
	}
	fmt.Fprintf(out, "\n%s\n", terminal.Wrap(f.Doc, 100))
}

// printFields prints a list of fields, one on each line, below a heading.
func printFields(out io.Writer, heading string, fields []config.Field) {
	if len(fields) == 0 {
		return
	}
	fmt.Fprintln(out, heading)
	for _, f := range fields {
		def := ""
		if f.Default != "" {
			def = " (default " + f.Default + ")"
		}
		fmt.Fprintf(out, "  %s <%s>%s\n", f.Path, f.Type, def)
	}
}

// flagFor returns the flags that set the field at a path, or "".
func flagFor(path string) string {
	var names []string
	groups := app.NewOptions().FlagSets()
	for _, group := range groups.Order {
		groups.FlagSets[group].VisitAll(func(f *pflag.Flag) {
			if app.Deprecation(f.Name) == "" && app.FieldOf(f) == path {
				names = append(names, "--"+f.Name)
			}
		})
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
