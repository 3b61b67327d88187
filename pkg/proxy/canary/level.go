package canary

import "fmt"

// Level is whether the rules are tried, and who gets to know the result. It is a flag's value.
type Level string

// The rules are not tried; the result is reported; and it also makes /healthz fail.
const (
	None    Level = "none"
	Report  Level = "report"
	Healthz Level = "healthz"
)

// String returns the value.
func (l *Level) String() string { return string(*l) }

// Set parses a value.
func (l *Level) Set(text string) error {
	switch level := Level(text); level {
	case None, Report, Healthz:
		*l = level
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", None, Report, Healthz)
}

// Type returns the name of the value in the help.
func (*Level) Type() string { return "level" }
