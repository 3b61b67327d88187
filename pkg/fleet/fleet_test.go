package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// web is a Service with these endpoint addresses.
func web(endpoints ...string) string {
	var all []string
	for i, address := range endpoints {
		all = append(all, fmt.Sprintf("{addresses: [%s], nodeName: node%d}", address, i+1))
	}
	return clusters.Service("default/web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]") +
		clusters.Slice("default/web", "web-1", "{name: http, port: 8080}", all...)
}

var options = Options{Selection: Selection{Namespace: "kube-system", Selector: "k8s-app=kube-proxy"}, Ports: Ports{"10249", "10256"},
	Timeout: time.Minute, Lag: 10 * time.Second, Settle: time.Millisecond}

func ask(t *testing.T, s *apiServer, change ...func(*Options)) *Report {
	t.Helper()
	o := options
	for _, c := range change {
		c(&o)
	}
	f, err := New(s.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	report, err := f.Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestStates has a node of each kind, by WebSocket and by SPDY.
func TestStates(t *testing.T) {
	objects := web("10.244.1.2", "10.244.2.2")
	for _, noWebSocket := range []bool{false, true} {
		long := time.Now().Add(-time.Hour)
		draining := ours(t, objects)
		draining.healthz = 503
		s := &apiServer{t: t, noWebSocket: noWebSocket, bare: []string{"bare"}, pods: map[string]*pod{
			"kube-proxy-fine":   ours(t, objects),
			"kube-proxy-drains": draining,
			"kube-proxy-lags":   ours(t, objects, func(i *v1alpha1.Info) { i.Pending = &long }),
			"kube-proxy-waits":  ours(t, objects, func(i *v1alpha1.Info) { i.Waiting = []string{"the API server to list services"} }),
			"kube-proxy-fails": ours(t, objects, func(i *v1alpha1.Info) {
				i.Sync = &v1alpha1.Sync{Families: []v1alpha1.FamilySync{{Family: "IPv6", Error: "busy"}}}
			}),
			"kube-proxy-older":     older(ours(t, objects)),
			"kube-proxy-upstream":  upstream(),
			"kube-proxy-silent":    {},
			"kube-proxy-forbidden": {forbidden: true},
			"kube-proxy-pulls":     {waiting: "ImagePullBackOff"},
			"kube-proxy-crashes":   {waiting: "CrashLoopBackOff", pages: upstream().pages},
		}}
		report := ask(t, s)
		out := report.Text()
		for _, line := range []string{
			`fine v0.5.0 nftables ok 0s 1 1 OK`,
			`drains v0.5.0 nftables 503 0s 1 1 /healthz answers 503`,
			`lags v0.5.0 nftables ok 0s 1 1 lags: a change of `,
			`waits v0.5.0 nftables ok 0s 1 1 waits for the API server to list services`,
			`fails v0.5.0 nftables ok 0s 1 1 Failing: IPv6: the last sync failed: busy`,
			`older v0.5.0 nftables ok 0s 1 1 an older version of this program: what it knows cannot be compared`,
			`upstream v1.37.2 ipvs ok - - - Foreign: Kubernetes' own kube-proxy, or a version without this API (image kube-proxy:v1.37.2)`,
			`silent - - - - - - Unreachable: nothing listens on port 10249 of localhost`,
			`forbidden - - - - - - Forbidden: `,
			`pulls - - - - - - NotRunning: the pod is Pending: ImagePullBackOff`,
			`crashes - - - - - - NotRunning: the pod is Running: CrashLoopBackOff`,
			`bare - - - - - - NoPod: no pod of a proxy`,
			`12 nodes: 1 OK, 1 Failing, 1 Forbidden, 1 Foreign, 1 NoPod, 2 NotRunning, 1 Unreachable.`,
		} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), line) {
				t.Errorf("without %q:\n%s", line, out)
			}
		}
		if report.Fine() || len(report.Disagreements) > 0 {
			t.Errorf("got %+v", report.Disagreements)
		}
	}
}

