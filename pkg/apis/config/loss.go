package config

// Loss is a setting that a conversion cannot preserve.
type Loss struct {
	// Field is the path of the setting in the original version.
	Field string
	// Detail describes the result and its reason.
	Detail string
}

// String returns one line.
func (l Loss) String() string { return l.Field + ": " + l.Detail }
