#!/usr/bin/env bash
# Checks for the given tools and rights. As root on Debian it installs missing tools; otherwise it lists what is missing
# and how to get it, and fails.
#
# Usage: build/need.sh WHAT...
#   WHAT is a command (go cc nft iptables conntrack ip promtool chromium) or "namespaces", the right to create network namespaces.
set -euo pipefail

# The package of a command in Debian, Fedora, Alpine and Arch.
packages() {
	case $1 in
	cc) echo "gcc|gcc|gcc|gcc" ;;
	nft) echo "nftables|nftables|nftables|nftables" ;;
	iptables) echo "iptables|iptables-nft|iptables|iptables-nft" ;;
	conntrack) echo "conntrack|conntrack-tools|conntrack-tools|conntrack-tools" ;;
	qemu-system-x86_64) echo "qemu-system-x86|qemu-system-x86-core|qemu-system-x86_64|qemu-system-x86" ;;
	qemu-aarch64-static) echo "qemu-user-static|qemu-user-static-aarch64|qemu-aarch64|qemu-user-static" ;;
	promtool) echo "prometheus|golang-github-prometheus|prometheus|prometheus" ;;
	chromium) echo "chromium fonts-inter|chromium|chromium|chromium" ;;
	xz) echo "xz-utils|xz|xz|xz" ;;
	nc) echo "netcat-openbsd|netcat|netcat-openbsd|openbsd-netcat" ;;
	nslookup) echo "bind9-dnsutils|bind-utils|bind-tools|bind" ;;
	ip) echo "iproute2|iproute|iproute2|iproute2" ;;
	*) echo "$1|$1|$1|$1" ;;
	esac
}

# Reports whether a tool works. A C compiler needs the C library's headers too.
works() {
	case $1 in
	cc) echo 'int main(void) { return 0; }' | cc -include stdlib.h -x c -o /dev/null - 2>/dev/null ;;
	namespaces) unshare --net true 2>/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing() {
	local what
	for what in "$@"; do works "$what" || echo "$what"; done
}

# The packages of all arguments in the distribution of column $1.
column() {
	local n=$1 what
	shift
	for what in "$@"; do packages "$what" | cut -d'|' -f"$n"; done | tr '\n' ' '
}

install_on_debian() {
	local wanted
	wanted=$(column 1 "$@")
	case " $* " in *" cc "*) wanted+="libc6-dev" ;; esac
	echo "installing $wanted" >&2
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # one word for each package
	(apt-get -q update && apt-get -q install -y --no-install-recommends $wanted) >&2
}

advise() {
	local what how tools=()
	for what in "$@"; do
		case $what in
		namespaces)
			how="run make as root: sudo env \"PATH=\$PATH\" make ..."
			if [ "$(uname -s)" != Linux ]; then
				how="this needs a Linux kernel, not $(uname -s)"
			elif [ "$(id -u)" = 0 ]; then
				how="root lacks CAP_SYS_ADMIN or CAP_NET_ADMIN, as in most containers; use a machine or a privileged container"
			fi
			echo "  the right to create network namespaces: $how"
			;;
		go) echo "  Go $(sed -n 's/^go //p' go.mod) or newer, in PATH: https://go.dev/dl" ;;
		*)
			echo "  $what"
			tools+=("$what")
			;;
		esac
	done
	[ ${#tools[@]} -gt 0 ] || return 0
	echo "install the tools with one of"
	echo "  Debian, Ubuntu:  apt-get install $(column 1 "${tools[@]}")$([[ " ${tools[*]} " != *" cc "* ]] || echo libc6-dev)"
	echo "  Fedora:          dnf install $(column 2 "${tools[@]}")"
	echo "  Alpine:          apk add $(column 3 "${tools[@]}")$([[ " ${tools[*]} " != *" cc "* ]] || echo musl-dev)"
	echo "  Arch:            pacman -S $(column 4 "${tools[@]}")"
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # Debian installs these tools here, and a user's PATH may lack these folders

mapfile -t lack < <(missing "$@")
installable=()
for what in "${lack[@]}"; do
	case $what in go | namespaces) ;; *) installable+=("$what") ;; esac
done
if [ ${#installable[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null; then
	install_on_debian "${installable[@]}" || echo "apt-get failed; see its output above" >&2
	mapfile -t lack < <(missing "$@")
fi
if [ ${#lack[@]} -gt 0 ]; then
	{
		echo "missing:"
		advise "${lack[@]}"
	} >&2
	exit 1
fi
