package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
)

// State is what a node runs.
type State string

// The states. Serving is a proxy of this project whose rules are in force; Failing one that does not serve what it should; Foreign another
// program, such as Kubernetes' own kube-proxy.
const (
	Serving     State = "Serving"
	Failing     State = "Failing"
	Foreign     State = "Foreign"
	NoPod       State = "NoPod"
	NotRunning  State = "NotRunning"
	Forbidden   State = "Forbidden"
	Unreachable State = "Unreachable"
)

// Node is what is known of one node.
type Node struct {
	Name  string `json:"name"`
	Pod   string `json:"pod,omitempty"`
	State State  `json:"state"`
	// Messages are why the state is not Serving, and what else is wrong: one line each.
	Messages []string `json:"messages,omitempty"`
	Version  string   `json:"version,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	// Health is the answer of /healthz: ok, a number of HTTP, or empty if it was not asked or does not answer.
	Health string `json:"health,omitempty"`
	// Synced is when a sync last succeeded in all families, Pending when the oldest change arrived that is not.
	Synced  *time.Time `json:"synced,omitempty"`
	Pending *time.Time `json:"pending,omitempty"`
	Waiting []string   `json:"waiting,omitempty"`
	// Services is their number, and Digest what is known of them, to compare nodes with each other.
	Services int    `json:"services"`
	Digest   string `json:"digest,omitempty"`
	// Observed are the numbers of Services with each problem that only the proxy sees, such as RefusedByKernel.
	Observed map[string]int `json:"observed,omitempty"`
	// Drifts is how many of the last 100 modifications of its rules by other programs the proxy lists, and LastDrift the last one's time.
	Drifts    int        `json:"drifts"`
	LastDrift *time.Time `json:"lastDrift,omitempty"`
}

// Fine reports whether nothing is wrong.
func (n *Node) Fine() bool { return n.State == Serving && len(n.Messages) == 0 }

// Ports are those of the proxy's servers: of metrics and the API, and of health.
type Ports struct{ Metrics, Health string }

// Fleet asks the proxies of a cluster.
type Fleet struct {
	config  *rest.Config
	clients apiclient.Clients
	options Options
}

// Options say which proxies are asked, and how.
type Options struct {
	Selection
	Ports
	// Timeout bounds what is asked of one node.
	Timeout time.Duration
	// Lag is how long a change may wait to be programmed.
	Lag time.Duration
	// Settle is the time between two readings of nodes that differ: what differs in the same way in both is a disagreement.
	Settle time.Duration
	// Progress is called with the numbers of nodes that have been asked, and of all; it may be nil.
	Progress func(asked, all int)
}

// A pod may answer without end. How much of an answer is read, and how many are asked at a time, bounds the memory.
const (
	// parallel is how many nodes are asked at a time for short answers: not about each Service. few is how many for longer ones.
	parallel, few = 64, 4
	// shortAnswer and longAnswer are their sizes, in bytes: the digests of 45,000 Services are some 7 MB.
	shortAnswer, longAnswer = 1 << 20, 16 << 20
	// perEndpoint is more than what an endpoint of a port takes in an answer about one Service.
	perEndpoint = 1 << 10
)

// New returns a Fleet. It connects with the first question.
func New(config *rest.Config, options Options) (*Fleet, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of questions at a time is bounded
	clients, err := apiclient.New(config, apiclient.Pods, apiclient.Services, apiclient.EndpointSlices)
	if err != nil {
		return nil, err
	}
	return &Fleet{config: config, clients: clients, options: options}, nil
}

// Report is what all nodes answered.
type Report struct {
	v1alpha1.TypeMeta
	Time  time.Time `json:"time"`
	Nodes []*Node   `json:"nodes"`
	// Disagreements are Services that nodes know differently, in the same way twice.
	Disagreements []Disagreement `json:"disagreements,omitempty"`
	// Notes are what the report does not include, and why.
	Notes []string `json:"notes,omitempty"`
	// Before is the time of the report that this one was compared with, and Worse are the nodes that are worse than in that one: what
	// is wrong now and was not.
	Before *time.Time `json:"before,omitempty"`
	Worse  []Fault    `json:"worse,omitempty"`

	someUnknown bool // nodes without a pod are not listed
}

// Fault is what is wrong with a node.
type Fault struct {
	Node    string   `json:"node"`
	Reasons []string `json:"reasons"`
}

// Fine reports whether all nodes serve, and agree; of a report that was compared with an earlier one, whether no node is worse.
func (r *Report) Fine() bool {
	if r.Before != nil {
		return len(r.Worse) == 0
	}
	return len(r.Nodes) > 0 && len(r.Disagreements) == 0 && !slices.ContainsFunc(r.Nodes, func(n *Node) bool { return !n.Fine() })
}

// Ask asks all nodes, and compares what they know. An error means that the fleet is not known; what is wrong with nodes is in the report.
func (f *Fleet) Ask(ctx context.Context) (*Report, error) {
	targets, notes, err := f.targets(ctx)
	if err != nil {
		return nil, err
	}
	report := &Report{TypeMeta: v1alpha1.Meta(v1alpha1.KindFleet), Time: time.Now(), Nodes: make([]*Node, len(targets)), Notes: notes, someUnknown: len(notes) > 0}
	f.each(len(targets), parallel, func(i int) { report.Nodes[i] = f.ask(ctx, targets[i]) })
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	f.compare(ctx, targets, report)
	return report, nil
}

// targets returns all nodes, those without a pod, too, sorted by name. notes say whether nodes without a pod are unknown.
func (f *Fleet) targets(ctx context.Context) (all []target, notes []string, err error) {
	found, err := find(ctx, f.clients, f.options.Selection)
	if err != nil {
		return nil, nil, err
	}
	all = slices.Clone(found)
	names, known, err := nodeNames(ctx, f.clients)
	if err != nil {
		return nil, nil, err
	}
	if !known {
		notes = []string{"there is no right to list Nodes: a node without a proxy's pod is not listed"}
	}
	for _, name := range names {
		if _, has := slices.BinarySearchFunc(found, name, func(t target, name string) int { return strings.Compare(t.node, name) }); !has {
			all = append(all, target{node: name})
		}
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.node, b.node) })
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("no pod of a proxy in namespace %s has the labels %q: see --proxy-namespace and --selector", f.options.Namespace, f.options.Selector)
	}
	return all, notes, nil
}

// each calls do with all numbers below n, some at a time, and shows the progress.
func (f *Fleet) each(n, atOnce int, do func(i int)) {
	var mu sync.Mutex
	done := 0
	inspect.InParallel(n, atOnce, func(i int) {
		do(i)
		mu.Lock()
		defer mu.Unlock()
		if done++; f.options.Progress != nil {
			f.options.Progress(done, n)
		}
	})
}

// connection reaches the proxy in a pod.
type connection struct {
	*inspect.Client
	pod *podTransport
}

func (f *Fleet) connect(t target) (*connection, error) {
	client, err := inspect.NewClient("localhost:"+f.options.Metrics, f.options.Timeout)
	if err != nil {
		return nil, err
	}
	pod := forwardTo(f.config, f.clients, f.options.Namespace, t.pod)
	return &connection{client.AtMost(shortAnswer).Through(pod, fmt.Sprintf("port %s of pod %s", f.options.Metrics, t.pod)), pod}, nil
}

// Through returns a client that asks the proxy of the selected node, at the port of client's server. It stays connected.
func (f *Fleet) Through(ctx context.Context, client *inspect.Client) (*inspect.Client, error) {
	t, err := f.one(ctx)
	if err != nil {
		return nil, err
	}
	return client.Through(forwardTo(f.config, f.clients, f.options.Namespace, t.pod), "pod "+t.pod), nil
}

// get requests a page that is not part of the API: its status, and the beginning of its text.
func (c *connection) get(ctx context.Context, port, path string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+port+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := c.pod.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, longest))
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// longest is how much of a page is read.
const longest = 200

// ask asks one node. Whatever fails is said in the Node.
func (f *Fleet) ask(ctx context.Context, t target) *Node {
	n := &Node{Name: t.node, Pod: t.pod}
	switch {
	case t.pod == "":
		return n.as(NoPod, "no pod of a proxy: the proxy runs outside of pods, has other labels (--selector), or there is none")
	case t.problem != "":
		return n.as(NotRunning, t.problem)
	}
	ctx, cancel := context.WithTimeout(ctx, f.options.Timeout)
	defer cancel()
	c, err := f.connect(t)
	if err != nil {
		return n.as(Unreachable, err.Error())
	}
	defer c.pod.Close()
	info, err := c.Info(ctx)
	if err != nil {
		return f.unknown(ctx, n, t, c, err)
	}
	n.Version, n.Mode, n.Synced, n.Pending, n.Waiting, n.Services, n.Observed = info.Version, info.Mode, info.Synced, info.Pending, info.Waiting, info.Services, info.Observed
	n.State = Serving
	n.judge(info, time.Now().Add(-f.options.Lag))
	if code, _, err := c.get(ctx, f.options.Health, "/healthz"); err == nil {
		n.health(code)
	}
	digests, err := c.Digests(ctx, false)
	switch answered, ok := errors.AsType[*inspect.StatusError](err); {
	case err == nil:
		n.Digest = digests.All
	case ok && answered.Code == http.StatusNotFound:
		n.note(isOlder)
	case ok && answered.Code == http.StatusServiceUnavailable:
		n.as(Failing, answered.Message)
	default:
		n.note(err.Error())
	}
	if repairs, err := c.Repairs(ctx); err == nil && len(repairs.Items) > 0 {
		n.Drifts, n.LastDrift = len(repairs.Items), &repairs.Items[len(repairs.Items)-1].Time
	}
	return n
}

func (n *Node) as(state State, message string) *Node {
	n.State = state
	n.note(message)
	return n
}

// note adds a message. What a proxy sends is not trusted to be short.
func (n *Node) note(message string) {
	if len(n.Messages) < maxMessages {
		n.Messages = append(n.Messages, strings.ToValidUTF8(message[:min(len(message), longestMessage)], ""))
	}
}

// maxMessages is how many messages a node may have, longestMessage how long one may be.
const maxMessages, longestMessage = 50, 1000

// judge adds what the proxy itself says is wrong. overdue is since when a change may be pending.
func (n *Node) judge(info *v1alpha1.Info, overdue time.Time) {
	for _, family := range info.Sync.Failed() {
		n.as(Failing, family.Failure())
	}
	for _, what := range info.Waiting {
		n.note("waits for " + what)
	}
	if info.Pending != nil && info.Pending.Before(overdue) {
		n.note(fmt.Sprintf("lags: a change of %s is not programmed", info.Pending.Format(time.RFC3339)))
	}
	for _, reason := range slices.Sorted(maps.Keys(info.Observed)) {
		n.note(fmt.Sprintf("%s: %d of its Services", reason, info.Observed[reason]))
	}
	for _, problem := range info.Problems {
		n.note(problem.Reason + ": " + problem.Message)
	}
}

const (
	// healthy is the Health of a node whose /healthz answers 200.
	healthy = "ok"
	// isForeign begins the message of a node that runs another program, isOlder is that of one that cannot be compared.
	isForeign = "Kubernetes' own kube-proxy, or a version without this API"
	isOlder   = "an older version of this program: what it knows cannot be compared"
)

// health adds the answer of /healthz.
func (n *Node) health(code int) {
	if n.Health = healthy; code != http.StatusOK {
		n.Health = fmt.Sprint(code)
		n.note(fmt.Sprintf("/healthz answers %d: it does not serve what it should, or the Node is being deleted", code))
	}
}

// tag returns the tag of an image without its registry; "" if it has only a digest.
func tag(image string) string {
	name, _, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// unknown describes a node whose proxy does not answer as one of this project.
func (f *Fleet) unknown(ctx context.Context, n *Node, t target, c *connection, err error) *Node {
	var foreign *inspect.NoAPIError
	var silent *inspect.NotRunningError
	switch {
	case errors.As(err, &foreign):
		n.Version = tag(t.image)
		if code, mode, err := c.get(ctx, f.options.Metrics, "/proxyMode"); err == nil && code == http.StatusOK {
			n.Mode = mode
		}
		n.as(Foreign, fmt.Sprintf("%s (image %s)", isForeign, t.image))
		if code, _, err := c.get(ctx, f.options.Health, "/healthz"); err == nil {
			n.health(code)
		}
	case errors.As(err, &silent):
		n.as(Unreachable, fmt.Sprintf("nothing listens on port %s of localhost: see metricsBindAddress (--port), and the log of the pod", f.options.Metrics))
	case strings.Contains(err.Error(), "is forbidden"):
		n.as(Forbidden, err.Error())
	default:
		n.as(Unreachable, err.Error())
	}
	return n
}
