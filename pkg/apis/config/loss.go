package config

// +k8s:deepcopy-gen=false

// Loss is a setting that a conversion cannot carry over, and what becomes of it.
type Loss struct {
	// Field is the path of the setting in the version it is lost from.
	Field string
	// Detail says what happens instead, with its reason.
	Detail string
}

// String gives one line.
func (l Loss) String() string { return l.Field + ": " + l.Detail }
