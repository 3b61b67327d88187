//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
)

const (
	// defaultSpecs are those of what kube-proxy does.
	defaultSpecs = `\[sig-network\] (Services|LocalhostNodePorts|Conntrack|Traffic Distribution) `

	// withSpecs installs the manifests in the mode $1, with what the specs of localhost node ports and of external IPs need.
	withSpecs = `rm -rf specs
cp -r build/manifests specs
gates='{AllowServiceExternalIPs: true, KubeProxyNFTablesLocalhostNodePorts: true}'
sed -i "s/^    mode: /    featureGates: $gates\n    iptables: {localhostNodePorts: true}\n    nodePortAddresses: [primary, localhost]\n&/" specs/base/config.yaml
kubectl apply -k specs/overlays/$1
kubectl -n kube-system rollout restart daemonset/kube-proxy
` + rollout + ` --timeout=4m`

	// tools prints the paths of the programs that the specs run in agnhost's image, in /bin if they can be, and of their libraries.
	tools = `programs=/bin/sh
PATH=/bin:$PATH
for name in cat curl date dd grep head hostname ip nc nslookup seq sleep sort ss tail tr uniq wc wget; do programs="$programs $(command -v $name)"; done
echo $programs $(ldd $programs | grep -o '/[^ :]*')`
)

// impossible are specs that this cluster cannot run, with the reason.
var impossible = map[string]string{
	"should work after restarting apiserver": "no client can restart a static pod",
}

// hasSpecs reports whether the step runs specs.
func (s step) hasSpecs() bool { return strings.HasPrefix(s.name, "specs") }

// writeSpecImages writes the images whose pods the specs start. Kubernetes' have Alpine's tools, these have this machine's.
func (w *world) writeSpecImages(ctx context.Context) error {
	list, err := output(command(ctx, w.program("e2e.test"), "--list-images"))
	if err != nil {
		return err
	}
	refs := newest(slices.DeleteFunc(strings.Fields(list), func(ref string) bool { return !strings.Contains(ref, "/e2e-test-images/") }))
	paths, err := output(command(ctx, "sh", "-ec", tools))
	if err != nil {
		return err
	}
	pause, err := withProgram(empty.Image, w.program("real"), []string{"/usr/local/bin/real", "pause"})
	if err != nil {
		return err
	}
	files, err := inRegistry(pause, "/var/registry/pause", "testing")
	if err != nil {
		return err
	}
	for file := range strings.FieldsSeq(paths) {
		if files[file], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	base, err := withFiles(empty.Image, files)
	if err != nil {
		return err
	}
	const boom = "regression-issue-74839"
	return errors.Join(writeImage(w.path("images", "agnhost.tar"), refs["agnhost"], base, w.program("agnhost"), []string{"/agnhost", "pause"}),
		writeImage(w.path("images", "busybox.tar"), refs["busybox"], base, "/bin/sh", []string{"/bin/sh"}),
		writeImage(w.path("images", boom+".tar"), refs[boom], empty.Image, w.program(boom), []string{"/" + boom}))
}

// inRegistry returns the files of an image as "agnhost fake-registry-server" wants them below a folder.
func inRegistry(image v1.Image, folder, tag string) (map[string][]byte, error) {
	manifest, err := image.RawManifest()
	digest, err2 := image.Digest()
	config, err3 := image.RawConfigFile()
	configName, err4 := image.ConfigName()
	layers, err5 := image.Layers()
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	at := func(kind string, h v1.Hash) string {
		return path.Join(folder, kind, h.Algorithm, h.Hex[:2], h.Hex, "data")
	}
	files := map[string][]byte{
		path.Join(folder, "manifests", tag): []byte(digest.String()), at("manifests", digest): manifest, at("blobs", configName): config,
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		body, err := layer.Compressed()
		if err != nil {
			return nil, err
		}
		files[at("blobs", digest)], err = io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// spec is what ginkgo reports of a spec, or of another part of the suite.
type spec struct {
	LeafNodeType, LeafNodeText, State string
	Failure                           struct{ Message string }
}

// specs installs the manifests in a mode, and runs Kubernetes' own specs whose names match w.focus. What they print is in log.
func (w *world) specs(ctx context.Context, mode string) error {
	script := "cd " + w.path("docs") + "\nset " + mode + "\n" + withSpecs
	if _, err := output(w.nodes[0].command(ctx, "sh", "-exc", script)); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(w.dir, "log", "specs-"+mode+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"--procs=4", "--no-color", "--silence-skips", "--focus=" + w.focus, "--json-report=specs.json", "--output-dir=" + w.path()}
	for name, reason := range impossible {
		args = append(args, "--skip="+name)
		fmt.Printf("   not run: %s: %s\n", name, reason)
	}
	cmd := command(ctx, "ginkgo", append(args, w.program("e2e.test"), "--", "--provider=local", "--num-nodes="+strconv.Itoa(len(w.nodes)))...)
	cmd.Stdout, cmd.Stderr = log, log
	failed := cmd.Run()
	text, err := os.ReadFile(w.path("specs.json"))
	if err != nil {
		return errors.Join(failed, err)
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &suites); err != nil {
		return errors.Join(failed, err)
	}
	states := map[string]int{}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			message, _, _ := strings.Cut(s.Failure.Message, "\n")
			if s.State != "passed" && message != "" { // the others are out of focus
				fmt.Printf("   %s: %s: %s\n", s.State, s.LeafNodeText, message)
			}
			if s.LeafNodeType == "It" && (s.State != "skipped" || message != "") {
				states[s.State]++
			}
		}
	}
	fmt.Printf("   specs: %v\n", states)
	if states["passed"] == 0 {
		failed = errors.Join(failed, fmt.Errorf("no spec that matches %q has passed", w.focus))
	}
	return failed
}
