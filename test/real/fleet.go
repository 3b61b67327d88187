//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// fleetUser makes a kubeconfig whose user has no rights yet.
const fleetUser = `kubectl create serviceaccount fleet
cp $KUBECONFIG fleet.conf
kubectl --kubeconfig fleet.conf config set-credentials fleet --token=$(kubectl create token fleet --duration=3h)
kubectl --kubeconfig fleet.conf config set-context --current --user=fleet`

// The rights of the user: first the documented ones in the namespace of the proxy, then those of all nodes, then the one to run commands.
const (
	fleetRole = `kubectl apply -f build/manifests/fleet-role.yaml
kubectl -n kube-system create rolebinding fleet --role=kube-proxy-fleet --serviceaccount=default:fleet`
	fleetClusterRole = `kubectl create clusterrolebinding fleet --clusterrole=kube-proxy-fleet --serviceaccount=default:fleet`
	fleetExec        = `kubectl -n kube-system create role fleet-exec --verb=create --resource=pods/exec
kubectl -n kube-system create rolebinding fleet-exec --role=fleet-exec --serviceaccount=default:fleet`
)

// question is a command that asks proxies from beside the cluster.
type question struct {
	command string
	code    int
	want    string // a part of what it prints
}

// fleet asks all nodes, and one, with the rights that docs/fleet.md names.
func (w *world) fleet(ctx context.Context) error {
	if err := w.administer(ctx, fleetUser); err != nil {
		return err
	}
	user := w.path("docs", "fleet.conf")
	err := w.askAll(ctx, user, question{"kubectl kube-proxy fleet", 2, "is forbidden"})
	if err == nil {
		err = w.administer(ctx, fleetRole)
	}
	if err == nil {
		err = w.askAll(ctx, user,
			question{"kubectl kube-proxy fleet", 0, "there is no right to list Nodes"},
			question{"kube-proxy fleet wait service/web", 2, `cannot get resource "services"`})
	}
	if err == nil {
		err = w.administer(ctx, fleetClusterRole)
	}
	if err == nil {
		err = w.askAll(ctx, user,
			question{"kubectl kube-proxy fleet", 0, "2 nodes: 2 OK."},
			question{"kube-proxy fleet wait service/web", 0, "served by 2 nodes with 8 endpoints"},
			question{"kubectl scale deployment/web --replicas=6 --kubeconfig $ADMIN && kubectl rollout status deployment/web --kubeconfig $ADMIN && " +
				"kube-proxy fleet wait service/web", 0, "served by 2 nodes with 12 endpoints"},
			question{"kubectl scale deployment/web --replicas=4 --kubeconfig $ADMIN", 0, "scaled"})
	}
	if err == nil { // the slices follow a moment later
		err = eventually(ctx, func() error {
			return w.askAll(ctx, user, question{"kube-proxy fleet wait service/web", 0, "served by 2 nodes with 8 endpoints"})
		})
	}
	if err == nil {
		err = w.askAll(ctx, user,
			question{"kube-proxy service list -A --node node2", 0, "sticky"},
			question{"kube-proxy explain default/web --node node2", 0, "10.96.0.100:80/TCP"},
			question{"kube-proxy trace default/web --node node2", 1, `cannot create resource "pods/exec"`})
	}
	if err == nil {
		err = w.administer(ctx, fleetExec)
	}
	if err != nil {
		return err
	}
	return w.under(ctx, nil, func() error {
		return errors.Join(w.askAll(ctx, user,
			question{"kube-proxy trace default/web --node node2 --new --count 3", 0, "of default/web"},
			question{"kube-proxy explain default/web --node node2 --try 10", 0, "Tried 10: 10 connected"},
			question{"kube-proxy check --node node2 --config /var/lib/kube-proxy/config.conf", 0, "proxy"},
		), w.fleetWithout(ctx, user))
	})
}

// fleetWithout asks while the proxy of the second node stands still.
func (w *world) fleetWithout(ctx context.Context, user string) error {
	n := w.nodes[1]
	if err := all(n.command(ctx, "pkill", "-STOP", "-x", "kube-proxy")); err != nil {
		return err
	}
	err := w.askAll(ctx, user,
		question{"kube-proxy fleet", 1, "node2   -"},
		question{"kube-proxy fleet wait service/web --timeout 5s", 1, "node node2: "})
	err = errors.Join(err, all(n.command(ctx, "pkill", "-CONT", "-x", "kube-proxy")))
	if err != nil {
		return err
	}
	return eventually(ctx, func() error { return w.askAll(ctx, user, question{"kube-proxy fleet", 0, "2 nodes: 2 OK."}) })
}

// administer runs a script of an administrator beside the documented files.
func (w *world) administer(ctx context.Context, script string) error {
	_, err := output(w.shell(ctx, "set -ex\n"+script))
	return err
}

// shell prepares a script on the machine beside the cluster, for which the program kube-proxy, also as a plugin of kubectl, is ours.
func (w *world) shell(ctx context.Context, script string) *exec.Cmd {
	cmd := command(ctx, "sh", "-c", script)
	cmd.Dir = w.path("docs")
	cmd.Env = append(os.Environ(), "PATH="+w.path("ours")+":"+os.Getenv("PATH"), "ADMIN="+os.Getenv("KUBECONFIG"))
	return cmd
}

// linkOurs links our program by the names that shell finds.
func (w *world) linkOurs() error {
	program := filepath.Join(w.repository, "bin", "image", "linux_"+runtime.GOARCH, "kube-proxy")
	return errors.Join(os.MkdirAll(w.path("ours"), 0o755),
		os.Symlink(program, w.path("ours", "kube-proxy")), os.Symlink(program, w.path("ours", "kubectl-kube_proxy")))
}

// askAll asks questions with a kubeconfig, in order, and prints the answers.
func (w *world) askAll(ctx context.Context, kubeconfig string, questions ...question) error {
	for _, q := range questions {
		cmd := w.shell(ctx, q.command)
		cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
		text, err := cmd.CombinedOutput()
		fmt.Printf("   $ %s\n     %s\n", q.command, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n     "))
		if cmd.ProcessState == nil {
			return fmt.Errorf("%s: %w", q.command, err)
		}
		if code := cmd.ProcessState.ExitCode(); code != q.code || !strings.Contains(string(text), q.want) {
			return fmt.Errorf("%s: exit code %d, want %d, and %q in\n%s", q.command, code, q.code, q.want, text)
		}
	}
	return nil
}
