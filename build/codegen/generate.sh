#!/usr/bin/env bash
# Generates the description of the configuration's fields from their doc comments, and from it docs/config.md; and
# docs/feature-gates.md.
#
# Usage: build/codegen/generate.sh [DIR]    DIR: root of the source tree; by default the one that contains this file.
set -o errexit -o nounset -o pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

go run ./build/codegen pkg/apis/config/types.go >"$new/zz_generated.fields.go"
mv "$new/zz_generated.fields.go" pkg/apis/config/
go test ./cmd/kube-proxy/cli -run '^TestReferences$' -update
