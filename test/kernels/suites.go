package main

import (
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// sources is the folder in the machine that has the tests' files, at the paths that they have in this repository.
const sources = "/src"

// suite is the tests of one package, or a program, that runs in the machine.
type suite struct {
	name string
	// program is a command line, in the folder sources; or ""
	program string
	// folder is the package, by its path in this repository.
	folder string
	// all and quick are the patterns of the tests, as of go test -run. If quick is empty, the suite is not part of a quick run.
	all, quick string
	// image means that the suite uses the tools of the container image, not those of the release.
	image bool
	// peer means that the suite needs Kubernetes' own kube-proxy.
	peer bool
	// releases are those on which the suite runs; nil means all.
	releases []string
}

// suites returns all suites.
func suites() []suite {
	// Both modes run on the kernels of modern releases.
	modern, old := []string{"bookworm", "trixie"}, []string{"bullseye"}
	// The longest are last.
	return []suite{
		{name: "too-old", folder: "test/kernels/old", all: "^TestKernelTooOld", quick: "^TestKernelTooOld", image: true, releases: old},
		{name: "old-tools", folder: "test/kernels/old", all: "^TestKernelOldTools", quick: "^TestKernelOldTools", releases: old},
		{name: "demo", program: "bin/demo -slow", releases: modern},
		{name: "conntrack", folder: "pkg/kernel/conntrack", all: "^TestKernel"},
		{name: "netlock", folder: "pkg/kernel/netlock", all: "^TestKernel"},
		{name: "netif", folder: "pkg/kernel/netif", all: "^TestKernel"},
		// 5.10 does not report the peak of a control group.
		{name: "cgroup", folder: "test/cgroup", all: "^TestKernel", releases: modern},
		{name: "memory", folder: "test/bench", all: "^TestKernelMemoryLimit$", releases: modern},
		{name: "fast-path", folder: "test/bench", all: "^TestKernelFastPath$", releases: modern},
		{name: "modes", folder: "test/restart", all: "^TestKernelModeSwitch$", releases: modern},
		{name: "ipvs", folder: "test/kernels/ipvs", all: "^TestKernel", releases: modern},
		{name: "ipvs-live", folder: "test/rolling", all: "^TestKernelHandover$/nft/^Kubernetes._ipvs_to", releases: modern},
		{name: "ipvs-sctp", folder: "test/rolling", all: "^TestKernelDrainSCTP$", releases: modern},
		{name: "ipvs-audit", folder: "test/audit", all: "^TestKernelAudit$/^kubeadm-ipvs$", peer: true, releases: modern},
		{name: "ipvs-iptables", folder: "test/kernels/ipvs", all: "^TestKernel/(cleanup|iptables)$", releases: old},
		{name: "nft", folder: "pkg/kernel/nft", all: "^TestKernel", quick: "^TestKernelUsable$", releases: modern},
		{name: "ipt", folder: "pkg/kernel/ipt", all: "^TestKernel", releases: modern},
		{name: "ipt-image", folder: "pkg/kernel/ipt", all: "^TestKernel", image: true, releases: old},
		{name: "cases-iptables", folder: "pkg/proxy/backend/iptables", all: "^TestKernel", quick: quickCases("/(nft|legacy)")},
		{name: "cases-nftables", folder: "pkg/proxy/backend/nftables", all: "^TestKernel", quick: quickCases(""), releases: modern},
	}
}

// quickCases is the pattern of the cases that meet most features of the kernel: translation of both addresses, rejection, node
// ports, and all protocols.
func quickCases(variant string) string {
	const names = "^(hairpin|node-port|no-endpoints|protocols)$"
	return "^TestKernelCases$" + variant + "/" + names
}

// binary is the suite's program in the machine.
func (s suite) binary() string { return sources + "/" + s.folder + "/kernels.test" }

// commands returns a script that runs suites one after the other.
func commands(chosen []suite, quick bool) string {
	var script strings.Builder
	script.WriteString("export CI=true KERNELS=emulated " + netns.PatienceVariable + "=100 LIMITED=100x5 KUBE_PROXY=" + sources + "/bin/kube-proxy\n[ ! -e /peer ] || export PEER=/peer\n")
	for _, s := range chosen {
		pattern := s.all
		if quick {
			pattern = s.quick
		}
		path := "$PATH"
		if s.image {
			path = imagePath + ":" + path
		}
		run := fmt.Sprintf("%s -test.v -test.short -test.run '%s' -test.timeout 60m", s.binary(), pattern)
		if s.program != "" {
			run = s.program
		}
		fmt.Fprintf(&script, "cd %s/%s\necho '%s%s'\nPATH=%s %s\necho '%s%s' $?\n", sources, s.folder, beginLine, s.name, path, run, endLine, s.name)
	}
	return script.String()
}
