#!/usr/bin/env bash
# Generates the deepcopy, defaulting and conversion code of pkg/apis/config, and docs/config.md and
# docs/feature-gates.md from the doc comments. The versions of the generators are pinned in build/codegen/go.mod, so
# that the output is reproducible.
#
# Usage: build/codegen/generate.sh [DIR]    DIR: root of the source tree; by default the one that contains this file.
set -o errexit -o nounset -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "${1:-$here/../..}" && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

(cd "$here" && GOFLAGS=-mod=readonly GOBIN="$bin" go install tool)

cd "$root"
api=$(go list -m)/pkg/apis/config
header=$bin/header
: >"$header"

find pkg/apis/config -name 'zz_generated.*.go' -delete

"$bin/deepcopy-gen" --go-header-file "$header" --output-file zz_generated.deepcopy.go "$api" "$api/v1alpha2"
"$bin/defaulter-gen" --go-header-file "$header" --output-file zz_generated.defaults.go "$api/v1alpha1" "$api/v1alpha2"
# Only v1alpha1 uses component-base's versioned types. Their conversion functions are in component-base.
"$bin/conversion-gen" --go-header-file "$header" --output-file zz_generated.conversion.go --skip-unsafe \
	--extra-peer-dirs k8s.io/component-base/config/v1alpha1 "$api/v1alpha1"
"$bin/conversion-gen" --go-header-file "$header" --output-file zz_generated.conversion.go --skip-unsafe "$api/v1alpha2"

mkdir -p docs
go run ./cmd/kube-proxy config explain --markdown >"$bin/config.md"
go run ./cmd/kube-proxy config feature-gates --markdown >"$bin/feature-gates.md"
mv "$bin/config.md" "$bin/feature-gates.md" docs/
