package tuning

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// SetOOMScore sets how likely the kernel is to kill this process when memory is short. path is
// /proc/self/oom_score_adj; score is from -1000, never, to 1000.
func SetOOMScore(path string, score int32) error {
	if err := os.WriteFile(path, []byte(strconv.Itoa(int(score))), 0); err != nil {
		return fmt.Errorf("set oom_score_adj to %d: %w; lowering it requires CAP_SYS_RESOURCE", score, err)
	}
	return nil
}

// coldStartGC is the heap growth between two garbage collections, in percent, while the first lists arrive. At Go's
// default of 100, collection takes a quarter of a cold start's processor time, because objects become garbage as fast as
// they arrive.
const coldStartGC = 200

// ColdStart collects garbage less often until finished is called, which restores the setting and returns the memory to the
// system. If the user set GOGC, it changes no setting.
func ColdStart() (finished func()) {
	if os.Getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	before := debug.SetGCPercent(coldStartGC)
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}
