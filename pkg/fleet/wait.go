package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// Waited is the result of Wait.
type Waited struct {
	v1alpha1.TypeMeta
	// Service is NAMESPACE/NAME.
	Service string `json:"service"`
	// Endpoints is how many endpoint addresses its EndpointSlices have.
	Endpoints int `json:"endpoints"`
	// Nodes is how many nodes were asked.
	Nodes int `json:"nodes"`
	// Behind are those that do not serve all of it yet.
	Behind []Fault `json:"behind,omitempty"`
	// Notes are what the result does not include, and why.
	Notes []string `json:"notes,omitempty"`
}

// Wait returns when the proxy of every node has programmed a Service in all families as the API server has it now, with all endpoints. After
// timeout, or when ctx ends, it returns the state of the last whole round; a timeout of 0 asks once. An error means that nothing is known. It
// needs the rights get services and list endpointslices.
func (f *Fleet) Wait(ctx context.Context, name cluster.ServiceName, timeout time.Duration) (*Waited, error) {
	last, err := inspect.Wait[*Waited]{
		Ask:     func(ctx context.Context) (*Waited, error) { return f.round(ctx, name) },
		Done:    func(w *Waited) bool { return len(w.Behind) == 0 },
		Timeout: timeout,
	}.Run(ctx)
	if last != nil && err != nil {
		last.Notes = append(last.Notes, fmt.Sprintf("this is what was known before a question failed: %v", err))
		err = nil
	}
	return last, err
}

// round asks all nodes once.
func (f *Fleet) round(ctx context.Context, name cluster.ServiceName) (*Waited, error) {
	want, err := f.present(ctx, name)
	if err != nil {
		return nil, err
	}
	targets, notes, err := f.targets(ctx)
	if err != nil {
		return nil, err
	}
	w := &Waited{TypeMeta: v1alpha1.Meta(v1alpha1.KindFleetWait), Service: name.String(), Endpoints: want.Endpoints.All, Nodes: len(targets), Notes: notes}
	reasons := make([][]string, len(targets))
	f.each(len(targets), parallel, func(i int) { reasons[i] = f.behind(ctx, targets[i], name, want) })
	for i, why := range reasons {
		if len(why) > 0 {
			w.Behind = append(w.Behind, Fault{targets[i].node, why})
		}
	}
	return w, nil
}

// behind returns why a node does not serve a Service as wanted.
func (f *Fleet) behind(ctx context.Context, t target, name cluster.ServiceName, want *v1alpha1.Service) []string {
	switch {
	case t.pod == "":
		return []string{"no pod of a proxy"}
	case t.problem != "":
		return []string{t.problem}
	}
	ctx, cancel := context.WithTimeout(ctx, f.options.Timeout)
	defer cancel()
	c, err := f.connect(t)
	if err != nil {
		return []string{err.Error()}
	}
	defer c.pod.Close()
	got, err := service(ctx, c.AtMost(shortAnswer+int64(want.Endpoints.All*len(want.Ports))*perEndpoint), name)
	if err != nil {
		return f.unknown(ctx, &Node{}, t, c, err).Messages
	}
	why := differences(want, got, facts)
	if got == nil {
		return why
	}
	for _, problem := range got.Problems {
		if refused(problem.Reason) {
			why = append(why, problem.Reason+": "+problem.Message)
		}
	}
	// Asked afterwards: a Service is shown as soon as one family has it, and a family that did not fail since has it too.
	info, err := c.Info(ctx)
	if err != nil {
		return append(why, f.unknown(ctx, &Node{}, t, c, err).Messages...)
	}
	return append(why, notProgrammed(info)...)
}

// notProgrammed returns why families may not have what the proxy shows.
func notProgrammed(info *v1alpha1.Info) (why []string) {
	for _, family := range info.Families {
		if info.Sync == nil || !slices.ContainsFunc(info.Sync.Families, func(s v1alpha1.FamilySync) bool { return s.Family == family }) {
			why = append(why, family+": no sync has succeeded yet")
		}
	}
	for _, family := range info.Sync.Failed() {
		why = append(why, family.Failure())
	}
	return why
}

// refused reports whether a problem means that the node knows a Service, and its rules are not in force. Others, such as NoEndpoints, are
// the Service's own.
func refused(reason string) bool {
	return reason == plan.ProblemRefused || reason == plan.ProblemDelayed
}

// present returns a Service as the API server has it, described by the code that a proxy describes it with.
func (f *Fleet) present(ctx context.Context, name cluster.ServiceName) (*v1alpha1.Service, error) {
	var object corev1.Service
	if err := f.clients.Get(ctx, apiclient.Services, name.Namespace, name.Name, &object); err != nil {
		return nil, fmt.Errorf("read Service %s: %w", name, err)
	}
	var list discoveryv1.EndpointSliceList
	of := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name.Name}
	if err := f.clients.List(ctx, apiclient.EndpointSlices, name.Namespace, of, &list); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of %s: %w", name, err)
	}
	builder := cluster.NewBuilder("")
	err := builder.Update(func(u *cluster.Update) {
		u.SetService(&object)
		for i := range list.Items {
			u.SetEndpointSlice(&list.Items[i])
		}
	})
	snapshot := builder.Snapshot()
	state := &status.State{Snapshot: snapshot, Plan: plan.Compute(snapshot, &plan.Options{}, nil), Now: time.Now()}
	if want := state.Service(name, nil); want != nil {
		return want, nil // fields that cannot be used are left out by every proxy
	}
	return nil, errors.Join(fmt.Errorf("no proxy serves Service %s: it is headless, an ExternalName, or of another proxy", name), err)
}

// Missing says which nodes are behind, the first few with their reasons.
func (w *Waited) Missing() error {
	var lines []string
	for i, behind := range w.Behind {
		if i == maxDifferences {
			lines = append(lines, fmt.Sprintf("and %d more nodes", len(w.Behind)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("node %s: %s", behind.Node, strings.Join(behind.Reasons[:min(len(behind.Reasons), 3)], "; ")))
	}
	return fmt.Errorf("%s: %d of %d nodes do not serve it as it is:\n%s", w.Service, len(w.Behind), w.Nodes, strings.Join(lines, "\n"))
}
