package nftables

import "testing"

func TestRun(*testing.T) { run(&state{}) }
