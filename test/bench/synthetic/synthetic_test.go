package synthetic

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/apiserver"
)

// start serves a cluster on the loopback for the duration of a test.
func start(t *testing.T, size Size, options Options) (*Server, *rest.Config) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(listener, New(size, "node1"), options)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	config := &rest.Config{Host: "http://" + listener.Addr().String(), QPS: -1}
	if !options.OnlyJSON {
		config.ContentType, config.AcceptContentTypes = protobuf, protobuf+","+jsonText
	}
	return s, config
}

// variants returns all server options.
func variants() map[string]Options {
	return map[string]Options{
		"protobuf": {}, "JSON": {OnlyJSON: true}, "no streams": {NoStreams: true}, "JSON, no streams": {OnlyJSON: true, NoStreams: true},
	}
}

// TestLists reads a cluster in pages and in one piece with client-go.
func TestLists(t *testing.T) {
	for name, options := range variants() {
		t.Run(name, func(t *testing.T) {
			s, config := start(t, Size{Services: 40, Endpoints: 150}, options)
			client := kubernetes.NewForConfigOrDie(config)
			gone := s.Create()
			s.Create()
			s.Delete(gone)
			s.Delete(7)
			wanted := 24*150 - 150 + Targets*2 + 2 // all but the targets have 150, one is gone, one was made
			for _, limit := range []int64{0, 1, 7, 1000} {
				var got, slices int
				seen := map[string]bool{}
				for token := ""; ; {
					page, err := client.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token})
					if err != nil {
						t.Fatal(err)
					}
					if limit > 0 && len(page.Items) > int(limit) {
						t.Fatalf("a page of %d has %d slices", limit, len(page.Items))
					}
					slices += len(page.Items)
					for i := range page.Items {
						seen[page.Items[i].Namespace+"/"+page.Items[i].Name] = true
						got += len(page.Items[i].Endpoints)
					}
					if token = page.Continue; token == "" {
						break
					}
				}
				if got != wanted || slices != 23*2+Targets+1 || len(seen) != slices {
					t.Errorf("pages of %d: %d endpoints, want %d, in %d slices of %d names", limit, got, wanted, slices, len(seen))
				}
			}
			list, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.clusterIP!=None"})
			if err != nil || len(list.Items) != 40 {
				t.Errorf("%d Services, %v", len(list.Items), err)
			}
			if node, err := client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{}); err != nil || node.Name != "node1" {
				t.Errorf("the node is %v, %v", node, err)
			}
			if _, err := client.CoreV1().Nodes().Get(t.Context(), "node2", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a node that is not there: %v", err)
			}
			others, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=node2"})
			if err != nil || len(others.Items) != 0 {
				t.Errorf("nodes of another name: %v, %v", others, err)
			}
		})
	}
}

// TestPrepared checks that the server sends the same bytes whether or not objects were encoded in advance, in lists, pages
// and streams, also after some of them have changed.
func TestPrepared(t *testing.T) {
	s, config := start(t, Size{Services: 40, Endpoints: 150}, Options{})
	get := func(k *kind, query string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+k.path()+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", protobuf)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return string(body)
	}
	all := func() (answers []string) {
		for _, k := range kinds() {
			for _, query := range []string{"", "?limit=7", "?limit=7&continue=1000:40960", "?labelSelector=app%3Dnobody"} {
				answers = append(answers, get(k, query))
			}
			// What a stream begins with, which does not end by itself: in the words that it is written in.
			var stream strings.Builder
			v := s.now()
			v.prepared = s.prepared.Load()
			w := &protoWriter{kind: k}
			v.each(k, 0, func(o object, _ int) bool {
				frame, err := w.event(watch.Added, o)
				if err != nil {
					t.Fatal(err)
				}
				stream.Write(frame)
				return true
			})
			answers = append(answers, stream.String())
		}
		return answers
	}
	change := func() {
		s.ReplaceEndpoint(7)
		s.Delete(s.Create())
		s.Delete(8)
		s.Create()
	}
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(){func() {}, change} {
		step()
		quick := all()
		kept := s.prepared.Swap(nil)
		if slow := all(); !slices.Equal(quick, slow) {
			t.Error("objects encoded in advance differ")
		}
		s.prepared.Store(kept)
	}
}

