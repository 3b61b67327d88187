# `make` alone lists the targets with their descriptions.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# The same flags for everything that is compiled, so that build, tests and lint share one build cache. Only the race
# detector needs cgo. Tests are vetted by lint, once.
export PATH        := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
export CGO_ENABLED := 0
export GOFLAGS     := $(strip $(shell go env GOFLAGS 2>/dev/null) -trimpath -vet=off)

# The version, from the tag if there is one. A build of the same commit gives the same bytes.
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE    := $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
CREATED := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
STATE   := $(if $(shell git status --porcelain 2>/dev/null),dirty,clean)
VERSION ?= $(or $(shell git describe --tags --match 'v*' --dirty=+dirty 2>/dev/null),\
	v0.0.0+$(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$(if $(filter dirty,$(STATE)),.dirty))
LDFLAGS := -s -w $(addprefix -X k8s.io/component-base/version.,\
	gitVersion=$(VERSION) gitCommit=$(COMMIT) gitTreeState=$(STATE) buildDate=$(DATE))

# The programs, each of a package. kops starts kube-proxy through /go-runner, which is Kubernetes' own.
COMMANDS := kube-proxy go-runner
PACKAGE_kube-proxy := ./cmd/kube-proxy
PACKAGE_go-runner  := k8s.io/component-base/logs/kube-log-runner
LINTER   := .cache/golangci-lint
DEADCODE := .cache/deadcode
GOVULN   := .cache/govulncheck
GREMLINS := .cache/gremlins
BENCHSTAT := .cache/benchstat

# The arguments of build/need.sh for tests that send packets in network namespaces.
LABORATORY := namespaces nft iptables conntrack ip

# All modules that contain Go code, and all of these except the main one.
MODULES := $(shell find . -name go.mod -not -path '*/testdata/*' -not -path '*/.*/*' | while read -r mod; do \
	dir=$$(dirname $$mod); [ -z "$$(find $$dir -name '*.go' -print -quit)" ] || echo $$dir; done | sort)
NESTED  := $(filter-out .,$(MODULES))

# The main module's packages with a line that matches $(1) in a test file.
packages = $(filter-out $(NESTED) $(NESTED:%=%/%),$(sort $(patsubst %/,%,$(dir \
	$(shell grep -rlP --include='*_test.go' --exclude-dir=testdata --exclude-dir='.?*' '$(1)' .)))))
# The longest first, beside which the others run; last the one that counts what fails under load, so that it does not start beside it.
longest := %/restart
last    := %/rolling
longest_first = $(filter $(longest),$(1)) $(filter-out $(longest) $(last),$(1)) $(filter $(last),$(1))
KERNEL_TESTS  = $(call longest_first,$(call packages,^func TestKernel))
GOLDEN_TESTS = $(call packages,flag[.]Bool."update")
BENCHMARKS   = $(call packages,^func Benchmark)
FUZZ_TESTS   = $(call packages,^func Fuzz)
DOCS_TESTS   = $(call packages,^func Test[A-Za-z]*Docs)

.PHONY: help image image-packages release release-check build lint test nightly test-unit test-pure test-race test-kernel test-modules test-cluster cluster servers demo kernels kernels-quick bench bench-quick bench-once bench-compare peer fuzz mutants soak rolling real golden docs generate clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

build: $(COMMANDS:%=bin/%) ## compile kube-proxy and go-runner into bin/

.PHONY: $(COMMANDS:%=bin/%)
$(COMMANDS:%=bin/%): bin/%:
	@build/need.sh go
	@echo "compile $@, $(VERSION)"
	@build/compile.sh -ldflags '$(LDFLAGS)' -o $@ $(PACKAGE_$*)

# The image's name and tag, and the folder it is written to.
IMAGE     ?= localhost/kube-proxy:$(VERSION)
IMAGE_DIR := bin/image

image: ## build the image for amd64 and arm64, as an OCI layout and archive in bin/image, without a container engine; needs Debian
	@build/need.sh go
	@for arch in amd64 arm64; do \
		$(foreach command,$(COMMANDS),echo "compile $(command) for $$arch"; \
		GOARCH=$$arch build/compile.sh -ldflags '$(LDFLAGS)' -o $(IMAGE_DIR)/linux_$$arch/$(command) $(PACKAGE_$(command));) \
	done
	@go run -C build/image . -cache $(CURDIR)/.cache/deb -binaries $(CURDIR)/$(IMAGE_DIR) -out $(CURDIR)/$(IMAGE_DIR) \
		-ref '$(IMAGE)' -version '$(VERSION)' -revision '$(COMMIT)' -created $(CREATED)

release: image ## write the release to bin/release: programs, image, chart, SBOMs, notes and checksums; needs Debian
	@go run -C build/release . -root $(CURDIR) -out $(CURDIR)/bin/release -image $(CURDIR)/$(IMAGE_DIR) \
		-version '$(VERSION)' -revision '$(COMMIT)' -created $(CREATED) -ldflags '$(LDFLAGS)'

release-check: ## make the release of a tag in two clones on two paths, and compare; takes some minutes
	@build/need.sh go
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	for path in a another/path/b; do \
		clone=$$scratch/$$path; git clone -q --no-tags . $$clone; git -C $$clone tag v9.9.9; \
		mkdir -p .cache/deb $$clone/.cache; ln -s $(CURDIR)/.cache/deb $$clone/.cache/deb; \
		$(MAKE) -C $$clone release; \
		(cd $$clone/bin/release && sha256sum --check --quiet SHA256SUMS); \
	done; \
	diff $$scratch/{a,another/path/b}/bin/release/SHA256SUMS; \
	$$scratch/a/bin/release/kube-proxy_linux_$$(go env GOARCH) --version | grep -x 'Kubernetes v9.9.9'

image-packages: ## pin the newest Debian packages of the image's release in build/image/packages.json
	@build/need.sh go
	@go run -C build/image . -update -cache $(CURDIR)/.cache/deb

lint: $(LINTER) $(DEADCODE) $(GOVULN) ## golangci-lint (with vet; pinned in build/tools), vet for other systems, dead code, dependencies' licences and vulnerabilities, generated code
	@for module in $(MODULES); do \
		echo "lint $$module"; \
		(cd $$module && $(CURDIR)/$(LINTER) run --config $(CURDIR)/.golangci.yml ./...); \
	done
	@! git grep -nwE 'TO[D]O|FIX[M]E' -- '*.sh' '*.yaml' '*.yml' '*.mk' Makefile .ci || { echo "finish it, or file an issue" >&2; exit 1; }
	@for system in darwin windows; do echo "vet for $$system"; GOOS=$$system go vet ./cmd/kube-proxy; done
	@build/deadcode.sh $(CURDIR)/$(DEADCODE)
	@go run -C build/dependencies . -root $(CURDIR)
	@build/vulnerabilities.sh $(CURDIR)/$(GOVULN)
	@build/codegen/verify.sh

$(LINTER): build/tools/go.mod build/tools/go.sum
	@build/need.sh go
	@echo "compiling golangci-lint (only the first time, one or two minutes)"
	go build -C build/tools -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(DEADCODE): build/tools/go.mod build/tools/go.sum
	@build/need.sh go
	go build -C build/tools -o $(CURDIR)/$@ golang.org/x/tools/cmd/deadcode
	@touch $@

$(GOVULN): build/tools/go.mod build/tools/go.sum
	@build/need.sh go
	go build -C build/tools -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@

$(GREMLINS): build/tools/go.mod build/tools/go.sum
	@build/need.sh go
	go build -C build/tools -o $(CURDIR)/$@ github.com/go-gremlins/gremlins/cmd/gremlins
	@touch $@

$(BENCHSTAT): build/tools/go.mod build/tools/go.sum
	@build/need.sh go
	go build -C build/tools -o $(CURDIR)/$@ golang.org/x/perf/cmd/benchstat
	@touch $@

# What only make nightly runs: random clusters, and the page in a browser and the other releases of Debian except the shortest telling part of each.
NIGHTLY := ^(TestStatusPage|TestKernelListedByOtherReleases|TestKernelRandomClusters|TestKernelTakeOverBetweenReleases)$$

# What repeats a law more often with THOROUGH=1, which only make nightly sets.
repeated := ^(TestTablesFollowPlans|TestWithoutCaches|TestTamperingAtAnyTime|TestRestart|TestFailedWrites|TestCacheChangesNothing|TestKernelPicksAreUniform|TestKernelRestart|TestKernelEveryChange)$$

# Long tests that start no goroutine, or only those that shorter tests of their package start too: the race detector finds nothing in
# them, and makes them ten times slower. One seed of TestTamperingAtAnyTime is for the race detector.
pure := FuzzDiff FuzzLaws FuzzNames TestAlteredElement TestAlteredElements TestAnalyzeLargeCluster \
	TestAuditLargeCluster TestBusyTenant TestCacheChangesNothing TestCountLess TestEarlySyncsStayInBudget \
	TestEverySetDecodes TestEveryStepIsRight TestFailedWrites TestForeignElementInLargeSet TestForeignElements \
	TestForgetInParts TestGateRestart TestHalving TestHugeAnswers TestKilledBetweenOperations TestLastingFaults \
	TestLatestIsComplete TestLaws TestLossesAreReported TestManyAddresses TestManyElements TestManyOfOnePort \
	TestManyProblems TestManyStickyEndpoints TestMask TestNewServicePatchSize TestOneJudge TestOrders \
	TestOversized TestPacketsFareAsPlanned TestParseLarge TestPartsStayInBudget TestPatchSize TestRandomFaults TestRandomWalks TestReadSharesWithPlan TestRefusedServices \
	TestRepository TestRestart TestRules TestShares TestSimilarAddresses TestSmallTransactions TestTablesFollowPlans \
	TestUnreadable TestV1alpha1RoundTrip TestWithoutCaches TestZonesAreForgotten
names := $(subst $() $(),|,$(pure))
PURE := ^($(names))$$|^TestTamperingAtAnyTime$$/^(nft|legacy|seed_[1-9])
PURE_TESTS = $(call packages,^func ($(names))\b)
RACE_TESTS = $(call packages,^func (?!TestKernel|TestMain\b|($(names))\b)(Test|Fuzz|Example))

# Three targets at a time, in this order; the next begins when one ends. Tests in namespaces wait for packets and timeouts half of their
# time, which leaves the processors to others. Those that only compute are nice, so that packets and programs that others wait for are not
# late; test-pure, which measures at most processor time, gets what is left, most of it beside test-cluster and test-modules. Programs are built before,
# so nothing waits for them (-o).
test: ## all tests but those of make nightly; as root on Debian, installs what it needs
	@build/need.sh go cc $(LABORATORY) promtool runc qemu-aarch64-static qemu-system-x86_64 xz curl chromium
	@$(MAKE) build
	@$(MAKE) --jobs 3 --keep-going -o build test-kernel test-race test-pure test-cluster test-modules kernels-quick bench-once

test-unit: test-pure test-race ## all tests except TestKernel..., with the race detector where it may find something; does not need root

test-pure:
	@build/need.sh go
	nice -n 19 go test -timeout 30m -run '$(PURE)' $(PURE_TESTS)

test-race:
	@build/need.sh go cc
	CGO_ENABLED=1 nice go test -race -timeout 30m -skip '^TestKernel|$(PURE)' $(RACE_TESTS)

nightly: build ## what is too long for each change: emulated kernels, clusters, browser, Debian's releases, a release in two places, soak, fuzzing; takes some hours
	@build/need.sh $(LABORATORY) chromium
	CI=true go test -count=1 -timeout 30m -run '$(NIGHTLY)' ./test/releases
	cd test/browser && CI=true go test -count=1 -timeout 30m ./...
	SERVICES=1000 CI=true go test -count=1 -timeout 30m -run '^TestKernelDrift$$' ./test/restart
	THOROUGH=1 CI=true go test -count=1 -timeout 30m -run '$(repeated)' ./pkg/proxy/backend/nftables ./pkg/proxy/backend/iptables
	cd test/image && THOROUGH=1 CI=true go test -count=1 -timeout 30m -run '^TestKernelDaemonSet$$' .
	CGO_ENABLED=1 go test -race -timeout 30m -run '^Test(RandomFaults|LastingFaults|AlteredElement)$$' ./test/faults
	peer=$$(go run -C test/e2e ./peer) && for seed in 0 1 2; do \
		PEER=$$peer SEED=$$((3 * $$(date +%-j) + seed)) ROUNDS=70 CI=true go test -count=1 -timeout 60m -v -run '$(NIGHTLY)' ./test/audit || exit; \
	done
	@$(MAKE) kernels PEER=1
	@$(MAKE) cluster servers release-check rolling soak SOAK=30m
	@$(MAKE) fuzz FUZZTIME=5m

# With CI=true a test that lacks root or a tool fails instead of skipping: need.sh has just checked both.
test-kernel: ## the tests named TestKernel...: real packets in network namespaces; needs root
	@build/need.sh go $(LABORATORY) promtool curl
	$(if $(KERNEL_TESTS),CI=true go test -count=1 -p 2 -parallel 4 -timeout 30m -run '^TestKernel' -skip '$(NIGHTLY)' $(KERNEL_TESTS))

test-modules: build ## the tests in separate modules, except test/cluster; needs root
	@build/need.sh go $(LABORATORY) runc qemu-aarch64-static curl chromium
	@for module in $(filter-out ./test/cluster,$(NESTED)); do echo "test $$module"; (cd $$module && CI=true go test -count=1 -timeout 30m -skip '$(NIGHTLY)' ./...); done

test-cluster: build ## the shortest telling part of make cluster, which waits most of its time; needs root
	@build/need.sh go $(LABORATORY) runc
	@echo "test ./test/cluster"; cd test/cluster && CI=true go test -count=1 -timeout 30m ./...

cluster: build ## the tests of a cluster of three and of API server trouble, whole; needs root, takes some 20 minutes
	@build/need.sh go $(LABORATORY) runc
	(cd test/cluster && CLUSTER=whole CI=true go test -count=1 -timeout 30m -v ./...)
	(cd test/e2e && CLUSTER=whole CI=true go test -count=1 -timeout 30m -v -run '/API server trouble' ./...)

real: IMAGE = localhost/kube-proxy:latest
real: image ## a real cluster of two nodes by kubeadm, with the image installed by the documented ways, and Kubernetes' specs of Services; needs root, takes half an hour, 20 minutes more the first time (ONLY=chart: these steps; SPECS=affinity: these specs)
	@build/need.sh go namespaces ip iptables runc curl nc nslookup wget
	@go run -C test/real . -repository $(CURDIR) -only '$(ONLY)' $(if $(SPECS),-specs '$(SPECS)')

servers: build ## the proxy with an API server of each supported release of Kubernetes; needs root, takes 6 minutes, the first time half an hour to compile them
	@build/need.sh go $(LABORATORY)
	@paths=$$(go run -C test/e2e ./apiservers); for path in $$paths; do \
		echo "$$path"; (cd test/e2e && KUBE_APISERVER=$$path CI=true go test -count=1 -timeout 30m -run '^TestKernelProxyAndServer$$' .); \
	done

kernels: ## tests on emulated Linux 6.1, 6.12 and 5.10 with the tools of Debian; takes an hour or more (PEER=1: Kubernetes' own kube-proxy creates the rules to clean up)
	@build/need.sh go qemu-system-x86_64 xz
	@$(call peer,test/kernels -parallel $$(nproc))

kernels-quick: ## the shortest telling part of make kernels, on the oldest kernel, which is part of make test
	@build/need.sh go qemu-system-x86_64 xz
	@nice go run ./test/kernels -quick -releases bullseye

demo: ## demonstrate the proxy with real packets; as root on Debian, installs what it needs
	@build/need.sh go $(LABORATORY)
	@$(MAKE) build
	@go run ./test/demo

# PEER is a program to measure as well as ours, or 1 for Kubernetes' own. It adds up to 5 minutes for each mode and size.
PEER ?=
peer = peer='$(PEER)'; [ "$$peer" != 1 ] || peer=$$(go run -C test/e2e ./peer); go run ./$(1) $${peer:+-peer "$$peer"}

bench: build ## benchmark each stage alone, then the program from outside; needs root, takes 25 minutes (PEER=1: an hour)
	@build/need.sh go $(LABORATORY)
	go test -run '^$$' -bench . -benchmem $(BENCHMARKS)
	@$(call peer,test/bench)

bench-quick: build ## a short benchmark from outside; needs root, takes 4 minutes (PEER=1: 19)
	@build/need.sh go $(LABORATORY)
	@$(call peer,test/bench -quick)

peer: ## build Kubernetes' own kube-proxy, for PEER=1, and print its path; takes some minutes the first time
	@build/need.sh go
	@go run -C test/e2e ./peer

bench-once: ## run each benchmark of a pure stage once, to check that it works; does not need root
	@build/need.sh go
	nice go test -run '^$$' -bench . -benchtime 1x $(filter-out ./pkg/kernel/%,$(BENCHMARKS))

# BASE is the commit that the working tree is compared with, in COUNT runs of BENCHTIME for each benchmark whose name
# matches BENCH. With SIZE (10000x2) the programs are also measured from outside at that size, which needs root.
BASE      ?= HEAD
COUNT     ?= 6
BENCHTIME ?= 100ms
BENCH     ?= .
STAGES    ?= $(filter-out ./pkg/kernel/% ./test/%,$(BENCHMARKS))

bench-compare: $(BENCHSTAT) ## compare the benchmarks of the stages with another commit's (BASE=main; BENCH=Render, COUNT=10, SIZE=10000x2); does not need root
	@build/need.sh go
	@SIZE='$(SIZE)' build/bench-compare.sh $(CURDIR)/$(BENCHSTAT) '$(BASE)' '$(COUNT)' '$(BENCHTIME)' '$(BENCH)' $(STAGES)

# FUZZTIME is how long each target is fuzzed, one for each processor at a time.
FUZZTIME ?= 5s

fuzz: ## fuzz everything that reads what others write, and the laws of the pure stages, 5 seconds each (FUZZTIME=10m); does not need root
	@build/need.sh go
	@build/fuzz.sh '$(FUZZTIME)' "$$(nproc)" $(FUZZ_TESTS)

# MUTATED are the packages whose tests are tested. Only the tests of the package run: expect survivors in texts, which are golden files of
# other packages, in short cuts that only save time (limit.go's estimate of servedPorts), and in conditions of case, which gremlins calls
# not covered.
MUTATED ?= ./pkg/proxy/plan ./pkg/proxy/backend/nftables ./pkg/proxy/backend/iptables

mutants: $(GREMLINS) ## change the code of plan and diff in one place at a time, and list the changes that no test notices; takes hours (MUTATED=./pkg/proxy/plan)
	@for package in $(MUTATED); do \
		$(GREMLINS) unleash --workers 1 --timeout-coefficient 20 --output-statuses lct $$package; \
	done

# SOAK is how long.
SOAK ?= 2m

soak: ## let Services come and go for two minutes (SOAK=2h), and check that nothing is left; needs root
	@build/need.sh go $(LABORATORY)
	SOAK=$(SOAK) CI=true go test -count=1 -timeout 0 -v -run '^TestKernelSoak$$' ./test/restart

rolling: ## replace pods, and the proxy by another mode or program, under load, and count what fails; needs root, takes 5 minutes (PEER=1: 15)
	@build/need.sh go $(LABORATORY)
	@peer='$(PEER)'; [ "$$peer" != 1 ] || peer=$$(go run -C test/e2e ./peer); \
	ROLLING=whole PEER=$$peer CI=true go test -count=1 -timeout 30m -v -run '^TestKernel(Rolling|Handover)$$' ./test/rolling

golden: ## rewrite the golden files; review the diff before you commit it
	@build/need.sh go
	$(if $(GOLDEN_TESTS),go test -run Golden $(GOLDEN_TESTS) -update)

docs: generate ## regenerate documentation: the golden files of tests named ...Docs...
	$(if $(DOCS_TESTS),go test -run Docs $(DOCS_TESTS) -update)
	cd test/manifests && go test -run Schema -update # the chart's values.schema.json describes the configuration's fields

generate: ## regenerate code
	@build/need.sh go
	build/codegen/generate.sh

clean: ## remove everything that make created
	rm -rf bin .cache
