package app

import (
	"os"
	"runtime/debug"
)

// loadingGC is how much garbage there may be for each byte in use, in percent, while the first lists arrive: objects
// become garbage as fast as they come, and collecting it at Go's usual 100 takes a quarter of a cold start's processor
// time.
const loadingGC = 200

// loading lets garbage grow until the returned function is called, which gives the memory back. Somebody who set GOGC
// has their way.
func loading() (loaded func()) {
	if os.Getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	before := debug.SetGCPercent(loadingGC)
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}
