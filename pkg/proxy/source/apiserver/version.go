package apiserver

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"
)

// The minor versions of API servers that are supported (docs/compatibility.md).
const (
	oldestServer = "1.34"
	newestServer = "1.37"
)

// logVersion logs that the API server's version is outside the supported range. Nothing depends on the answer, so errors do not matter.
func (s *Source) logVersion(ctx context.Context) {
	logger := klog.FromContext(ctx)
	m := newMeter(ctx, nil)
	defer m.end()
	body, err := s.clients[corev1.SchemeGroupVersion].Get().AbsPath("/version").MaxRetries(0).Do(m.ctx).Raw()
	if err != nil {
		logger.V(4).Info("The API server's version is unknown", "reason", m.why(err))
		return
	}
	name, supported, err := readVersion(body)
	switch {
	case err != nil:
		logger.V(4).Info("The API server's version is unknown", "reason", err)
	case !supported:
		logger.Info("This proxy was not tried with the API server's version", "version", name, "supported", oldestServer+" to "+newestServer)
	}
}

// readVersion returns the version in an answer of /version, such as v1.37.2, and whether it is supported.
func readVersion(body []byte) (name string, supported bool, err error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", false, fmt.Errorf("reading the answer of /version: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return "", false, fmt.Errorf("reading the answer of /version: %w", err)
	}
	minor := version.MajorMinor(v.Major(), v.Minor())
	oldest, newest := version.MustParseGeneric(oldestServer), version.MustParseGeneric(newestServer)
	return info.GitVersion, minor.AtLeast(oldest) && !minor.GreaterThan(newest), nil
}
