package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSetOOMScore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	if err := SetOOMScore(path+"/none", -999); err == nil || !strings.Contains(err.Error(), "-999") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SetOOMScore(path, -999); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "-999" {
		t.Errorf("%q", got)
	}
}
