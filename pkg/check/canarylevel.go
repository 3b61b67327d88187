package check

import "fmt"

// CanaryLevel is whether the rules are tried, and who gets to know the result. It is a flag's value.
type CanaryLevel string

// The rules are not tried; the result is reported; and it also makes /healthz fail.
const (
	NoCanary      CanaryLevel = "none"
	CanaryReports CanaryLevel = "report"
	CanaryHealthz CanaryLevel = "healthz"
)

// String returns the value.
func (l *CanaryLevel) String() string { return string(*l) }

// Set parses a value.
func (l *CanaryLevel) Set(text string) error {
	switch level := CanaryLevel(text); level {
	case NoCanary, CanaryReports, CanaryHealthz:
		*l = level
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", NoCanary, CanaryReports, CanaryHealthz)
}

// Type returns the name of the value in the help.
func (*CanaryLevel) Type() string { return "level" }
