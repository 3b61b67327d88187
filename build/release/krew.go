package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// krewHead begins the manifest of the kubectl plugin (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
const krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: kube-proxy
spec:
  version: %s
  homepage: %s
  shortDescription: Show what kube-proxy serves on every node
  description: |
    Asks the proxies of all nodes what they serve and where they disagree (fleet), waits until a Service is served everywhere
    (fleet wait), explains connections, and finds what a change of the proxy or its mode breaks (audit).
  platforms:
`

// writeKrew writes the programs as archives for krew, kubectl's plugin manager, and the plugin's manifest.
func (r *release) writeKrew(context.Context) error {
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	var manifest bytes.Buffer
	fmt.Fprintf(&manifest, krewHead, r.version, r.source)
	for _, p := range platforms() {
		suffix := ""
		if p.os == "windows" {
			suffix = ".exe"
		}
		program, err := os.ReadFile(filepath.Join(r.out, "kube-proxy_"+p.os+"_"+p.arch+suffix))
		if err != nil {
			return err
		}
		archive, err := r.pack(packed{"LICENSE", 0o644, licence}, packed{"kubectl-kube_proxy" + suffix, 0o755, program})
		if err != nil {
			return err
		}
		name := "kubectl-kube_proxy_" + p.os + "_" + p.arch + ".tar.gz"
		if err := os.WriteFile(filepath.Join(r.out, name), archive, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&manifest, "  - selector: {matchLabels: {os: %s, arch: %s}}\n    uri: %s/releases/download/%s/%s\n    sha256: %x\n    bin: kubectl-kube_proxy%s\n",
			p.os, p.arch, r.source, r.version, name, sha256.Sum256(archive), suffix)
	}
	return os.WriteFile(filepath.Join(r.out, "krew.yaml"), manifest.Bytes(), 0o644)
}

// packed is a file of an archive.
type packed struct {
	name string
	mode int64
	body []byte
}

// pack returns a compressed archive of files, with the time of the commit.
func (r *release) pack(files ...packed) ([]byte, error) {
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	w := tar.NewWriter(compressed)
	var failed []error
	for _, file := range files {
		header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.body)), ModTime: r.created, Typeflag: tar.TypeReg}
		failed = append(failed, w.WriteHeader(header))
		_, err := w.Write(file.body)
		failed = append(failed, err)
	}
	err := errors.Join(append(failed, w.Close(), compressed.Close())...)
	return archive.Bytes(), err
}
