package main

import (
	"bytes"
	"os"
	"testing"
)

// TestFresh checks that the committed table is that of the types.
func TestFresh(t *testing.T) {
	want, err := table("../../pkg/apis/config/types.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../pkg/apis/config/zz_generated.fields.go")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the descriptions of the configuration's fields are stale (%v): run make docs", err)
	}
}
