#!/usr/bin/env bash
# Runs go build, and prints the number of compiled packages at every 100, because the first build takes minutes.
#
# Usage: build/compile.sh ARGUMENTS-OF-GO-BUILD
set -euo pipefail
go build -v "$@" 2>&1 | awk '
	/^[^ :#]+$/ { if (++n % 100 == 0) { print "  " n " packages compiled"; fflush() } next }
	{ print; fflush() }'
