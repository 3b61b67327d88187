//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// The messages that kubectl shows, after "Warning: " and after "Error from server (Forbidden): ".
const (
	warned = "Validation failed for ValidatingAdmissionPolicy 'warn-service-external-ips' with binding 'warn-service-external-ips': " +
		"spec.externalIPs 192.0.2.40, 192.0.2.41: no controller has confirmed these addresses, so the Service could intercept the " +
		"traffic of others (CVE-2020-8554), and kube-proxy does not serve them by default. Use a Service of type LoadBalancer, a Gateway or an Ingress instead."
	denied = `services "refused" is forbidden: ValidatingAdmissionPolicy 'deny-service-external-ips' with binding 'deny-service-external-ips' ` +
		"denied request: spec.externalIPs must not contain 192.0.2.42: no controller has confirmed the address, so the Service could intercept " +
		"the traffic of others (CVE-2020-8554). Use a Service of type LoadBalancer, a Gateway or an Ingress instead."
)

// warnings stores the server's warnings.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns and clears the policy's warnings; it ignores other warnings of the server.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := slices.DeleteFunc(w.texts, func(text string) bool { return !strings.Contains(text, "ValidatingAdmissionPolicy") })
	w.texts = nil
	return texts
}

// admission is a user who writes Services under a policy.
type admission struct {
	*world
	user     kubernetes.Interface
	warnings *warnings
}

// policies tests both policies of build/manifests, one after the other.
func policies(w *world) {
	config, received := w.cluster.Config("admin"), &warnings{}
	config.WarningHandler = received
	user, err := kubernetes.NewForConfig(config)
	w.must(err)
	a := &admission{w, user, received}
	a.write("kept", "192.0.2.40", "192.0.2.41") // before any policy exists
	a.warn()
	a.deny()
}

// write creates a Service with external IPs.
func (a *admission) write(name string, externalIPs ...string) {
	a.t.Helper()
	a.must(a.try(name, externalIPs...))
}

func (a *admission) try(name string, externalIPs ...string) error {
	_, err := a.user.CoreV1().Services("default").Create(context.Background(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ExternalIPs: externalIPs, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

// update changes a Service as the user.
func (a *admission) update(name string, change func(*corev1.Service)) error {
	a.t.Helper()
	api, ctx := a.user.CoreV1().Services("default"), context.Background()
	s, err := api.Get(ctx, name, metav1.GetOptions{})
	a.must(err)
	change(s)
	_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

// status writes an address to status, as a controller does.
func (a *admission) status(name string) error {
	a.t.Helper()
	api, ctx := a.user.CoreV1().Services("default"), context.Background()
	s, err := api.Get(ctx, name, metav1.GetOptions{})
	a.must(err)
	s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: "Seen", Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()})
	_, err = api.UpdateStatus(ctx, s, metav1.UpdateOptions{})
	return err
}

// install creates the objects of a file of build/manifests and returns a function that deletes them.
func (a *admission) install(file string) func() {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "build", "manifests", file))
	a.must(err)
	documents := strings.Split(string(text), "\n---\n")
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	a.must(yaml.UnmarshalStrict([]byte(documents[0]), &policy))
	a.must(yaml.UnmarshalStrict([]byte(documents[1]), &binding))
	api, ctx := a.client.AdmissionregistrationV1(), context.Background()
	_, err = api.ValidatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
	a.must(err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
	a.must(err)
	return func() {
		a.t.Helper()
		a.must(api.ValidatingAdmissionPolicyBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		a.must(api.ValidatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{}))
	}
}

// in waits until a policy is in effect: until it applies to a probe Service.
func (a *admission) in(treated func(err error) bool) {
	a.t.Helper()
	a.eventually("the policy is in force", func() string {
		a.warnings.take()
		err := a.try("probe", "192.0.2.49")
		if treated(err) {
			return ""
		}
		a.must(err)
		a.must(a.client.CoreV1().Services("default").Delete(context.Background(), "probe", metav1.DeleteOptions{}))
		return "it is not"
	})
}

// warn creates and updates Services: every request succeeds, with a warning while there are external IPs.
func (a *admission) warn() {
	remove := a.install("external-ips-warn.yaml")
	defer remove()
	a.in(func(err error) bool { return err == nil && len(a.warnings.take()) > 0 })
	warns := func(what string, err error, texts ...string) {
		a.t.Helper()
		a.must(err)
		if got := a.warnings.take(); !slices.Equal(got, texts) {
			a.t.Errorf("%s: the user is warned\n%q, want\n%q", what, got, texts)
		}
	}
	warns("create with", a.try("warned", "192.0.2.40", "192.0.2.41"), warned)
	warns("create without", a.try("plain"))
	warns("update of another field", a.update("warned", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), warned)
	warns("status", a.status("warned"))
	warns("remove all", a.update("warned", func(s *corev1.Service) { s.Spec.ExternalIPs = nil }))
	warns("update without", a.update("warned", func(s *corev1.Service) { s.Spec.Ports[0].Port = 82 }))
	warns("add", a.update("plain", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.40", "192.0.2.41"} }), warned)
}

// deny checks that new external IPs are rejected, and nothing else.
func (a *admission) deny() {
	remove := a.install("external-ips-deny.yaml")
	defer remove()
	a.must(a.client.CoreV1().Services("default").Delete(context.Background(), "probe", metav1.DeleteOptions{}))
	a.in(apierrors.IsForbidden)
	if err := a.try("refused", "192.0.2.42"); err == nil || err.Error() != denied {
		a.t.Errorf("the user reads\n%v, want\n%s", err, denied)
	}
	set := func(addrs ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.ExternalIPs = addrs }
	}
	for _, step := range []struct {
		what    string
		err     error
		refused bool
	}{
		{"create without", a.try("fine"), false},
		{"keep", a.update("kept", set("192.0.2.40", "192.0.2.41")), false},
		{"another order", a.update("kept", set("192.0.2.41", "192.0.2.40")), false},
		{"another field", a.update("kept", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }), false},
		{"labels", a.update("kept", func(s *corev1.Service) { s.Labels = map[string]string{"seen": "yes"} }), false},
		{"status", a.status("kept"), false},
		{"add one", a.update("kept", set("192.0.2.40", "192.0.2.41", "192.0.2.42")), true},
		{"change one", a.update("kept", set("192.0.2.40", "192.0.2.42")), true},
		{"remove one", a.update("kept", set("192.0.2.40")), false},
		{"put it back", a.update("kept", set("192.0.2.40", "192.0.2.41")), true},
		{"remove all", a.update("kept", set()), false},
		{"give some to a Service without", a.update("fine", set("192.0.2.40")), true},
	} {
		if apierrors.IsForbidden(step.err) != step.refused || step.err != nil && !step.refused {
			a.t.Errorf("%s: %v, want it refused: %t", step.what, step.err, step.refused)
		}
	}
}