// TestDisagreement compares nodes that know different endpoints of a Service.
func TestDisagreement(t *testing.T) {
	objects := web("10.244.1.2", "10.244.2.2")
	s := &apiServer{t: t, forbidNodes: true, pods: map[string]*pod{}}
	for i := range 5 {
		s.pods[fmt.Sprintf("kube-proxy-n%d", i)] = ours(t, objects)
	}
	if report := ask(t, s); !report.Fine() || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "no right to list Nodes") {
		t.Errorf("equal nodes: %+v", report)
	}
	s.pods["kube-proxy-n0"] = ours(t, web("10.244.1.2", "10.244.2.3"))
	s.pods["kube-proxy-n3"] = ours(t, clusters.Service("other/db", "clusterIP: 10.96.0.11, ports: [{port: 5432}]"))
	report := ask(t, s)
	out := report.Text()
	for _, want := range []string{
		"default/web differs on 2 nodes (n0, n3) from n1:\n",
		"n0 lacks endpoint 10.244.2.2:8080 of slice web-1 for port 80/TCP",
		"n0 still has endpoint 10.244.2.3:8080 of slice web-1 for port 80/TCP",
		"5 nodes: 5 OK; they disagree about 2 Services.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
	if report.Fine() {
		t.Error("nodes that disagree are fine")
	}
}

// TestFailingFamily compares nodes that show the same, of which one has an earlier version in force in a family.
func TestFailingFamily(t *testing.T) {
	objects := web("10.244.1.2", "10.244.2.2")
	s := &apiServer{t: t, pods: map[string]*pod{}}
	for i := range 3 {
		s.pods[fmt.Sprintf("kube-proxy-n%d", i)] = ours(t, objects)
	}
	earlier := ours(t, objects, func(i *v1alpha1.Info) {
		i.Sync = &v1alpha1.Sync{Families: []v1alpha1.FamilySync{{Family: "IPv4"}, {Family: "IPv6", Error: "busy"}}}
	})
	s.pods["kube-proxy-n2"] = &pod{healthz: 200, pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/digests") {
			_ = json.NewEncoder(w).Encode(v1alpha1.Digests{TypeMeta: v1alpha1.Meta(v1alpha1.KindDigests), All: "1", Services: map[string]string{"default/web": "1"}})
			return
		}
		earlier.pages.ServeHTTP(w, r)
	})}
	const want = "n2 may differ because an earlier version, or none, is in force on n2 (IPv6: the last sync failed: busy)\n"
	if out := ask(t, s).Text(); !strings.Contains(out, want) || strings.Contains(out, "not shown") {
		t.Errorf("without %q:\n%s", want, out)
	}
}

// TestDifferences has disagreements about what only some proxies show.
func TestDifferences(t *testing.T) {
	objects := web("10.244.1.2")
	for _, test := range []struct{ old, new, want string }{
		{"nodeName: node1", "nodeName: node1, hints: {forZones: [{name: a}]}", "has endpoint 10.244.1.2:8080 of slice web-1 for port 80/TCP that is ready, serving, for zones a, not that is ready, serving"},
		{"clusterIP:", "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30081, clusterIP:", "still has health check node port"},
		{"name: web,", `name: web, annotations: {service.kubernetes.io/udp-connection-handling: PreserveDuringTermination},`, "differs in what is not shown"},
		{"name: web,", "name: web, annotations: {kube-proxy/lb-algorithm: maglev},", "differs in what is not shown"},
	} {
		changed := strings.Replace(objects, test.old, test.new, 1)
		s := &apiServer{t: t, pods: map[string]*pod{"kube-proxy-n0": ours(t, changed), "kube-proxy-n1": ours(t, objects), "kube-proxy-n2": ours(t, objects)}}
		if all := ask(t, s).Disagreements; changed == objects || len(all) != 1 || !strings.Contains(strings.Join(all[0].Differences, "\n"), test.want) {
			t.Errorf("%s: %+v\n%s", test.new, all, changed)
		}
	}
}

