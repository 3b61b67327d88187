package plan

import (
	"os"
	"testing"
	"time"
)

func TestCompute(t *testing.T) {
	t.Log(time.Now(), os.Args)
}
