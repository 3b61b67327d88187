package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion completes command lines as a shell does, where no proxy runs: names from where the command would read them, and files only
// where it takes one.
func TestCompletion(t *testing.T) {
	directory := files(t, map[string]string{
		"kubeconfig": "apiVersion: v1\nkind: Config\ncontexts: [{name: prod, context: {cluster: c}}, {name: lab, context: {cluster: c}}]\n",
	})
	objects := files(t, map[string]string{
		"web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}\n",
	})
	t.Setenv("KUBECONFIG", filepath.Join(directory, "kubeconfig"))
	const none, file = ":4\n", ":0\n"
	for line, want := range map[string]string{
		"service list ":                              none,
		"service list --node ":                       none,
		"service list --context ":                    "lab\nprod\n" + none,
		"fleet --context ":                           "lab\nprod\n" + none,
		"service list --kubeconfig ":                 file,
		"service describe --server 127.0.0.1:1 ":     none,
		"service describe --manifests DIR --node n ": "shop/web\n" + none,
		"explain --manifests DIR --node n --to ":     "shop/web\n" + none,
		"render --manifests ":                        file,
		"drain --timeout ":                           none,
		"fleet wait ":                                none,
		"fleet --compare ":                           file,
		"check --config ":                            file,
		"config convert ":                            file,
		"config validate a ":                         file,
		"config convert --to ":                       "v1alpha2\nv1alpha1\n" + none,
		"--config ":                                  file,
		"--write-config-to ":                         file,
		"--hostname-override ":                       none,
	} {
		var out, errs bytes.Buffer
		args := strings.Split(strings.ReplaceAll(line, "DIR", objects), " ")
		if code := Run(append([]string{"__complete"}, args...), &out, &errs); code != 0 || out.String() != want {
			t.Errorf("%q: exit code %d\n%s%s", line, code, &out, &errs)
		}
	}
}

// TestNodeFlags refuses flags that say which other node is meant, without one.
func TestNodeFlags(t *testing.T) {
	for _, line := range []string{"service list --context prod", "render --proxy-namespace proxies", "check --context prod", "trace web --context prod", "explain web --context prod",
		"trace web --from 10.0.0.0/8 --context prod", "explain web --from 10.0.0.1 --context prod", "explain web --from shop/pod --proxy-namespace proxies"} {
		var out, errs bytes.Buffer
		if code := Run(strings.Fields(line), &out, &errs); code != 2 || !strings.Contains(errs.String(), "--context and --proxy-namespace need --node") {
			t.Errorf("%s: exit code %d\n%s%s", line, code, &out, &errs)
		}
	}
}
