#!/usr/bin/env bash
# Fuzzes every target of the given packages: TIME each, JOBS packages at a time, with one worker each. Fails if an input fails, and
# prints the input and how to run it again. The logs are in bin/fuzz.
#
# Usage: build/fuzz.sh TIME JOBS PACKAGE...
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets() {
	grep -hoE '^func Fuzz[A-Za-z]+' "$1"/*_test.go | sed 's/^func //'
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

# Fuzzes all targets of package $2, each for the time $1. The targets share one binary, which "go test -fuzz" would link for each.
fuzz() {
	local time=$1 package=$2 name target log corpus status=0
	name=$PWD/bin/fuzz/$(tr / - <<<"${package#./}")
	# Some seconds are over before the inputs that all earlier runs found have run: they begin with those in the tree only.
	[[ $time == *s ]] && corpus=$name.corpus || corpus=$(go env GOCACHE)/fuzz/$(go list "$package")
	go test -c -fuzz . -o "$name.test" "$package"
	for target in $(targets "$package"); do
		log=$name-$target.log
		# Without -test.fuzzminimizetime, making one input smaller may take longer than finding the next.
		if (cd "$package" && "$name.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzminimizetime 10x \
			-test.parallel 1 -test.fuzzcachedir "$corpus") >"$log" 2>&1 || only_time_is_over "$log"; then
			echo "fuzz $package $target: $(sed -n 's/^fuzz: elapsed: [^,]*, //p' "$log" | tail -n 1)"
		else
			echo "fuzz $package $target FAILED:"
			cat "$log"
			explain "$log" "$package"
			status=1
		fi
	done
	return "$status"
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
printf '%s\n' "$@" | xargs -P "$jobs" -L 1 "$0" --one "$time" || status=1
awk -v seconds="$SECONDS" '
	FNR == 1 { total += execs; execs = 0; targets++ }
	match($0, /execs: [0-9]+/) { execs = substr($0, RSTART + 7, RLENGTH - 7) }
	END { printf "fuzzed %d targets with %d inputs in %d s\n", targets, total + execs, seconds }' bin/fuzz/*.log
exit "$status"
