//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// volume prepares a Pod's volume and returns its path. dir is the place for a volume that is the Pod's own.
func (k *kubelet) volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, dir string) (string, error) {
	switch {
	case v.HostPath != nil:
		return k.hostPath(v.HostPath)
	case v.ConfigMap != nil:
		return dir, k.configMap(ctx, pod.Namespace, v.ConfigMap.Name, dir, v.ConfigMap.Items)
	case v.EmptyDir != nil:
		return dir, os.MkdirAll(dir, 0o755)
	case v.Projected == nil:
		return "", fmt.Errorf("this kubelet cannot mount %+v", v.VolumeSource)
	}
	for _, source := range v.Projected.Sources {
		var err error
		switch {
		case source.ServiceAccountToken != nil:
			err = k.token(ctx, pod, source.ServiceAccountToken, dir)
		case source.ConfigMap != nil:
			err = k.configMap(ctx, pod.Namespace, source.ConfigMap.Name, dir, source.ConfigMap.Items)
		case source.DownwardAPI != nil:
			err = write(dir, "namespace", pod.Namespace)
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// hostPath returns a path below the node's own files.
func (k *kubelet) hostPath(v *corev1.HostPathVolumeSource) (string, error) {
	path := filepath.Join(k.dir, "host", v.Path)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if ptr.Deref(v.Type, corev1.HostPathUnset) != corev1.HostPathFileOrCreate {
		return path, os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	return path, file.Close()
}

// configMap writes the keys of a ConfigMap, or those of items, as files.
func (k *kubelet) configMap(ctx context.Context, namespace, name, dir string, items []corev1.KeyToPath) error {
	object, err := k.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(items) == 0 {
		for key := range object.Data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		if err := write(dir, item.Path, object.Data[item.Key]); err != nil {
			return err
		}
	}
	return nil
}

// token writes a token of the Pod's ServiceAccount that is bound to the Pod.
func (k *kubelet) token(ctx context.Context, pod *corev1.Pod, of *corev1.ServiceAccountTokenProjection, dir string) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: of.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if of.Audience != "" {
		request.Spec.Audiences = []string{of.Audience}
	}
	answer, err := k.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return write(dir, of.Path, answer.Status.Token)
}

// write writes a file and creates its folder.
func write(dir, name, text string) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
