package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// Run runs a command in the proxy's container on the selected node, for what needs that node's kernel, and returns its exit code. It needs
// the right to create pods/exec, which is as much as root on the node. A command may be silent for minutes, so it first runs one that is not:
// if that does not answer in time, the kubelet does not.
func (f *Fleet) Run(ctx context.Context, stdout, stderr io.Writer, command ...string) (code int, err error) {
	t, err := f.one(ctx)
	if err != nil {
		return 0, err
	}
	if f.options.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, f.options.Timeout, fmt.Errorf("pod %s has not run a command within %s: the API server does not answer, "+
			"or the kubelet of the node, which kubectl logs needs, too", t.pod, f.options.Timeout))
		defer cancel()
		if _, err := f.exec(limited, t, io.Discard, io.Discard, command[0], "--version"); err != nil {
			return 0, err
		}
	}
	return f.exec(ctx, t, stdout, stderr, command...)
}

// exec runs a command in a pod.
func (f *Fleet) exec(ctx context.Context, t target, stdout, stderr io.Writer, command ...string) (code int, err error) {
	request := f.clients[apiclient.Pods.Version].Post().Namespace(f.options.Namespace).Resource(apiclient.Pods.Name).Name(t.pod).SubResource("exec").
		Param("container", t.container).Param("stdout", "true").Param("stderr", "true")
	for _, word := range command {
		request.Param("command", word)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(f.config, http.MethodGet, request.URL().String())
	if err != nil {
		return 0, err
	}
	overSPDY, err := remotecommand.NewSPDYExecutor(f.config, http.MethodPost, request.URL())
	if err != nil {
		return 0, err
	}
	executor, err := remotecommand.NewFallbackExecutor(overWebSocket, overSPDY,
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
	}()
	select {
	case err = <-ended:
	case <-ctx.Done(): // the handshake of SPDY does not end with it
	}
	var exited exec.CodeExitError
	switch {
	case errors.As(err, &exited):
		return exited.Code, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, fmt.Errorf("run %s in pod %s: %w", command[0], t.pod, err)
	}
	return 0, nil
}

// Nodes returns the names of the selected nodes with a proxy's pod; none if they are not known.
func (f *Fleet) Nodes(ctx context.Context) (names []string) {
	targets, _ := find(ctx, f.clients, f.options.Selection)
	for _, t := range targets {
		names = append(names, t.node)
	}
	return names
}

// one returns the pod of the selected node.
func (f *Fleet) one(ctx context.Context) (target, error) {
	targets, err := find(ctx, f.clients, f.options.Selection)
	switch {
	case err != nil:
		return target{}, err
	case len(targets) == 0:
		return target{}, fmt.Errorf("node %s has no pod with a container or label k8s-app %s in namespace %s: see --proxy-namespace", f.options.Node, proxyName, f.options.Namespace)
	case targets[0].problem != "":
		return target{}, fmt.Errorf("pod %s on node %s cannot be asked: %s", targets[0].pod, f.options.Node, targets[0].problem)
	}
	return targets[0], nil
}
