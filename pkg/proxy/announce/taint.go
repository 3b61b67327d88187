package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Taint is a taint of a Node: no two of a Node have the same key and effect. The zero value is none. It is the value of a flag.
type Taint struct{ Key, Value, Effect string }

// Set reads KEY[=VALUE]:EFFECT, as kubectl taint writes it; an empty text is none.
func (t *Taint) Set(text string) error {
	*t = Taint{}
	if text == "" {
		return nil
	}
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	switch corev1.TaintEffect(effect) {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		problems = append(problems, "the effect must be NoSchedule, PreferNoSchedule or NoExecute")
	}
	if len(problems) > 0 {
		return fmt.Errorf("it must be KEY[=VALUE]:EFFECT: %s", strings.Join(problems, "; "))
	}
	*t = Taint{key, value, effect}
	return nil
}

// String is the text that Set reads.
func (t *Taint) String() string {
	switch {
	case *t == Taint{}:
		return ""
	case t.Value == "":
		return t.Key + ":" + t.Effect
	default:
		return t.Key + "=" + t.Value + ":" + t.Effect
	}
}

// Type is the name of the value in help.
func (*Taint) Type() string { return "taint" }

// TaintRemover is an Observer that removes a taint from the proxy's Node after the first sync that succeeds in all families, so that pods
// that need Services start only then (kubernetes#75890), and again if the Node was deleted and is registered anew. The kubelet sets the taint
// when it registers the Node (registerWithTaints).
type TaintRemover struct {
	proxy.Ignore
	clients  apiclient.Clients
	node     string
	taint    Taint
	recorder proxy.Recorder
	// asked reports that the Node has been passed to serves, the object with this UID.
	asked  bool
	uid    string
	serves chan struct{}
}

// NewTaintRemover returns a TaintRemover of a Node.
func NewTaintRemover(config *rest.Config, node string, taint Taint, recorder proxy.Recorder) (*TaintRemover, error) {
	clients, err := apiclient.New(config, apiclient.Nodes)
	if err != nil {
		return nil, fmt.Errorf("creating the client for the startup taint: %w", err)
	}
	return &TaintRemover{clients: clients, node: node, taint: taint, recorder: recorder, serves: make(chan struct{}, 1)}, nil
}

// Synced implements [proxy.Observer].
func (r *TaintRemover) Synced(s *proxy.Sync) { r.synced(s.After.Node, s.Err()) }

// synced notes a sync of a Node, and why it failed in a family.
func (r *TaintRemover) synced(node *cluster.Node, err error) {
	r.asked = r.asked && node.Exists && node.UID == r.uid
	if r.asked || !node.Exists || err != nil {
		return
	}
	r.asked, r.uid = true, node.UID
	select {
	case r.serves <- struct{}{}:
	default: // it is being removed
	}
}

const (
	// firstPause is the time until a failed removal is tried again, which doubles up to lastPause.
	firstPause = time.Second
	lastPause  = time.Minute
)

// Run implements [proxy.Observer].
func (r *TaintRemover) Run(ctx context.Context) error {
	for {
		select {
		case <-r.serves:
			r.retry(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// retry removes the taint, and tries again until that succeeds or ctx ends.
func (r *TaintRemover) retry(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("node", r.node, "taint", r.taint.String())
	failing := logonce.Condition{Again: logonce.Reminder}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := r.remove(ctx, logger)
		if err == nil || ctx.Err() != nil {
			return
		}
		if failing.Changed(err.Error()) {
			logger.Error(err, "Cannot remove the startup taint; pods that do not tolerate it are not scheduled to this Node. Retrying")
		}
		if pause == firstPause && !errors.Is(err, errChanged) {
			r.event(true, "FailedToRemoveStartupTaint", fmt.Sprintf("Services are served, but the taint %s stays: %v", &r.taint, err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (r *TaintRemover) event(warning bool, reason, message string) {
	r.recorder.Event(proxy.Event{Kind: "Node", Name: r.node, Warning: warning, Reason: reason, Action: "RemoveTaint", Message: message})
}

// errChanged is the error if the Node's taints changed since they were read.
var errChanged = errors.New("the Node's taints changed meanwhile")

// remove removes the taint if the Node has it.
func (r *TaintRemover) remove(ctx context.Context, logger klog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list corev1.NodeList
	of := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", r.node).String()} // list is a right that the proxy has
	if err := r.clients.List(ctx, apiclient.Nodes, metav1.NamespaceAll, of, &list); err != nil {
		return fmt.Errorf("read the taints of Node %s: %w", r.node, err)
	}
	if len(list.Items) == 0 {
		return nil // it was deleted; Synced notices when it is back
	}
	patch := r.patch(list.Items[0].Spec.Taints, logger)
	if patch == nil {
		return nil
	}
	switch err := r.clients.PatchJSON(ctx, apiclient.Nodes, metav1.NamespaceAll, r.node, patch); {
	case err == nil:
		logger.Info("Removed the startup taint: Services are served")
		r.event(false, "StartupTaintRemoved", fmt.Sprintf("Services are served: removed the taint %s", &r.taint))
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; grant it with the component startup-taint of the manifests, or the chart's startupTaint", err)
	case apierrors.IsInvalid(err), apierrors.IsConflict(err): // 422 if the patch's test fails
		return fmt.Errorf("%w: %w", errChanged, err)
	default:
		return fmt.Errorf("remove the taint: %w", err)
	}
}

// patch returns a JSON patch (RFC 6902) that removes the taint, and only if the list still has it at this place; nil if it has none.
func (r *TaintRemover) patch(taints []corev1.Taint, logger klog.Logger) []byte {
	for i, taint := range taints {
		if taint.Key != r.taint.Key || string(taint.Effect) != r.taint.Effect {
			continue
		}
		if taint.Value != r.taint.Value {
			logger.Info("The Node has the startup taint with another value, which stays", "value", taint.Value)
			return nil
		}
		type operation struct {
			Op    string        `json:"op"`
			Path  string        `json:"path"`
			Value *corev1.Taint `json:"value,omitempty"`
		}
		path := fmt.Sprintf("/spec/taints/%d", i)
		text, err := json.Marshal([]operation{{"test", path, &taint}, {Op: "remove", Path: path}})
		if err != nil {
			return nil // not reached: every field has an encoding
		}
		return text
	}
	return nil
}
