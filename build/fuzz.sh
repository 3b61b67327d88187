#!/usr/bin/env bash
# Fuzzes every target of the given packages: TIME each, JOBS at a time, with one worker each. Fails if an input fails, and prints
# the input and how to run it again. The logs are in bin/fuzz.
#
# Usage: build/fuzz.sh TIME JOBS PACKAGE...
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets() {
	local package
	for package in "$@"; do
		grep -hoE '^func Fuzz[A-Za-z]+' "$package"/*_test.go | sed "s|^func |$package |"
	done
}

# Prints the files in testdata that the log $1 of a run of package $2 names, and the command that runs them again.
explain() {
	local log=$1 package=$2 input
	grep -oE 'Fuzz[A-Za-z]+/[0-9a-f]{16}' "$log" | sort -u | while read -r input; do
		[[ -f $package/testdata/fuzz/$input ]] || continue
		echo "Run it again: go test -run '^${input/\//\$\/^}\$' $package"
		echo "with this file $package/testdata/fuzz/$input:"
		head -c 100000 "$package/testdata/fuzz/$input"
	done
}

# Fuzzes the target $3 of package $2 for the time $1.
fuzz() {
	local time=$1 package=$2 target=$3 log
	log=bin/fuzz/$(tr / - <<<"${package#./}")-$target.log
	# Without -fuzzminimizetime, making one input smaller may take longer than finding the next.
	if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 1 "$package" >"$log" 2>&1 || only_time_is_over "$log"; then
		echo "fuzz $package $target: $(sed -n 's/^fuzz: elapsed: [^,]*, //p' "$log" | tail -n 1)"
	else
		echo "fuzz $package $target FAILED:"
		cat "$log"
		explain "$log" "$package"
		return 1
	fi
}

# Go before 1.27 may report the end of the time as a failure without an input (go.dev/issue/75804).
only_time_is_over() {
	! grep -qE 'Failing input|seed corpus entry' "$1" && grep -qx '    context deadline exceeded' "$1"
}

if [[ $1 == --one ]]; then
	fuzz "${@:2}"
	exit
fi

time=$1 jobs=$2
shift 2
rm -rf bin/fuzz
mkdir -p bin/fuzz
status=0
targets "$@" | xargs -P "$jobs" -L 1 "$0" --one "$time" || status=1
awk -v targets="$(targets "$@" | wc -l)" -v seconds="$SECONDS" '
	FNR == 1 { total += execs; execs = 0 }
	match($0, /execs: [0-9]+/) { execs = substr($0, RSTART + 7, RLENGTH - 7) }
	END { printf "fuzzed %d targets with %d inputs in %d s\n", targets, total + execs, seconds }' bin/fuzz/*.log
exit "$status"
