//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"

	"sigs.k8s.io/knftables"
)

// nodeName is what the proxy takes itself for.
const nodeName = "node1"

// world is a laboratory with an API server on node1's loopback, a pod that asks, and one that answers for all
// endpoints of the cluster.
type world struct {
	*api
	lab    *netns.Lab
	asker  *netns.Host
	server *netns.Host
	node   *netns.Host
	// answers is the server in the pod of that name.
	answers *netns.Server
	url     string
	folder  string
	table   nft.Table // of the node, to count transactions by anybody
}

// api is the API server; the name keeps it apart from the server of a pod.
type api = synthetic.Server

// newWorld builds it. The caller must close it.
func newWorld(size synthetic.Size, options synthetic.Options) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.lab, err = netns.New(netns.Options{PodNetwork: netns.Routed}); err != nil {
		return w, fmt.Errorf("build the laboratory: %w", err)
	}
	w.node, w.server, w.asker = w.lab.Node1.Host, w.lab.Node1.Pods[0], w.lab.Node1.Pods[1]
	if err := w.answerForAll(); err != nil {
		return w, err
	}
	// Of a probe into nothing no trace is to be left when its port comes round again.
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
	w.api = synthetic.Serve(listener, synthetic.New(size, nodeName), options)
	if err := w.Prepare(); err != nil {
		return w, err
	}
	if w.folder, err = os.MkdirTemp("", "bench-"); err != nil {
		return w, err
	}
	err = w.node.Do(func() (err error) {
		w.table, err = nft.Open(knftables.IPv4Family, "kube-proxy")
		return err
	})
	return w, err
}

// answerForAll makes one pod answer for every address that an endpoint may have.
func (w *world) answerForAll() error {
	endpoints := netip.MustParsePrefix(synthetic.EndpointCIDR)
	if err := w.node.RouteVia(w.server, endpoints); err != nil {
		return err
	}
	if _, err := w.server.Command("ip", "route", "add", "local", endpoints.String(), "dev", "lo").Output(); err != nil {
		return err
	}
	var err error
	w.answers, err = w.server.Serve(netns.TCP, synthetic.EndpointPort)
	return err
}

// close removes everything. What has not been built is no matter.
func (w *world) close() error {
	var errs []error
	if w.table != nil {
		errs = append(errs, w.table.Close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close()) // and with it the proxy, which would complain of a server that is gone
	}
	if api := w.api; api != nil {
		errs = append(errs, api.Close())
	}
	if w.folder != "" {
		errs = append(errs, os.RemoveAll(w.folder))
	}
	return errors.Join(errs...)
}

// target gives a Service that packets soon tell changes of: another one each time.
func (w *world) target(turn int) int {
	return w.Size().Services - 1 - turn%synthetic.Targets
}

// last is the Service that comes last in every list.
func (w *world) last() int { return w.Size().Services - 1 }

// configuration is what both a Kubernetes' kube-proxy and this one read. Nothing is left that changes the machine
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

// configure writes a configuration, which ends with the given lines, and returns its path.
func (w *world) configure(mode string, lines ...string) (string, error) {
	credentials, config := filepath.Join(w.folder, "kubeconfig"), filepath.Join(w.folder, "config.yaml")
	return config, errors.Join(
		os.WriteFile(credentials, fmt.Appendf(nil, kubeconfig, w.url), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, configuration, mode, credentials, strings.Join(lines, "\n")), 0o600),
	)
}

// atOnce is the configuration's line by which no change is held back.
func atOnce(mode string) string { return mode + ": {minSyncPeriod: 1ms}" }
