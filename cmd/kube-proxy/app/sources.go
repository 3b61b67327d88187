//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/announce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/apiserver"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// inputs are the sources of objects, and the recorder of Events about them.
type inputs struct {
	sources  []source.Source
	recorder proxy.Recorder
	// unlisted describes what has not been listed yet, with a hint; "" without one.
	unlisted func() (what, hint string)
	// invalid describes manifests that are not in use.
	invalid func() []string
	// started is the observer that removes the startup taint.
	started proxy.Observer
	// publish runs as long as the proxy does.
	publish part
}

// complete reports whether all sources are.
func (in *inputs) complete() bool { return source.AllComplete(in.sources) }

// openInputs creates the sources that the command line requests, with the node's devices for a fast path. watched configures that of
// the API server, apart from the command line's share.
func (p *process) openInputs(ctx context.Context, watched apiserver.Options) (*inputs, error) {
	machine := netif.Kernel{}
	in := &inputs{sources: []source.Source{source.NewInterfaces(machine)}, started: proxy.Ignore{}}
	if p.Planning.FastPath.On {
		in.sources = append(in.sources, source.NewDevices(machine, p.Planning.FastPath.All))
	}
	if p.opts.manifests != "" {
		files := manifests.New(p.opts.manifests, p.Name, manifests.Options{Addrs: machine.NodeAddrs})
		in.sources, in.unlisted, in.invalid = append(in.sources, files), files.Missing, files.Errors
		in.recorder = announce.Log{Logger: klog.FromContext(ctx)}
		in.publish = func(ctx context.Context) error { <-ctx.Done(); return nil }
		return in, nil
	}
	client, err := ClientConfig(p.cfg, p.opts.master)
	if err != nil {
		return nil, err
	}
	watched.TrustLists, watched.DropManagedFields, watched.LogVersion = !p.opts.relistGuard, p.opts.gates.Enabled(features.ManagedFieldsOptOutClient), true
	api, err := apiserver.New(client, p.Name, watched)
	if err != nil {
		return nil, err
	}
	published, err := announce.NewRecorder(client)
	if err != nil {
		return nil, err
	}
	in.sources, in.unlisted, in.invalid = append(in.sources, api), api.Missing, func() []string { return nil }
	in.recorder, in.publish = published, published.Run
	if of := p.opts.startupTaint; of != (announce.Taint{}) {
		in.started, err = announce.NewTaintRemover(client, p.Name, of, published)
	}
	return in, err
}

// ErrNoServer is the error if nothing says where the API server is.
var ErrNoServer = errors.New("no API server is configured, and this is no pod of a cluster")

// ClientConfig returns how to reach the API server: by a kubeconfig, by a URL, or with the pod's service account.
func ClientConfig(cfg *config.KubeProxyConfiguration, master string) (*rest.Config, error) {
	connection := &cfg.ClientConnection
	var client *rest.Config
	var err error
	if master == "" && connection.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		err = ErrNoServer
	} else {
		client, err = clientcmd.BuildConfigFromFlags(master, connection.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("configure the API client: %w; set --kubeconfig or --master, or use --manifests to run without an API server", err)
	}
	client.QPS, client.Burst = connection.QPS, int(connection.Burst)
	client.ContentType, client.AcceptContentTypes = connection.ContentType, connection.AcceptContentTypes
	return rest.AddUserAgent(client, "kube-proxy"), nil
}
