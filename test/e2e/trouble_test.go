//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// whole reports whether all failures are tested, as by make cluster, or only the most important one.
func whole() bool { return os.Getenv("CLUSTER") == "whole" }

// outage is how long the API server is gone.
func outage() time.Duration {
	if whole() {
		return time.Minute
	}
	return 2 * time.Second
}

// bystanders is the number of Services that no step of a trouble changes.
const bystanders = 40

// trouble is a proxy with a ServiceAccount's token behind a reverse proxy.
type trouble struct {
	*world
	between *between
	role    *rbacv1.ClusterRole
	// token and authority are the paths of the proxy's credentials.
	token, authority string
	step             int
	end              int // of the log before the current step
}

// apiServerTrouble makes the API server fail in every way, while objects change and connections are opened: none of these may
// fail, the proxy must catch up with one difference, and log and metrics must show the cause.
func apiServerTrouble(w *world) {
	w.stop()
	x := &trouble{world: w, token: w.cluster.path("token"), authority: w.cluster.path("bundle.crt")}
	x.install()
	var err error
	x.between, err = newBetween(w.cluster)
	w.must(err)
	w.must(x.between.start())
	w.t.Cleanup(func() { _ = x.between.stop() })
	for i := range bystanders {
		w.service(fmt.Sprintf("bystander-%d", i), fmt.Sprintf("10.96.1.%d", i+1), fmt.Sprintf("fd00:10:96::%x", 0x1000+i))
		w.endpoints(fmt.Sprintf("bystander-%d", i), w.lab.Node2.Pods[0])
	}
	x.startThrough()
	w.healthy()
	end := w.stream()
	x.during("gone, restarted and compacted", "unreachable", x.gone)
	if whole() {
		x.during("expired token", "unauthorized", x.expiredToken) // client-go reads the file once a minute
		x.during("500", "failing", x.answering(http.StatusInternalServerError, metav1.StatusReasonInternalError))
		x.during("429", "busy", x.answering(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests))
		x.slow()
		x.during("another certificate authority", "untrusted", x.rotatedAuthority)
	}
	x.rights()
	end()
}

// install creates the ServiceAccount with the rights of build/manifests, and its token.
func (x *trouble) install() {
	x.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "build", "manifests", "base", "rbac.yaml"))
	x.must(err)
	documents := strings.Split(string(text), "\n---\n")
	x.role = &rbacv1.ClusterRole{}
	var binding rbacv1.ClusterRoleBinding
	x.must(yaml.UnmarshalStrict([]byte(documents[0]), x.role))
	x.must(yaml.UnmarshalStrict([]byte(documents[1]), &binding))
	ctx := x.t.Context()
	x.role, err = x.client.RbacV1().ClusterRoles().Create(ctx, x.role, metav1.CreateOptions{})
	x.must(err)
	_, err = x.client.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{})
	x.must(err)
	_, err = x.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"}}, metav1.CreateOptions{})
	x.must(err)
	x.issue("first")
	ca, err := os.ReadFile(x.cluster.path("ca.crt"))
	x.must(err)
	x.must(os.WriteFile(x.authority, ca, 0o600))
}

// issue writes a new token, which is valid as long as a Secret exists.
func (x *trouble) issue(secret string) {
	x.t.Helper()
	ctx := x.t.Context()
	made, err := x.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{})
	x.must(err)
	answer, err := x.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, "kube-proxy", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: secret, UID: made.UID}},
	}, metav1.CreateOptions{})
	x.must(err)
	x.must(os.WriteFile(x.token, []byte(answer.Status.Token), 0o600))
}

// startThrough starts the proxy with the token, through the reverse proxy.
func (x *trouble) startThrough() {
	x.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: betweenURL, CertificateAuthority: x.authority}
	config.AuthInfos["proxy"] = &clientcmdapi.AuthInfo{TokenFile: x.token}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "proxy"}
	config.CurrentContext = "e2e"
	x.must(clientcmd.WriteToFile(*config, x.cluster.path("through.kubeconfig")))
	x.startWith(x.cluster.path("through.kubeconfig"))
}

// recent returns the log since the step began.
func (x *trouble) recent() string { return x.logged()[x.end:] }

// during makes the API server fail, changes objects meanwhile, and checks what the proxy does and logs. fail begins the
// failure and returns the function that ends it.
func (x *trouble) during(what, cause string, fail func() (end func())) {
	x.t.Helper()
	x.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), what)
	x.end = len(x.logged())
	heal := fail()
	x.metric(fmt.Sprintf("serviceproxy_watch_failing{reason=%q,resource=\"services\"} 1", cause),
		fmt.Sprintf("serviceproxy_watch_failing{reason=%q,resource=\"endpointslices\"} 1", cause))
	catchUp := x.changeBehind()
	if code, body := x.get("http://" + healthz + "/healthz"); code != http.StatusOK {
		x.t.Errorf("%s: /healthz answers %d %s", what, code, body)
	}
	heal()
	catchUp()
	x.eventually("no watch fails", func() string {
		_, body := x.get("http://" + metricsAddress + "/metrics")
		return regexp.MustCompile(`(?m)^serviceproxy_watch_failing\{.*\} 1$`).FindString(body)
	})
	x.logsOnce(what, cause)
	x.wroteOnlyChanges(what)
}

