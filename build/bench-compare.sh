#!/usr/bin/env bash
# Runs the benchmarks of the working tree and of another commit alternately, so that the machine's load affects both
# equally, and compares them. Arguments: the program golang.org/x/perf/cmd/benchstat, the commit, how often each benchmark
# runs and for how long each time, a regular expression of benchmarks, and the packages. If SIZE is set (10000x2), both
# programs are also measured from outside at that size, by test/bench of the working tree.
set -euo pipefail

benchstat=$1 base=$2 count=$3 time=$4 bench=$5
shift 5

git rev-parse --quiet --verify "$base^{commit}" >/dev/null ||
	{ echo "bench-compare: $base is not a commit; use make bench-compare BASE=main" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'git worktree remove --force "$scratch/base" 2>/dev/null || true; rm -rf "$scratch"' EXIT
git worktree add --quiet --detach "$scratch/base" "$base"
declare -A tree=([base]=$scratch/base [new]=$PWD)

echo "compiling the benchmarks of $(git rev-parse --short "$base") and of the working tree" >&2
compared=()
for package in "$@"; do
	if ! compgen -G "$scratch/base/$package/*_test.go" >/dev/null; then
		echo "only in the working tree, not compared: $package" >&2
		continue
	fi
	for side in base new; do
		(cd "${tree[$side]}" && go test -c -o "$scratch/$side-${package//\//-}.test" "$package")
	done
	compared+=("$package")
done

# run SIDE PACKAGE runs a package's benchmarks once. Those named here need root and the kernel.
run() {
	(cd "${tree[$1]}/$2" && "$scratch/$1-${2//\//-}.test" -test.run '^$' -test.bench "$bench" -test.skip '^BenchmarkIptables$' \
		-test.benchmem -test.benchtime "$time") >>"$scratch/$1.txt"
}

for ((turn = 1; turn <= count; turn++)); do
	echo "run $turn of $count" >&2
	for package in "${compared[@]}"; do
		if ((turn % 2)); then order="base new"; else order="new base"; fi
		for side in $order; do
			run "$side" "$package"
		done
	done
done
(cd "$scratch" && "$benchstat" base=base.txt new=new.txt)

if [ -n "${SIZE:-}" ]; then
	for side in base new; do
		(cd "${tree[$side]}" && go build -ldflags '-s -w' -o "$scratch/kube-proxy-$side" ./cmd/kube-proxy)
	done
	echo "ours is the working tree, peer is $base"
	go run ./test/bench -proxy "$scratch/kube-proxy-new" -peer "$scratch/kube-proxy-base" -sizes "$SIZE" -out "$scratch/bench"
fi
