package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// Encode writes a configuration in a version, as YAML with all defaults.
func Encode(cfg *KubeProxyConfiguration, version string) ([]byte, error) {
	return sigsyaml.Marshal(Versioned(cfg, version))
}

// EncodeFor is [Encode] for a file of this name: as JSON if it ends in .json.
func EncodeFor(name string, cfg *KubeProxyConfiguration, version string) ([]byte, error) {
	data, err := Encode(cfg, version)
	if err != nil || !strings.EqualFold(filepath.Ext(name), ".json") {
		return data, err
	}
	if data, err = sigsyaml.YAMLToJSON(data); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// Versioned converts a configuration to a served version, with all defaults.
func Versioned(cfg *KubeProxyConfiguration, version string) any {
	if version == V1alpha1 {
		return toV1alpha1(cfg)
	}
	return cfg
}

// DefaultsOf returns the default configuration of a served version.
func DefaultsOf(version string) *KubeProxyConfiguration {
	if version == V1alpha1 {
		return DefaultV1alpha1()
	}
	return Default()
}

// WriteFile replaces the content of a file atomically: after an error it is as before. It writes to anything but a regular file as
// it is.
func WriteFile(name string, data []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	mode := os.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		if !info.Mode().IsRegular() {
			return userfile.Overwrite(name, data)
		}
		mode = info.Mode().Perm()
	}
	if err := replace(name, mode, data); err != nil {
		return fmt.Errorf("%s is not written: %w", name, err)
	}
	return nil
}

// replace writes a temporary file beside the named one and renames it.
func replace(name string, mode os.FileMode, data []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name())
		}
	}()
	_, err = temporary.Write(data)
	for _, step := range []func() error{temporary.Sync, func() error { return temporary.Chmod(mode) }} {
		if err == nil {
			err = step()
		}
	}
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
