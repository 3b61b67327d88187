#!/usr/bin/env bash
# Keeps inputs that make fuzz found: those that reach statements of the package that neither the test's own inputs nor those in
# testdata reach, the smallest inputs first. They are copied from Go's cache to testdata/fuzz, to be committed.
#
# Usage: build/fuzz-corpus.sh PACKAGE...
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints the statements that the inputs of a target reach whose names match $2, in the package of the working directory.
reached() {
	"$scratch/test" -test.run "^$1\$/$2" -test.coverprofile "$scratch/profile" >/dev/null
	awk '$3 > 0 { print $1 }' "$scratch/profile" | sort -u
}

for package in "$@"; do
	go test -c -cover -o "$scratch/test" "$package"
	cache=$(go env GOCACHE)/fuzz/$(go list "$package")
	cd "$package"
	for target in $(grep -hoE '^func Fuzz[A-Za-z]+' ./*_test.go | cut -c6-); do
		kept=testdata/fuzz/$target
		mkdir -p "$kept"
		reached "$target" . >"$scratch/known"
		for input in $(cd "$cache/$target" 2>/dev/null && ls -rS); do
			[[ ! -e $kept/$input ]] || continue
			cp "$cache/$target/$input" "$kept"
			reached "$target" "^$input\$" >"$scratch/now"
			if [[ -z $(comm -13 "$scratch/known" "$scratch/now") ]]; then
				rm "$kept/$input"
				continue
			fi
			sort -u -o "$scratch/known" "$scratch/known" "$scratch/now"
			echo "$package $target: kept $input, $(wc -c <"$kept/$input") bytes"
		done
		rmdir -p --ignore-fail-on-non-empty "$kept"
	done
	cd "$root"
done
