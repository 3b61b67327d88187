package v1alpha1

import "time"

// RepairList lists the last 100 repairs, the newest last. Served at /repairs.
type RepairList struct {
	TypeMeta
	Items []Repair `json:"items"`
}

// Repair is an external modification of the rules that the proxy detected, to repair it.
type Repair struct {
	// Time is when it was detected.
	Time time.Time `json:"time"`
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	// What is the difference.
	What string `json:"what"`
	// Writer is the program that wrote last, if the kernel reports it.
	Writer string `json:"writer,omitempty"`
	// Details are the first ten chains, sets and elements that differed.
	Details []string `json:"details,omitempty"`
}

// History is what the proxy did in the last hour, by minute. Served at /history.
type History struct {
	TypeMeta
	// Time is when the history was made.
	Time time.Time `json:"time"`
	// Items are at most 60 minutes, the oldest first. The last one is not over.
	Items []Minute `json:"items"`
}

// Minute is what the proxy did in one minute.
type Minute struct {
	Start time.Time `json:"start"`
	// Syncs and Failed are how many syncs ended in it, and how many of these failed in an IP family.
	Syncs  int `json:"syncs"`
	Failed int `json:"failed"`
	// Seconds and Slowest are how long they took together, and the slowest one.
	Seconds float64 `json:"seconds"`
	Slowest float64 `json:"slowest"`
	// Changes is how many Services, or their endpoints, had changed: once for each sync.
	Changes int `json:"changes"`
}
