//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// nodeName is the proxy's node name.
const nodeName = "node1"

// world is a lab with an API server on node1's loopback, a client pod, and a server pod that answers for all endpoints of
// the cluster. On node2, where no proxy runs, a pod receives packets to the endpoints too.
type world struct {
	*api
	lab    *netns.Lab
	asker  *netns.Host
	server *netns.Host
	node   *netns.Host
	// answers is the server in the server pod.
	answers *netns.Server
	url     string
	folder  string
	kernel  *nf.Conn // of the node, to count the transactions of all processes
}

// api is the API server; the name avoids a conflict with the server of a pod.
type api = synthetic.Server

// newWorld builds a world. The caller must close it.
func newWorld(size synthetic.Size) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.lab, err = netns.New(netns.Options{PodNetwork: netns.Routed}); err != nil {
		return w, fmt.Errorf("build the lab: %w", err)
	}
	w.node, w.server, w.asker = w.lab.Node1.Host, w.lab.Node1.Pods[0], w.lab.Node1.Pods[1]
	if err := routeAll(w.node, w.server); err != nil {
		return w, err
	}
	if err := routeAll(w.lab.Node2.Host, w.lab.Node2.Pods[0]); err != nil {
		return w, err
	}
	if err := w.serve(); err != nil {
		return w, err
	}
	// The conntrack entry of an unanswered probe must expire before its source port is used again.
	for name, value := range map[string]string{
		"netfilter/nf_conntrack_tcp_timeout_syn_sent": "1", "netfilter/nf_conntrack_tcp_timeout_close": "1",
	} {
		if err := w.node.SetSysctl(name, value); err != nil {
			return w, err
		}
	}
	listener, err := w.node.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return w, fmt.Errorf("listen for the API server: %w", err)
	}
	w.url = "http://" + listener.Addr().String()
	w.api = synthetic.Serve(listener, synthetic.New(size, nodeName), synthetic.Options{})
	if err := w.Prepare(); err != nil {
		return w, err
	}
	if w.folder, err = os.MkdirTemp("", "bench-"); err != nil {
		return w, err
	}
	err = w.node.Do(func() (err error) {
		w.kernel, err = nf.Open()
		return err
	})
	return w, err
}

// serve starts the server in the server pod.
func (w *world) serve() (err error) {
	w.answers, err = w.server.Serve(netns.TCP, synthetic.EndpointPort)
	return err
}

// routeAll makes one pod of a node receive the packets to all possible endpoint addresses.
func routeAll(node, pod *netns.Host) error {
	endpoints := netip.MustParsePrefix(synthetic.EndpointCIDR)
	if err := node.RouteVia(pod, endpoints); err != nil {
		return err
	}
	_, err := pod.Command("ip", "route", "add", "local", endpoints.String(), "dev", "lo").Output()
	return err
}

// close removes everything. It may be called after a failed newWorld.
func (w *world) close() error {
	var errs []error
	if w.kernel != nil {
		errs = append(errs, w.kernel.Close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close()) // stops the proxy first, which would otherwise log that the API server is gone
	}
	if api := w.api; api != nil {
		errs = append(errs, api.Close())
	}
	if w.folder != "" {
		errs = append(errs, os.RemoveAll(w.folder))
	}
	return errors.Join(errs...)
}

// target returns a Service with few endpoints, so that probes see a change soon; a different one each time.
func (w *world) target(turn int) int {
	return w.Size().Services - 1 - turn%synthetic.Targets
}

// last returns the last Service of every list.
func (w *world) last() int { return w.Size().Services - 1 }

// configuration is valid for both Kubernetes' kube-proxy and this one. It disables all settings that change the machine
// outside the node's network namespace.
const configuration = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[1]s
hostnameOverride: ` + nodeName + `
clusterCIDR: 10.244.0.0/16
clientConnection:
  kubeconfig: %[2]s
  contentType: application/vnd.kubernetes.protobuf
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
%[3]s`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: %q}}]
contexts: [{name: bench, context: {cluster: bench, user: proxy}}]
current-context: bench
users: [{name: proxy, user: {}}]
`

// configure writes a configuration with the given lines at its end, and returns its path.
func (w *world) configure(mode string, lines ...string) (string, error) {
	credentials, config := filepath.Join(w.folder, "kubeconfig"), filepath.Join(w.folder, "config.yaml")
	return config, errors.Join(
		os.WriteFile(credentials, fmt.Appendf(nil, kubeconfig, w.url), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, configuration, mode, credentials, strings.Join(lines, "\n")), 0o600),
	)
}

// atOnce returns the configuration line that disables the delay of changes.
func atOnce(mode string) string { return mode + ": {minSyncPeriod: 1ms}" }
