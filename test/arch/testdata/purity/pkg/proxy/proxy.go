// Package proxy is part of an example.
package proxy

import "time"

// Now is free to read the clock: the loop is no pure function.
func Now() time.Time { return time.Now() }
