#!/bin/sh
# The first process of a node, in new namespaces. What it mounts and starts ends with it; what it writes is below $DIR and in $LOG.
#
# $NODE, $DIR, $LOG, $IPV4 and $IPV6 are the node's name, folders and addresses, $GATEWAYS the other end's, $HIERARCHIES those of the
# machine's control groups, as mount options.
set -eu

hostname "$NODE"
mount -t proc proc /proc
umount -R /sys
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
for hierarchy in $HIERARCHIES; do
	path=/sys/fs/cgroup/${hierarchy#name=}
	mkdir "$path"
	case $hierarchy in name=*) hierarchy=none,$hierarchy ;; esac
	mount -t cgroup -o "$hierarchy" cgroup "$path"
done

mkdir -p "$DIR/var/lib" "$DIR/var/tmp" "$DIR/var/log"
ln -sfn /run "$DIR/var/run"
for tree in usr etc; do
	mkdir -p "$DIR/$tree/upper" "$DIR/$tree/work"
	mount -t overlay -o "lowerdir=/$tree,upperdir=$DIR/$tree/upper,workdir=$DIR/$tree/work" overlay "/$tree"
done
mount --bind "$DIR/var" /var
mount --bind "$LOG" /var/log
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /run/netns

# The kubelet sets these if they have other values, but they are the whole machine's.
mkdir /run/sysctl
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
	file=/run/sysctl/$(basename "${setting%=*}")
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "/proc/sys/${setting%=*}"
done

until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
sysctl() { echo "$2" >"/proc/sys/net/$1"; }
sysctl ipv4/ip_forward 1
sysctl ipv6/conf/default/forwarding 1
sysctl ipv6/conf/all/forwarding 1
sysctl bridge/bridge-nf-call-iptables 1
sysctl bridge/bridge-nf-call-ip6tables 1
ip link set lo up
ip link set eth0 up
ip address add "$IPV4/24" dev eth0
ip -6 address add "$IPV6/64" dev eth0 nodad
for gateway in $GATEWAYS; do ip route add default via "$gateway"; done
echo "nameserver ${GATEWAYS%% *}" >/etc/resolv.conf # nobody answers there
echo "127.0.0.1 localhost" >/etc/hosts
echo "$IPV4 $NODE" >>/etc/hosts

# In place of systemd. The first process also collects what others leave behind, whenever it waits.
while :; do
	containerd >>/var/log/containerd.log 2>&1 || true
	sleep 1
done &
while :; do
	if [ -e /var/lib/kubelet/config.yaml ]; then
		. /var/lib/kubelet/kubeadm-flags.env
		# shellcheck disable=SC2086 # one word for each flag
		kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
			--config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS >>/var/log/kubelet.log 2>&1 || true
	fi
	sleep 1
done
