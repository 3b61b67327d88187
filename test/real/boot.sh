#!/bin/sh
# Joins the control groups of the node $NODE below $CGROUPS, which become the roots of its namespace of them, and runs its argument, a script,
# in new namespaces.
set -eu
for group in $CGROUPS; do
	mkdir -p "$group/$NODE"
	for dir in "$group" "$group/$NODE"; do
		for file in cpuset.cpus cpuset.mems; do
			if [ -e "$dir/$file" ]; then cat "$dir/../$file" >"$dir/$file"; fi
		done
	done
	echo $$ >"$group/$NODE/cgroup.procs"
done
exec unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child sh -c "$1"
