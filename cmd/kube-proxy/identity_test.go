//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// TestIdentifyFails proves that a source that fails before it is complete ends the start, and is not waited for.
func TestIdentifyFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in := &inputs{standalone: true, sources: []source.Source{manifests.New(filepath.Join(t.TempDir(), "missing"), "node1")}}
	if _, err := in.identify(ctx, cluster.NewBuilder("node1"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the folder of manifests: %v", err)
	}
}