// TestMany asks 500 nodes. Ten do not answer. The number of nodes asked at a time is bounded, and those ten delay no other.
func TestMany(t *testing.T) {
	s := &apiServer{t: t, pods: map[string]*pod{}}
	shared := ours(t, web("10.244.1.2"))
	for i := range 500 {
		s.pods[fmt.Sprintf("kube-proxy-n%03d", i)] = shared
		if i%50 == 7 {
			s.pods[fmt.Sprintf("kube-proxy-n%03d", i)] = &pod{hangs: true}
		}
	}
	began, last := time.Now(), 0
	report := ask(t, s, func(o *Options) {
		o.Timeout = 3 * time.Second
		o.Progress = func(asked, all int) {
			if asked != last+1 || all != 500 {
				t.Errorf("progress %d of %d after %d", asked, all, last)
			}
			last = asked
		}
	})
	s.mu.Lock() // requests of those that hang may not have ended
	most := s.most
	s.mu.Unlock()
	t.Logf("500 nodes in %s; at most %d at a time", time.Since(began), most)
	states := map[State]int{}
	for i, n := range report.Nodes {
		states[n.State]++
		if hangs := i%50 == 7; hangs && n.State != Unreachable {
			t.Errorf("%s hangs, and is %s", n.Name, n.State)
		}
	}
	if most > 2*parallel || // the server notices an end later
		len(report.Nodes) != 500 || states[Unreachable] < 10 {
		t.Errorf("at most %d at a time; %v", most, states)
	}
}