// changeBehind changes objects while the proxy cannot see it: a Service is created, another one is deleted. The returned
// function waits until both have arrived.
func (x *trouble) changeBehind() (arrived func()) {
	x.t.Helper()
	x.step++
	address := fmt.Sprintf("10.96.2.%d:80", x.step)
	name := fmt.Sprintf("behind-%d", x.step)
	x.service(name, fmt.Sprintf("10.96.2.%d", x.step), fmt.Sprintf("fd00:10:96::%x", 0x2000+x.step))
	x.endpoints(name, x.lab.Node1.Pods[0])
	if x.step > 1 {
		x.remove(fmt.Sprintf("behind-%d", x.step-1))
	}
	return func() {
		x.t.Helper()
		x.answers(x.lab.Node1.Pods[1], netns.TCP, address, "pod1a")
		if x.step > 1 {
			x.silent(x.lab.Node1.Pods[1], netns.TCP, fmt.Sprintf("10.96.2.%d:80", x.step-1))
		}
	}
}

// logsOnce checks that the failure is logged once, with its cause, and that no line is long.
func (x *trouble) logsOnce(what, cause string) {
	x.t.Helper()
	failures := 0
	for line := range strings.Lines(x.recent()) {
		if strings.Contains(line, "List or watch failed") {
			failures++
		}
		if len(line) > 700 || strings.Contains(line, "ObjectMeta") {
			x.t.Errorf("%s: a long line: %s", what, line)
		}
	}
	if failures != 1 || !strings.Contains(x.recent(), fmt.Sprintf("failure=%q", cause)) {
		x.t.Errorf("%s: %d lines about the failure, want one with the cause %q:\n%s", what, failures, cause, x.recent())
	}
}

var written = regexp.MustCompile(`"Synced".* services=\d+ .*elementsWritten=(\d+) rulesWritten=(\d+) refusedPorts=0 familiesRead=(\d+)`)

// wroteOnlyChanges checks that catching up wrote the difference only: much less than the bystanders' rules.
func (x *trouble) wroteOnlyChanges(what string) {
	x.t.Helper()
	total, reads := 0, 0
	syncs := written.FindAllStringSubmatch(x.recent(), -1)
	for _, sync := range syncs {
		for i, sum := range []*int{&total, &total, &reads} {
			n, err := strconv.Atoi(sync[i+1])
			x.must(err)
			*sum += n
		}
	}
	x.t.Logf("%s: caught up in %d syncs, which wrote %d elements and chains", what, len(syncs), total)
	if len(syncs) == 0 || total == 0 || total > bystanders || reads > 0 {
		x.t.Errorf("%s: caught up in %d syncs, which wrote %d elements and chains and read the kernel's rules %d times", what, len(syncs), total, reads)
	}
}

// gone stops the API server, as far as the proxy can see, restarts it, and discards what watches would need to go on.
func (x *trouble) gone() (end func()) {
	x.must(x.between.stop())
	since := time.Now()
	return func() {
		x.t.Helper()
		time.Sleep(time.Until(since.Add(outage())))
		x.must(x.cluster.StopServer())
		x.compact()
		x.must(x.cluster.StartServer(x.t.Context()))
		x.must(x.between.start())
		x.eventually("a watch expires", func() string {
			if x.between.expired.Load() == 0 {
				return "none has"
			}
			return ""
		})
	}
}

// compact discards the history of etcd.
func (x *trouble) compact() {
	x.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: x.lab.Node1.Dial, DisableKeepAlives: true}, Timeout: patience}
	post := func(path, body string) (answer struct{ Header struct{ Revision string } }) {
		response, err := client.Post(etcdURL+path, "application/json", strings.NewReader(body))
		x.must(err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		x.must(err)
		if response.StatusCode != http.StatusOK {
			x.t.Fatalf("etcd answers %d %s", response.StatusCode, text)
		}
		x.must(json.Unmarshal(text, &answer))
		return answer
	}
	now := post("/v3/kv/range", `{"key":"AA=="}`).Header.Revision
	post("/v3/kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now))
}

// answering answers every request with a failure.
func (x *trouble) answering(code int, reason metav1.StatusReason) func() (end func()) {
	return func() (end func()) {
		status, err := json.Marshal(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "the test says so"})
		x.must(err)
		x.between.behave(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write(status)
			return false
		})
		x.between.hangUp()
		return func() { x.between.behave(nil) }
	}
}

