//go:build !linux

package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
)

// newChecker returns an error: the checks read Linux.
func newChecker(*app.Loaded, bool) (*check.Checker, error) {
	return nil, fmt.Errorf("\"kube-proxy check\" runs on the node, which is Linux; this is %s", runtime.GOOS)
}

// modeHere leaves the answer to newChecker.
func modeHere(context.Context) string { return "" }

// newRehearseCommand builds the command that newChecker would need.
func newRehearseCommand() *cobra.Command { return &cobra.Command{Use: "rehearse", Hidden: true} }

// openTracer returns an error: only Linux has packets of Services.
func openTracer(context.Context, trace.Filter) (trace.Tracer, error) {
	return nil, fmt.Errorf("\"kube-proxy trace\" runs on the node, which is Linux; this is %s", runtime.GOOS)
}

// traceable leaves the answer to openTracer.
func traceable(context.Context, string) error { return nil }
