//go:build linux

package app

import (
	"context"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
)

// followConfig returns a part that follows the configuration file, if there is one. It ends the process with an error when the
// file was changed in place. All other changes are reported by metrics and Events.
func (p *process) followConfig(recorder proxy.Recorder, measured *metrics.Metrics) part {
	if p.opts.configFile == nil {
		return func(ctx context.Context) error { <-ctx.Done(); return nil }
	}
	changed := func(c config.Change) {
		measured.ConfigDiffers(c.Differs)
		event := proxy.Event{Kind: "Node", Name: p.Name, Warning: true, Action: "ReadConfiguration"}
		switch {
		case c.Err != nil:
			measured.ConfigRefused()
			event.Reason, event.Message = "InvalidConfiguration", "The changed configuration file is invalid and not used: "+c.Err.Error()
		case c.Differs:
			event.Reason = "ConfigurationDiffers"
			event.Message = "The configuration file differs from the configuration in force; restart kube-proxy to use it"
		default:
			return
		}
		recorder.Event(event)
	}
	return func(ctx context.Context) error { return p.opts.configFile.Run(ctx, changed) }
}
