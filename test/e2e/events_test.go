//go:build linux

package e2e

import (
	"context"
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/announce"
)

// countedEvents publishes an Event three times with the rights of a proxy: the API server has it once, with a count.
func countedEvents(w *world) {
	config := w.cluster.Config("proxy")
	config.ContentType = "application/vnd.kubernetes.protobuf" // the default of a proxy
	recorder, err := announce.NewRecorder(config)
	w.must(err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error)
	go func() { ended <- recorder.Run(ctx) }()
	for range 3 {
		recorder.Event(proxy.Event{Kind: "Node", Name: w.lab.Node1.Name, Warning: true, Reason: "Counted", Action: "Count", Message: "Once more."})
	}
	var found []eventsv1.Event
	w.eventually("an Event that was counted", func() string {
		list, err := w.client.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=Counted"})
		w.must(err)
		if found = list.Items; len(found) == 1 && found[0].Series != nil && found[0].Series.Count == 3 {
			return ""
		}
		return fmt.Sprintf("%+v", found)
	})
	if e := found[0]; e.Note != "Once more." || e.Type != "Warning" || e.Regarding.Name != w.lab.Node1.Name || e.ReportingController != "kube-proxy" ||
		e.Series.LastObservedTime.Before(&e.EventTime) {
		w.t.Errorf("the Event is %+v", e)
	}
	cancel()
	w.must(<-ended)
}
