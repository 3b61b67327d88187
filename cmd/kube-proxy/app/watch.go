//go:build linux

package app

import (
	"context"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile/watch"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
)

// followConfig follows the configuration file. It returns an error, which ends the process, when the file was changed in
// place. Any other change is reported: by differs, which is called with whether the file differs from the configuration
// in force, by refused, which is called when the file became invalid, and by Events.
func (p *process) followConfig(ctx context.Context, differs func(bool), refused func()) error {
	return p.opts.configFile.Run(ctx, func(c watch.Change) {
		differs(c.Differs)
		event := proxy.Event{Kind: "Node", Name: p.name, Warning: true, Action: "ReadConfiguration"}
		switch {
		case c.Err != nil:
			refused()
			event.Reason, event.Message = "InvalidConfiguration", "The changed configuration file is invalid and not used: "+c.Err.Error()
		case c.Differs:
			event.Reason = "ConfigurationDiffers"
			event.Message = "The configuration file differs from the configuration in force; restart kube-proxy to use it"
		default:
			return
		}
		p.in.recorder.Event(event)
	})
}