func TestTag(t *testing.T) {
	for image, want := range map[string]string{"kube-proxy:v1.37.2": "v1.37.2", "kube-proxy:v1.37.2@sha256:0a": "v1.37.2", "kube-proxy@sha256:0a": "", "kube-proxy": "", "": ""} {
		if got := tag(image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

// TestLasting distinguishes what changes at the moment from what stays different.
func TestLasting(t *testing.T) {
	same, moved := map[string]string{"a/a": "1", "a/b": "2"}, map[string]string{"a/a": "1", "a/b": "3"}
	for _, test := range []struct {
		name                                         string
		reference, referenceAgain, other, otherAgain map[string]string
		want                                         int
	}{
		{"equal", same, same, same, same, 0},
		{"stays different", moved, moved, same, same, 1},
		{"follows", moved, moved, same, moved, 0},
		{"the reference moves on", same, moved, moved, moved, 0},
		{"changes again", same, same, moved, map[string]string{"a/a": "1", "a/b": "4"}, 0},
		{"unknown there", same, same, map[string]string{"a/a": "1"}, map[string]string{"a/a": "1"}, 1},
		{"unknown here", map[string]string{"a/a": "1"}, map[string]string{"a/a": "1"}, same, same, 1},
	} {
		read := func(reference, other map[string]string) reading {
			first, all := different(reference, other)
			return reading{reference, []map[string]string{first}, []int{all}}
		}
		if got, ok := lasting(read(test.reference, test.other), read(test.referenceAgain, test.otherAgain), 0); !ok || len(got) != test.want {
			t.Errorf("%s: %v, %v", test.name, got, ok)
		}
	}
	if _, ok := lasting(reading{others: []map[string]string{nil}}, reading{others: []map[string]string{{}}}, 0); ok {
		t.Error("a node that did not answer is compared")
	}
}

// TestMemory compares 20 nodes that know 10,000 Services differently. One of them answers the question about each Service without end, and others
// every question.
func TestMemory(t *testing.T) {
	s := &apiServer{t: t, pods: map[string]*pod{}}
	shared := ours(t, web("10.244.1.2"))
	endless := []*pod{}
	for i := range 21 {
		p := shared.with(10_000, max(i, 1)) // n00 and n01 agree
		if i == 5 {
			p.endless = "services=true"
			endless = append(endless, p)
		}
		s.pods[fmt.Sprintf("kube-proxy-n%02d", i)] = p
	}
	for i := range 2 {
		p := &pod{pages: shared.pages, endless: "/"}
		s.pods[fmt.Sprintf("kube-proxy-x%d", i)] = p
		endless = append(endless, p)
	}
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	report := ask(t, s)
	close(stop)
	most := <-peak
	t.Logf("%d disagreements; %d MiB of heap at most", len(report.Disagreements), most>>20)
	if len(report.Disagreements) != maxServices || len(report.Disagreements[0].Nodes) != 18 {
		t.Errorf("%d disagreements: %v", len(report.Disagreements), report.Notes)
	}
	for _, n := range report.Nodes {
		if strings.HasPrefix(n.Name, "x") && (n.State != Unreachable || !strings.Contains(n.text(), "has more than 1 MiB: it is not read")) {
			t.Errorf("%s: %s", n.Name, n.text())
		}
	}
	if most > 512<<20 {
		t.Errorf("%d MiB", most>>20)
	}
	for _, p := range endless {
		if sent := p.sent.Load(); sent == 0 || sent > 4*longAnswer { // two questions, and what is on the way
			t.Errorf("%d MiB were read of a pod that answers without end", sent>>20)
		}
	}
}

// TestWait waits for a node that learns of an endpoint later than the others.
func TestWait(t *testing.T) {
	present := web("10.244.1.2", "10.244.2.2")
	s := &apiServer{t: t, pods: map[string]*pod{"kube-proxy-n1": ours(t, present), "kube-proxy-n2": ours(t, web("10.244.1.2"))}, objects: objectsOf(t)}
	f, err := New(s.config(), options)
	if err != nil {
		t.Fatal(err)
	}
	round, err := f.round(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	const missing = "default/web: 1 of 2 nodes do not serve it as it is:\nnode n2: lacks endpoint 10.244.2.2:8080 of slice web-1 for port 80/TCP; has slice web-1 with 1 endpoints, not with 2 endpoints"
	if got := round.Missing().Error(); got != missing {
		t.Errorf("got  %s\nwant %s", got, missing)
	}
	began := time.Now()
	if waited, err := f.Wait(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}, time.Second); err == nil && (len(waited.Behind) != 1 || time.Since(began) < time.Second) {
		t.Errorf("without the endpoint: %+v", waited)
	}
	if waited, err := f.Wait(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}, 0); err != nil || len(waited.Behind) != 1 {
		t.Errorf("asked once: %+v, %v", waited, err)
	}
	read := 0
	s.busy = func(path string) bool {
		if strings.HasSuffix(path, "/services/web") {
			read++
		}
		return read > 1
	}
	waited, err := f.Wait(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}, 3*time.Second)
	if err != nil || len(waited.Behind) != 1 || len(waited.Notes) != 1 || !strings.Contains(waited.Notes[0], "busy") || read < 3 {
		t.Errorf("with an API server that fails after the first round: %+v, %v", waited, err)
	}
	s.busy = nil
	s.pods["kube-proxy-n2"].pages = ours(t, present).pages
	if waited, err := f.Wait(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}, time.Minute); err != nil || len(waited.Behind) > 0 || waited.Endpoints != 2 || waited.Nodes != 2 {
		t.Errorf("with it: %+v, %v", waited, err)
	}
	for want, info := range map[string]func(*v1alpha1.Info){
		"IPv6: the last sync failed: busy": func(i *v1alpha1.Info) {
			i.Sync = &v1alpha1.Sync{Families: []v1alpha1.FamilySync{{Family: "IPv4"}, {Family: "IPv6", Error: "busy"}}}
		},
		"IPv6: no sync has succeeded yet": func(i *v1alpha1.Info) {
			i.Families, i.Sync = []string{"IPv4", "IPv6"}, &v1alpha1.Sync{Families: []v1alpha1.FamilySync{{Family: "IPv4"}}}
		},
	} {
		s.pods["kube-proxy-n2"].pages = ours(t, present, info).pages
		round, err := f.round(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"})
		if err != nil || len(round.Behind) != 1 || !slices.Equal(round.Behind[0].Reasons, []string{want}) {
			t.Errorf("with a family that is not programmed: %+v, %v; want %s", round, err, want)
		}
	}
	s.pods["kube-proxy-n2"].pages = ours(t, present).pages
	s.forbidNodes = true
	if waited, err := f.Wait(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}, time.Minute); err != nil || len(waited.Notes) != 1 || !strings.Contains(waited.Notes[0], "no right to list Nodes") {
		t.Errorf("without the right to list Nodes: %+v, %v", waited, err)
	}
	s.pods["kube-proxy-n3"] = upstream()
	if round, err := f.round(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}); err != nil || len(round.Behind) != 1 || !strings.Contains(round.Behind[0].Reasons[0], "Kubernetes' own kube-proxy") {
		t.Errorf("with upstream's proxy: %+v, %v", round, err)
	}
	if _, err := f.Wait(t.Context(), cluster.ServiceName{Namespace: "default", Name: "wbe"}, time.Minute); err == nil || !strings.Contains(err.Error(), "read Service default/wbe") {
		t.Errorf("of an unknown Service: %v", err)
	}
}

