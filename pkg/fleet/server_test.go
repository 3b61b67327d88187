package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

// apiServer is an API server with the kubelets and proxies behind it.
type apiServer struct {
	t testing.TB
	// pods are those of proxies, by name; the node of kube-proxy-X is X.
	pods map[string]*pod
	// bare are Nodes without a pod. nil pods and forbidNodes refuse to list Nodes.
	bare        []string
	forbidNodes bool
	// objects are answers by path: Services and EndpointSlices.
	objects map[string]runtime.Object
	// busy reports whether a request of a path fails; nil fails none.
	busy func(path string) bool
	// noWebSocket refuses WebSockets, as Kubernetes before 1.30.
	noWebSocket bool
	listener    net.Listener
	// ended is closed at the end of the test: clients that gave up stay connected.
	ended chan struct{}

	mu         sync.Mutex // guards the fields below
	open, most int
	asked      map[string]int
}

// pod is a proxy's pod.
type pod struct {
	// pages serve its port of metrics; nil refuses connections.
	pages http.Handler
	// healthz is the status of /healthz; 0 refuses connections.
	healthz int
	// container is the name of the proxy's container, and the default one of two; empty is kube-proxy, alone.
	container string
	// hangs never answers, forbidden refuses with 403, waiting is why it does not run.
	hangs, forbidden bool
	waiting          string
	// endless is a part of the URLs that are answered without end; empty is none. sent counts the bytes.
	endless string
	sent    atomic.Int64
}

func (s *apiServer) config() *rest.Config {
	server := httptest.NewServer(s)
	ended := make(chan struct{})
	s.mu.Lock() // requests of an earlier server may not have ended
	s.listener, s.ended = server.Listener, ended
	s.mu.Unlock()
	s.t.Cleanup(func() { close(ended); server.Close() })
	return &rest.Config{Host: server.URL}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const inPods = "/api/v1/namespaces/kube-system/pods"
	s.mu.Lock()
	if s.asked == nil {
		s.asked = map[string]int{}
	}
	s.asked[r.URL.Path]++
	object := s.objects[r.URL.Path]
	busy := s.busy != nil && s.busy(r.URL.Path)
	s.mu.Unlock()
	name, forward := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, inPods+"/"), "/portforward")
	switch {
	case busy:
		s.refuse(w, apierrors.NewInternalError(errors.New("busy")))
	case forward:
		s.forward(w, r, name)
	case strings.HasSuffix(r.URL.Path, "/exec"):
		s.exec(w, r, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, inPods+"/"), "/exec"))
	case r.URL.Path == inPods:
		s.answer(w, s.list())
	case r.URL.Path == "/api/v1/nodes" && s.forbidNodes:
		s.refuse(w, apierrors.NewForbidden(corev1.Resource("nodes"), "", nil))
	case r.URL.Path == "/api/v1/nodes":
		list := &metav1.PartialObjectMetadataList{}
		for _, name := range s.bare {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		for name := range s.pods {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(name, "kube-proxy-")}})
		}
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "win", Labels: map[string]string{corev1.LabelOSStable: "windows"}}})
		s.answer(w, list)
	case object != nil:
		s.answer(w, object)
	default:
		s.refuse(w, apierrors.NewNotFound(corev1.Resource("services"), r.URL.Path))
	}
}

func (s *apiServer) list() *corev1.PodList {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for name, p := range s.pods {
		object := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
			Spec: corev1.PodSpec{NodeName: strings.TrimPrefix(name, "kube-proxy-"), Containers: []corev1.Container{{Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.37.2"}}}}
		if p.container != "" {
			object.Labels, object.Annotations = map[string]string{"k8s-app": "kube-proxy"}, map[string]string{"kubectl.kubernetes.io/default-container": p.container}
			object.Spec.Containers = []corev1.Container{{Name: "exporter"}, {Name: p.container}}
		}
		wait := func(container, reason string) {
			object.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
		if p.waiting != "" {
			if wait("kube-proxy", p.waiting); p.waiting != "CrashLoopBackOff" {
				object.Status.Phase = corev1.PodPending
			}
		} else { // a pod that ends beside it, as during an update, and another container that fails
			wait("exporter", "CrashLoopBackOff")
			old := *object.DeepCopy()
			old.Name, old.DeletionTimestamp = name+"-old", new(metav1.Now())
			list.Items = append(list.Items, old)
		}
		list.Items = append(list.Items, object)
	}
	return list
}

func (s *apiServer) answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

func (s *apiServer) refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	_ = json.NewEncoder(w).Encode(err.ErrStatus)
}

// forward connects to a pod, by WebSocket or SPDY.
func (s *apiServer) forward(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	p, ended := s.pods[name], s.ended
	s.mu.Unlock()
	switch {
	case p == nil:
		s.refuse(w, apierrors.NewNotFound(corev1.Resource("pods"), name))
		return
	case p.forbidden:
		s.refuse(w, apierrors.NewForbidden(corev1.Resource("pods/portforward"), name, nil))
		return
	case p.hangs:
		select {
		case <-r.Context().Done():
		case <-ended:
		}
		return
	}
	s.mu.Lock()
	s.open++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.open--; s.mu.Unlock() }()
	streams := func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			p.serve(stream)
		}()
		return nil
	}
	if r.Method == http.MethodPost {
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			s.t.Error(err)
			return
		}
		if all := spdy.NewResponseUpgrader().UpgradeResponse(w, r, streams); all != nil {
			<-all.CloseChan()
		}
		return
	}
	if s.noWebSocket {
		http.Error(w, "no WebSockets", http.StatusBadRequest)
		return
	}
	upgrader := gorilla.Upgrader{Subprotocols: []string{"SPDY/3.1+" + portforward.PortForwardProtocolV1Name}}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	all, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("server", socket), streams)
	if err != nil {
		s.t.Error(err)
		return
	}
	<-all.CloseChan()
}

