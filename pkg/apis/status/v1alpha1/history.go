package v1alpha1

import "time"

// RepairList lists the last 100 repairs, the newest last. Served at /repairs.
type RepairList struct {
	TypeMeta
	// Items are the repairs.
	Items []Repair `json:"items"`
}

// Repair is an external modification of the rules, which the proxy has detected and repairs.
type Repair struct {
	// Time is when it was detected.
	Time time.Time `json:"time"`
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	// What describes the difference; Writer is the program that wrote last according to the kernel, if it says so.
	What   string `json:"what"`
	Writer string `json:"writer,omitempty"`
	// Details name the chains, sets and elements that differed, the first ten.
	Details []string `json:"details,omitempty"`
}

// History is what the proxy did in the last hour, by minute. Served at /history.
type History struct {
	TypeMeta
	// Time is when the history was made.
	Time time.Time `json:"time"`
	// Items are the minutes since the program started, at most the last 60, the oldest first. The last one is not over.
	Items []Minute `json:"items"`
}

// Minute is what the proxy did in one minute.
type Minute struct {
	// Start is when the minute began.
	Start time.Time `json:"start"`
	// Syncs is the number of syncs that ended in it, Failed of those that failed in at least one IP family.
	Syncs  int `json:"syncs"`
	Failed int `json:"failed"`
	// Seconds is how long its syncs took together, Slowest how long the slowest one took.
	Seconds float64 `json:"seconds"`
	Slowest float64 `json:"slowest"`
	// Changes is the number of changes of Services or their endpoints that these syncs were the first to see. A Service
	// that changed several times between two syncs counts once.
	Changes int `json:"changes"`
}
