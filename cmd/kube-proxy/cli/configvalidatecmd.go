package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

func newValidateCommand() *cobra.Command {
	var strict bool
	var output string
	command := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check configuration files",
		Long: `Check configuration files of any version, and report every error with file, line and field. Mode ipvs is an error.
` + fileHelp + `

Exit codes: 0 if all files are valid, 1 if one is not.`,
		Example: `  kube-proxy config validate --strict /var/lib/kube-proxy/config.conf`,
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return validateFiles(cmd, names, strict, output)
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault), // files
	}
	command.Flags().BoolVar(&strict, "strict", false, "Let warnings fail.")
	outputFlag(command, &output, outputText, outputJSON, outputYAML)
	return command
}

// verdict is what "config validate" reports of one file.
type verdict struct {
	File     string          `json:"file"`
	Valid    bool            `json:"valid"`
	Version  string          `json:"version,omitempty"` // "" if it could not be read
	Errors   config.Problems `json:"errors"`            // never nil
	Warnings []string        `json:"warnings"`          // never nil
}

// errInvalid ends "config validate" after all problems have been printed.
var errInvalid = errors.New("not all files are valid")

// validateFiles checks each file and prints its verdict: warnings and errors on stderr in text, everything in one object in
// the other formats.
func validateFiles(cmd *cobra.Command, names []string, strict bool, output string) error {
	verdicts := []verdict{}
	valid := true
	for _, name := range names {
		v, err := validateFile(cmd, name, strict)
		valid = valid && v.Valid
		verdicts = append(verdicts, v)
		if output == outputText {
			v.print(cmd, err)
		}
	}
	if output != outputText {
		if err := printObject(cmd.OutOrStdout(), output, struct {
			v1alpha1.TypeMeta
			Files []verdict `json:"files"`
		}{v1alpha1.Meta(v1alpha1.KindConfigValidation), verdicts}); err != nil {
			return err
		}
		if !valid {
			return app.ExitCode{Code: app.ExitFailure} // the object contains the errors
		}
	}
	if !valid {
		return errInvalid
	}
	return nil
}

// print prints a verdict as text; err is the error of the file.
func (v *verdict) print(cmd *cobra.Command, err error) {
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
	}
	if v.Valid {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: valid (%s)\n", v.File, v.Version)
	}
}

// validateFile checks one file. The error is that of the file, for people.
func validateFile(cmd *cobra.Command, name string, strict bool) (verdict, error) {
	v := verdict{File: name, Errors: config.Problems{}, Warnings: []string{}}
	l, err := loadConfig(cmd, name)
	if err == nil {
		v.Version = l.File.Version
		err = l.Validate(config.Platform(l.Config))
		v.Warnings = append(v.Warnings, l.Warnings...)
		for _, loss := range l.File.Dropped {
			v.Warnings = append(v.Warnings, fmt.Sprintf("%s: %s", name, loss))
		}
	}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for _, p := range problems {
			v.Errors = append(v.Errors, p)
			v.Warnings = slices.DeleteFunc(v.Warnings, func(warning string) bool { return warning == p.String() })
		}
	} else if err != nil {
		v.Errors = append(v.Errors, config.Problem{Detail: err.Error()})
	}
	v.Valid = err == nil && (!strict || len(v.Warnings) == 0)
	return v, err
}
