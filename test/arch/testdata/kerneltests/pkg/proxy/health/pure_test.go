package health

import "testing"

func TestPure(t *testing.T) {}