// serve answers the requests of one stream.
func (p *pod) serve(stream httpstream.Stream) {
	pages := p.pages
	if stream.Headers().Get(corev1.PortHeader) == "10256" {
		pages = nil
		if p.healthz != 0 {
			pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(p.healthz) })
		}
	}
	if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
		if pages == nil {
			fmt.Fprint(stream, "dial tcp4 127.0.0.1:10249: connect: connection refused")
		}
		stream.Close()
		return
	}
	defer stream.Close()
	for reader := bufio.NewReader(stream); pages != nil; {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if p.endless != "" && strings.Contains(request.URL.String(), p.endless) {
			p.flood(stream)
			return
		}
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, request)
		response := w.Result()
		response.ContentLength = int64(w.Body.Len())
		if response.Write(stream) != nil {
			return
		}
	}
}

// ours is a proxy of this program that serves objects. change may change what it says of itself.
func ours(t testing.TB, objects string, change ...func(*v1alpha1.Info)) *pod {
	t.Helper()
	snapshot, err := cases.Snapshot(objects, cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s := &status.State{Snapshot: snapshot, Plan: plan.Compute(snapshot, &plan.Options{}, nil), Now: now,
		Info: v1alpha1.Info{Version: "v0.5.0", Mode: "nftables", Synced: &now}}
	for _, c := range change {
		c(&s.Info)
	}
	return &pod{healthz: 200, pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, v1alpha1.Path)
		var object any
		switch namespaced, isService := strings.CutPrefix(path, "/services/"); {
		case path == "/info":
			object = s.Describe()
		case path == "/digests":
			object = s.Digests(r.URL.Query().Get("services") == "true")
		case path == "/repairs":
			object = &v1alpha1.RepairList{TypeMeta: v1alpha1.Meta(v1alpha1.KindRepairList), Items: []v1alpha1.Repair{{Time: now}}}
		case isService:
			namespace, name, _ := strings.Cut(namespaced, "/")
			if service := s.Service(cluster.ServiceName{Namespace: namespace, Name: name}, nil); service != nil {
				object = service
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if object == nil {
			w.WriteHeader(http.StatusNotFound)
			object = v1alpha1.Status{TypeMeta: v1alpha1.Meta(v1alpha1.KindStatus), Code: http.StatusNotFound, Message: "not found"}
		}
		_ = json.NewEncoder(w).Encode(object)
	})}
}

// flood answers without end.
func (p *pod) flood(stream io.Writer) {
	_, err := fmt.Fprint(stream, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"services\":{\"")
	for chunk := bytes.Repeat([]byte("x"), 32<<10); err == nil; {
		var n int
		n, err = stream.Write(chunk)
		p.sent.Add(int64(n))
	}
}

// with returns the same proxy with other digests, of n Services.
func (p *pod) with(n, seed int) *pod {
	return &pod{healthz: p.healthz, pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/digests") {
			p.pages.ServeHTTP(w, r)
			return
		}
		digests := v1alpha1.Digests{TypeMeta: v1alpha1.Meta(v1alpha1.KindDigests), All: fmt.Sprintf("%016x", seed), Services: map[string]string{}}
		for i := 0; i < n && r.URL.Query().Get("services") == "true"; i++ {
			digests.Services[fmt.Sprintf("namespace-%d/service-%d", i%50, i)] = fmt.Sprintf("%08x%08x", seed, i)
		}
		_ = json.NewEncoder(w).Encode(digests)
	})}
}

// older is a proxy of this program before /digests.
func older(p *pod) *pod {
	return &pod{healthz: 200, pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/digests") {
			r.URL.Path = "/nothing"
		}
		p.pages.ServeHTTP(w, r)
	})}
}

// upstream is Kubernetes' kube-proxy.
func upstream() *pod {
	return &pod{healthz: 200, pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/proxyMode" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "ipvs")
	})}
}

// exec runs a command: it prints its words, and exits with 3. It speaks SPDY only.
func (s *apiServer) exec(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method != http.MethodPost {
		http.Error(w, "no WebSockets", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	p, ended := s.pods[name], s.ended
	s.mu.Unlock()
	if p == nil || p.hangs {
		<-ended
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		s.t.Error(err)
		return
	}
	streams := make(chan httpstream.Stream, 3)
	all := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() { <-replied; streams <- stream }()
		return nil
	})
	query := r.URL.Query()
	for range 3 {
		stream := <-streams
		switch stream.Headers().Get(corev1.StreamType) {
		case corev1.StreamTypeStdout:
			fmt.Fprint(stream, query.Get("container"), query["command"])
		case corev1.StreamTypeStderr:
			fmt.Fprint(stream, "a warning")
		default:
			fmt.Fprint(stream, `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`)
		}
		stream.Close()
	}
	<-all.CloseChan()
}
