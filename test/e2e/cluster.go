//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	// The servers run in their own network namespace, so any port is free.
	etcdURL = "http://127.0.0.1:2379"
	peerURL = "http://127.0.0.1:2380"
	apiPort = "6443"
	apiURL  = "https://127.0.0.1:" + apiPort // from the same host

	startTimeout = 2 * time.Minute
)

// Cluster is an API server with its etcd on a lab host. The API server listens on all addresses of the host.
type Cluster struct {
	Host *netns.Host
	// Dir contains certificates, data and logs.
	Dir string
	// Client has administrator rights.
	Client kubernetes.Interface

	etcd, api, manager *netns.Cmd
}

// StartCluster starts etcd and the API server and waits until it is ready.
func StartCluster(ctx context.Context, host *netns.Host, dir string) (*Cluster, error) {
	c := &Cluster{Host: host, Dir: dir}
	ca, err := newAuthority(dir)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		ca.server("server", host.IPv4.AsSlice(), host.IPv6.AsSlice()), ca.client("accounts", "accounts"),
		ca.client("admin", "admin", "system:masters"),
		// The user that the default ClusterRoleBinding system:node-proxier is for.
		ca.client("proxy", "system:kube-proxy"),
		ca.client("nobody", "nobody"),
		ca.client("auditor", "auditor"), // gets the role of build/manifests
	)
	if err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	config := c.Config("admin")
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := c.StartServer(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	c.etcd, err = c.start(ctx, etcdServer, "--data-dir="+c.path("etcd"), "--listen-client-urls="+etcdURL,
		"--advertise-client-urls="+etcdURL, "--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster=default="+peerURL, "--unsafe-no-fsync")
	return err
}

// Replace stops the API server and etcd, calls change with the directory of etcd's data, and starts both again.
func (c *Cluster) Replace(ctx context.Context, change func(data string) error) error {
	if err := c.StopServer(); err != nil {
		return err
	}
	if err := c.etcd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	_ = c.etcd.Wait() // only the exit matters, not its status
	if err := change(c.path("etcd")); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartServer(ctx)
}

// StartServer starts the API server and waits until it is ready.
func (c *Cluster) StartServer(ctx context.Context) (err error) {
	c.api, err = c.start(ctx, apiServer,
		"--etcd-servers="+etcdURL, "--secure-port="+apiPort, "--bind-address=::", "--advertise-address="+c.Host.IPv4.String(),
		"--tls-cert-file="+c.path("server.crt"), "--tls-private-key-file="+c.path("server.key"),
		"--client-ca-file="+c.path("ca.crt"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://e2e", "--service-account-key-file="+c.path("accounts.key"),
		"--service-account-signing-key-file="+c.path("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112", "--endpoint-reconciler-type=none", "--allow-privileged", "--v=1")
	if err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// waitReady waits until the server is ready and its default roles exist.
func (c *Cluster) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the API server is not ready: %w: %w; its log ends with\n%s", err, last, c.logEnd())
	}
	return nil
}

// StartManager starts the controller manager with the controllers of a cluster that runs Pods: EndpointSlices, DaemonSets, the
// ServiceAccounts and certificates that Pods need, and the end of what belongs to deleted objects.
func (c *Cluster) StartManager(ctx context.Context) error {
	kubeconfig, err := c.Kubeconfig("admin")
	if err != nil {
		return err
	}
	controllers := []string{"endpointslice-controller", "endpointslice-mirroring-controller", "endpoints-controller", "daemonset-controller",
		"serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller", "garbage-collector-controller"}
	c.manager, err = c.start(ctx, manager, "--kubeconfig="+kubeconfig, "--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false", "--secure-port=0", "--root-ca-file="+c.path("ca.crt"),
		"--service-account-private-key-file="+c.path("accounts.key"), "--v=1")
	return err
}

// logEnd returns the end of the servers' logs, whose files are removed with the test.
func (c *Cluster) logEnd() string {
	const most = 4096
	var end strings.Builder
	for _, s := range []server{etcdServer, apiServer, manager} {
		text, err := os.ReadFile(c.path(s.name + ".log"))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&end, "%s:\n%s\n", s.name, text[max(0, len(text)-most):])
	}
	return end.String()
}

// StopServer stops the API server with SIGTERM, as an upgrade does, and waits for its exit.
func (c *Cluster) StopServer() error {
	old := c.api
	if err := old.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	// It drains watch connections; do not wait for that.
	impatience := time.AfterFunc(5*time.Second, func() { _ = old.Kill() })
	defer impatience.Stop()
	_ = old.Wait() // only the exit matters, not its status
	return nil
}

// start starts a server with its log in Dir.
func (c *Cluster) start(ctx context.Context, s server, args ...string) (*netns.Cmd, error) {
	binary, err := s.binary(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.path(s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own file descriptor
	cmd := c.Host.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

func (c *Cluster) path(name string) string { return filepath.Join(c.Dir, name) }

// Config returns a client configuration for a user. It connects through the host's namespace.
func (c *Cluster) Config(user string) *rest.Config {
	return &rest.Config{
		Host: apiURL,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: c.path("ca.crt"), CertFile: c.path(user + ".crt"), KeyFile: c.path(user + ".key"),
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Host.Dial(ctx, network, address)
		},
		QPS:   1000,
		Burst: 1000,
	}
}

// Kubeconfig writes a kubeconfig for a user and returns its path.
func (c *Cluster) Kubeconfig(user string) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: apiURL, CertificateAuthority: c.path("ca.crt")}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: c.path(user + ".crt"), ClientKey: c.path(user + ".key")}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: user}
	config.CurrentContext = "e2e"
	path := c.path(user + ".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
