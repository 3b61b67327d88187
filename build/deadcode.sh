#!/usr/bin/env bash
# Fails if a function is not reachable from a command in cmd/, so that only tests call it. Packages for tests are not part of a
# command. The argument is the program golang.org/x/tools/cmd/deadcode.
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Files and functions that may be unreachable: Render, which prints a plan's rules for test/cases.
allowed='/text\.go:.*func: (Render|text\.)|func: set\.text$'

found=$("$1" -filter '^github.com/seed-11a05479/kube-proxy/' ./cmd/... | grep --invert-match --extended-regexp "$allowed" || true)
if [[ -n $found ]]; then
	echo "$found"
	echo "only tests reach these functions: remove them" >&2
	exit 1
fi