// objectsOf are the Service and EndpointSlices of web with two endpoints, as an API server has them.
func objectsOf(t *testing.T) map[string]kruntime.Object {
	t.Helper()
	service := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}}}
	service.APIVersion, service.Kind, service.Namespace, service.Name = "v1", "Service", "default", "web"
	name, port, protocol := "http", int32(8080), corev1.ProtocolTCP
	slice := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}}}
	slice.Namespace, slice.Name, slice.Labels = "default", "web-1", map[string]string{discoveryv1.LabelServiceName: "web"}
	for i, address := range []string{"10.244.1.2", "10.244.2.2"} {
		node := fmt.Sprintf("node%d", i+1)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node})
	}
	list := &discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{slice}}
	list.APIVersion, list.Kind = "discovery.k8s.io/v1", "EndpointSliceList"
	return map[string]kruntime.Object{
		"/api/v1/namespaces/default/services/web":                     service,
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": list,
	}
}

// TestThrough asks the proxy of one node as the commands with --node do.
func TestThrough(t *testing.T) {
	s := &apiServer{t: t, pods: map[string]*pod{"kube-proxy-n1": ours(t, web("10.244.1.2"))}}
	client, err := inspect.NewClient(inspect.DefaultServer, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(s.config(), Options{Selection: Selection{Namespace: "kube-system", Node: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	through, err := f.Through(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // over the same connection
		if service, err := through.Service(t.Context(), cluster.ServiceName{Namespace: "default", Name: "web"}); err != nil || service.Endpoints.All != 1 {
			t.Errorf("got %+v, %v", service, err)
		}
	}
	if n := s.asked["/api/v1/namespaces/kube-system/pods/kube-proxy-n1/portforward"]; n != 1 {
		t.Errorf("%d port forwards", n)
	}
	s.pods["kube-proxy-n1"].pages = nil
	again, err := f.Through(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "no kube-proxy answers at pod kube-proxy-n1: see its log") {
		t.Errorf("without a proxy: %v", err)
	}
	s.pods["kube-proxy-n1"].hangs = true
	hasty, err := inspect.NewClient(inspect.DefaultServer, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if again, err = f.Through(t.Context(), hasty); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "ask the proxy at pod kube-proxy-n1: the API server has not connected to the pod in time") {
		t.Errorf("of a kubelet that does not answer: %v", err)
	}
	if again, err = f.Through(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	s.listener.Close()
	if _, err := again.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "connect to the pod through the API server: ") {
		t.Errorf("of an API server that refuses: %v", err)
	}
	if f, err = New(s.config(), Options{Selection: Selection{Namespace: "kube-system", Node: "n1"}}); err != nil {
		t.Fatal(err)
	}
	s.pods["kube-proxy-n1"].waiting = "ImagePullBackOff"
	if _, err := f.Through(t.Context(), client); err == nil || !strings.Contains(err.Error(), "the pod is Pending: ImagePullBackOff") {
		t.Errorf("of a pod that does not run: %v", err)
	}
	s.mu.Lock() // the request of the hasty client may not have ended
	delete(s.pods, "kube-proxy-n1")
	s.mu.Unlock()
	if _, err := f.Through(t.Context(), client); err == nil || !strings.Contains(err.Error(), "node n1 has no pod") {
		t.Errorf("without a pod: %v", err)
	}
}

// TestRun runs a command in a pod.
func TestRun(t *testing.T) {
	s := &apiServer{t: t, pods: map[string]*pod{"kube-proxy-n1": {}}}
	f, err := New(s.config(), Options{Selection: Selection{Namespace: "kube-system", Node: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code, err := f.Run(t.Context(), &out, &errs, "kube-proxy", "trace", "default/web", "--count=3")
	if err != nil || code != 3 || out.String() != "kube-proxy[kube-proxy trace default/web --count=3]" || errs.String() != "a warning" {
		t.Errorf("exit code %d, %v, output %q, errors %q", code, err, &out, &errs)
	}
	s.pods["kube-proxy-n1"].container = "proxy"
	out.Reset()
	if _, err := f.Run(t.Context(), &out, &errs, "kube-proxy"); err != nil || out.String() != "proxy[kube-proxy]" {
		t.Errorf("in a container of another name: %v, output %q", err, &out)
	}
	f.options.Timeout = time.Minute
	out.Reset()
	if _, err := f.Run(t.Context(), &out, &errs, "kube-proxy", "trace"); err != nil || out.String() != "proxy[kube-proxy trace]" {
		t.Errorf("with a limit of time: %v, output %q", err, &out)
	}
	s.pods["kube-proxy-n1"].hangs, f.options.Timeout = true, 50*time.Millisecond
	if _, err := f.Run(t.Context(), &out, &errs, "kube-proxy", "trace"); err == nil || !strings.Contains(err.Error(), "kube-proxy-n1 has not run a command within 50ms: ") {
		t.Errorf("a kubelet that does not answer: %v", err)
	}
	s.mu.Lock() // the request of the command before may not have ended
	delete(s.pods, "kube-proxy-n1")
	s.mu.Unlock()
	if _, err := f.Run(t.Context(), &out, &errs, "kube-proxy", "trace"); err == nil || !strings.Contains(err.Error(), "node n1 has no pod") {
		t.Errorf("without a pod: %v", err)
	}
}

// oneStream is a connection that refuses a second stream, which it counts.
type oneStream struct {
	httpstream.Connection
	httpstream.Stream
	made, reset, removed int
}

func (*oneStream) CloseChan() <-chan bool { return nil }

func (c *oneStream) CreateStream(http.Header) (httpstream.Stream, error) {
	if c.made++; c.made > 1 {
		return nil, errors.New("no more streams")
	}
	return c, nil
}

func (c *oneStream) RemoveStreams(...httpstream.Stream) { c.removed++ }

func (*oneStream) Close() error { return nil }

func (c *oneStream) Reset() error {
	c.reset++
	return nil
}

// TestSecondStreamFails checks that nothing stays open if only the stream for errors could be opened.
func TestSecondStreamFails(t *testing.T) {
	all := &oneStream{}
	if _, err := (&podTransport{all: all}).dial(t.Context(), "tcp", "localhost:10249"); err == nil || all.reset != 1 || all.removed != 1 {
		t.Errorf("%v, reset %d, removed %d", err, all.reset, all.removed)
	}
}
