package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestFleet has command lines that cannot be used, and an API server that knows no proxy, or refuses to answer.
func TestFleet(t *testing.T) {
	const empty = `{"kind":"PodList","apiVersion":"v1","items":[]}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "/namespaces/secret/") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is forbidden: no rights"}`)
			return
		}
		if strings.Contains(r.URL.Path, "/namespaces/other/") {
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[{"spec":{"nodeName":"n7","containers":[{"name":"kube-proxy"}]}}]}`)
			return
		}
		fmt.Fprint(w, empty)
	}))
	defer api.Close()
	directory := files(t, map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n" +
		"users: [{name: c}]\nclusters: [{name: c, cluster: {server: " + api.URL + "}}]\n"})
	t.Setenv("KUBECONFIG", filepath.Join(directory, "kubeconfig"))
	for _, test := range []struct {
		line string
		code int
		want string
	}{
		{"fleet", 2, `no pod of a proxy in namespace kube-system has the labels "k8s-app=kube-proxy"`},
		{"fleet --proxy-namespace secret", 2, "list the pods of the proxy in namespace secret: pods is forbidden"},
		{"fleet -o wide", 2, "--output \"wide\" is not one of table, json, yaml"},
		{"fleet n1", 2, "unknown command or argument"},
		{"fleet --request-timeout 0s", 2, "must be positive"},
		{"fleet --port metrics", 2, "--port \"metrics\" is not a port number"},
		{"fleet wait web --healthz-port 65536", 2, "--healthz-port \"65536\" is not a port number"},
		{"fleet wait", 2, "accepts 1 arg"},
		{"fleet wait a/b/c", 2, "does not name a Service"},
		{"service list --node n1", 1, "node n1 has no pod with a container or label k8s-app kube-proxy in namespace kube-system"},
		{"trace default/web --node n1", 1, "node n1 has no pod with a container or label k8s-app kube-proxy"},
		{"explain default/web:80 --node n1 --try 3", 1, "node n1 has no pod with a container or label k8s-app kube-proxy"},
		{"check --node n1 --proxy-namespace secret", 1, "list the pods of the proxy in namespace secret"},
		{"__complete service list --proxy-namespace other --node n", 0, "NoFileComp"},
		{"service list --config x", 2, "--config needs --manifests or --kubeconfig"},
	} {
		var out, errs bytes.Buffer
		if code := Run(strings.Fields(test.line), &out, &errs); code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%s: exit code %d, %s%s; want %d, %q", test.line, code, &out, &errs, test.code, test.want)
		}
		if strings.HasPrefix(test.line, "__complete") && !strings.HasPrefix(out.String(), "n7\n") {
			t.Errorf("%s: %s", test.line, &out)
		}
	}
}

// TestFleetCompares reads an earlier report from standard input, and what cannot be one: the errors name it.
func TestFleetCompares(t *testing.T) {
	stdin := strings.NewReader(`{"kind": "Fleet", "apiVersion": "` + v1alpha1.Meta(v1alpha1.KindFleet).APIVersion + `", "time": "2026-01-01T00:00:00Z", "nodes": []}`)
	if report, err := (&fleetOptions{compare: "-"}).before(stdin); err != nil || report.Time.Year() != 2026 {
		t.Errorf("%+v, %v", report, err)
	}
	for name, want := range map[string]string{"-": "<stdin>: it is no report", t.TempDir(): "is a directory", "/dev/null": "/dev/null is not a regular file but a device"} {
		if _, err := (&fleetOptions{compare: name}).before(strings.NewReader("{}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