// TestWatch follows changes, from a version on and from the beginning.
func TestWatch(t *testing.T) {
	for name, options := range variants() {
		t.Run(name, func(t *testing.T) {
			s, config := start(t, Size{Services: 20, Endpoints: 3}, options)
			client := kubernetes.NewForConfigOrDie(config)
			at := s.now().version
			addr := s.ReplaceEndpoint(19)
			number := s.Create()
			s.Delete(number)
			w, err := client.DiscoveryV1().EndpointSlices("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1000"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if at != 1000 {
				t.Fatalf("the first version is %d", at)
			}
			for _, want := range []watch.EventType{watch.Modified, watch.Added, watch.Deleted} {
				e := <-w.ResultChan()
				if e.Type != want {
					t.Fatalf("got %v, want %s", e, want)
				}
				if slice := e.Object.(*discoveryv1.EndpointSlice); want == watch.Modified && !hasAddress(slice, addr) {
					t.Errorf("the slice lacks %s: %v", addr, slice.Endpoints)
				}
			}
			_, err = client.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "3"})
			if !apierrors.IsResourceExpired(err) {
				t.Errorf("a version that is too old: %v", err)
			}
			_, err = client.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{
				SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
			})
			if (err != nil) != options.NoStreams || err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("a streaming list: %v", err)
			}
		})
	}
}

func hasAddress(slice *discoveryv1.EndpointSlice, addr netip.Addr) bool {
	for _, e := range slice.Endpoints {
		if e.Addresses[0] == addr.String() {
			return true
		}
	}
	return false
}

// TestSource reads from every variant with the proxy's own source, and checks that a change arrives.
func TestSource(t *testing.T) {
	for name, options := range variants() {
		t.Run(name, func(t *testing.T) {
			s, config := start(t, Size{Services: 300, Endpoints: 5}, options)
			source, err := apiserver.New(config, "node1", apiserver.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			builder, ended := cluster.NewBuilder("node1"), make(chan error, 1)
			go func() { ended <- source.Run(ctx, builder) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			select {
			case <-source.Complete():
			case <-ctx.Done():
				t.Fatal("the source is not complete within a minute")
			}
			snapshot := builder.Snapshot()
			if snapshot.Services.Len() != 300 || builder.Endpoints() != 284*5+Targets*2 || builder.Endpoints() != s.Size().Total() || snapshot.Node.Zone != "zone-0" {
				t.Errorf("%d Services, %d endpoints, node %+v", snapshot.Services.Len(), builder.Endpoints(), snapshot.Node)
			}
			number := s.Create()
			namespace, service := Name(number)
			for {
				got, ok := builder.Snapshot().Services.Get(cluster.ServiceName{Namespace: namespace, Name: service})
				if ok && len(got.Slices) == 1 && len(got.Slices[0].Endpoints) == 2 {
					break
				}
				select {
				case <-builder.Changed():
				case <-ctx.Done():
					t.Fatal("the new Service does not arrive")
				}
			}
		})
	}
}

// TestHistory checks that the server keeps only the limited history of events.
func TestHistory(t *testing.T) {
	c := New(Size{Services: 20, Endpoints: 1}, "node1")
	for range 3 * historyLength {
		c.ReplaceEndpoint(3)
	}
	if len(c.history) > 2*historyLength {
		t.Errorf("%d events are kept", len(c.history))
	}
	if _, _, ok := c.since(c.version - historyLength); !ok {
		t.Error("a watch within the history is rejected")
	}
	if _, _, ok := c.since(1000); ok {
		t.Error("no error for a version before the history")
	}
	events, _, _ := c.since(c.version - 1)
	if len(events) != 1 || events[0].version != c.version {
		t.Errorf("the last event is %v", events)
	}
}

// TestSizes checks valid and invalid sizes.
func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"1000x2": {1000, 2}, "5000x50": {5000, 50}} {
		if got, err := ParseSize(text); got != want || err != nil || got.String() != text {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1000", "x", "1000x0", "15x1", "1000x-2", "1000x2x2", "9999999x1", "1000x1000000"} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), "size") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

// BenchmarkEncode measures the server's part of a cold start.
func BenchmarkEncode(b *testing.B) {
	v := New(Size{Services: 5000, Endpoints: 50}, "node1").now()
	w := &protoWriter{kind: endpointSliceKind()}
	b.ReportAllocs()
	var bytes int
	for b.Loop() {
		bytes = 0
		v.each(w.kind, 0, func(o object, _ int) bool {
			frame, err := w.event(watch.Added, o)
			if err != nil {
				b.Fatal(err)
			}
			bytes += len(frame)
			return true
		})
	}
	b.ReportMetric(float64(bytes), "B")
}
