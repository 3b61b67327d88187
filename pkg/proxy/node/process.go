package node

import (
	"fmt"
	"os"
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
