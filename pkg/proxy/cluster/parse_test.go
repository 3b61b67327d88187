package cluster

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseAll(t *testing.T) {
	if got, err := ParseAddrs([]string{"010.0.0.1", "2001:db8::1"}); err != nil || fmt.Sprint(got) != "[10.0.0.1 2001:db8::1]" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParsePrefixes([]string{"10.1.2.3/8"}); err != nil || fmt.Sprint(got) != "[10.0.0.0/8]" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseAddrs([]string{"x", "10.0.0.1", "y"}); err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), `"y"`) {
		t.Errorf("%v, want errors about x and y", err)
	}
}