// expiredToken makes the token invalid, and writes a new one into its file.
func (x *trouble) expiredToken() (end func()) {
	x.must(x.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(x.t.Context(), "first", metav1.DeleteOptions{}))
	hangUp := time.NewTicker(2 * time.Second) // the server trusts the token for some more seconds
	defer hangUp.Stop()
	x.eventually("the token is refused", func() string {
		select {
		case <-hangUp.C:
			x.between.hangUp()
		default:
		}
		if strings.Contains(x.recent(), "Unauthorized") {
			return ""
		}
		return "it is not"
	})
	return func() { x.issue("second") }
}

// slow delays every answer. Nothing fails, and changes arrive late.
func (x *trouble) slow() {
	x.end = len(x.logged())
	const delay = 5 * time.Second
	x.between.behave(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
		return true
	})
	x.between.hangUp()
	x.changeBehind()()
	x.between.behave(nil)
	x.wroteOnlyChanges("slow")
}

// rotatedAuthority serves a certificate of another authority, and adds that to the file of the proxy, which client-go reads
// every five minutes.
func (x *trouble) rotatedAuthority() (end func()) {
	x.must(os.MkdirAll(x.cluster.path("rotated"), 0o700))
	rotated, err := newAuthority(x.cluster.path("rotated"))
	x.must(err)
	x.must(rotated.server("server", net.IPv4(127, 0, 0, 1)))
	x.must(x.between.certify(filepath.Join(rotated.dir, "server.crt"), filepath.Join(rotated.dir, "server.key")))
	x.between.hangUp()
	return func() {
		bundle, err := os.OpenFile(x.authority, os.O_APPEND|os.O_WRONLY, 0)
		x.must(err)
		defer bundle.Close()
		more, err := os.ReadFile(filepath.Join(rotated.dir, "ca.crt"))
		x.must(err)
		_, err = bundle.Write(more)
		x.must(err)
		until := time.Now().Add(7 * time.Minute)
		for time.Now().Before(until) && !strings.Contains(x.recent(), "succeed again") {
			time.Sleep(time.Second)
		}
	}
}

// rights takes away each right of the role in turn, from a proxy that streams lists, and from one that does not, like one in
// front of an older server. Without list a streaming proxy works as before.
func (x *trouble) rights() {
	for _, streams := range []bool{true, false} {
		x.t.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(streams))
		x.stop()
		x.startThrough()
		x.healthy()
		for i, rule := range x.role.Rules {
			for _, verb := range rule.Verbs {
				if rule.Resources[0] == "events" || verb == "list" && streams {
					continue // Events: see the tests of package events
				}
				if whole() || i == 0 {
					x.without(i, verb)
				}
			}
		}
	}
}

// without takes away a right of a rule of the role, until the log names it, and gives it back.
func (x *trouble) without(rule int, verb string) {
	x.t.Helper()
	resource := x.role.Rules[rule].Resources[0]
	x.end = len(x.logged())
	x.grant(func(role *rbacv1.ClusterRole) {
		role.Rules[rule].Verbs = slices.DeleteFunc(slices.Clone(role.Rules[rule].Verbs), func(v string) bool { return v == verb })
	})
	// A list is needed only when the server no longer has what a watch would need to go on.
	x.between.behave(func(w http.ResponseWriter, r *http.Request) bool {
		if q := r.URL.Query(); q.Get("watch") == "" || q.Get("resourceVersion") == "" || verb != "list" {
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		x.must(json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Code: http.StatusGone, Reason: metav1.StatusReasonExpired}))
		return false
	})
	x.between.hangUp()
	x.metric(fmt.Sprintf("serviceproxy_watch_failing{reason=\"forbidden\",resource=%q} 1", resource))
	named := fmt.Sprintf("cannot %s resource \\%q", verb, resource)
	named = strings.TrimSuffix(named, `"`)
	failures := 0
	for line := range strings.Lines(x.recent()) {
		if strings.Contains(line, "List or watch failed") && strings.Contains(line, named) {
			failures++
		}
	}
	if failures != 1 {
		x.t.Errorf("without %s of %s, %d lines name it, want one:\n%s", verb, resource, failures, x.recent())
	}
	x.between.behave(nil)
	x.grant(func(*rbacv1.ClusterRole) {})
	x.metric(fmt.Sprintf("serviceproxy_watch_failing{reason=\"forbidden\",resource=%q} 0", resource))
}

// grant updates the role.
func (x *trouble) grant(change func(*rbacv1.ClusterRole)) {
	x.t.Helper()
	role := x.role.DeepCopy()
	change(role)
	role.ResourceVersion = ""
	_, err := x.client.RbacV1().ClusterRoles().Update(x.t.Context(), role, metav1.UpdateOptions{})
	x.must(err)
}
