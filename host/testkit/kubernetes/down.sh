#!/bin/bash
# down.sh --root DIR: stops what up.sh started there (by pid), its containers, mounts, bridge and cgroups,
# and removes DIR. Does nothing where there is no cluster.
set -u
[ "${1:-}" = --root ] && [ -n "${2:-}" ] || { echo "usage: down.sh --root DIR" >&2; exit 2; }
[ -f "$2/places" ] || exit 0
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$2" && pwd)
. "$here/lib.sh"
read -r sockets bridge < "$root/places"

# The node agent first, so that nothing starts containers again. State is thrown away: no need for grace.
for name in kubelet controllers scheduler apiserver etcd; do stop $name 9 kubernetes; done

if [ -f "$root/proxy.pid" ]; then
  stop proxy 9 kubernetes
  binary=$(readlink -f "$root/binary")
  [ -x "$binary" ] && timeout 20 "$binary" proxy --cleanup > /dev/null 2>&1
  for chain in INPUT OUTPUT; do iptables -D $chain -j KUBE-FIREWALL 2>/dev/null; done
  { iptables -F KUBE-FIREWALL; iptables -X KUBE-FIREWALL; } 2>/dev/null
fi

if [ -f "$root/containerd.pid" ]; then
  ctr() { timeout 10 ctr -a "$sockets/containerd.sock" -n k8s.io "$@" 2>/dev/null; }
  ctr tasks ls | awk 'NR > 1 && $2 > 1 { print $2 }' | xargs -r kill -9 2>/dev/null
  for task in $(ctr tasks ls -q); do ctr tasks rm -f "$task" > /dev/null; done
  stop containerd 15 containerd
  # the shims of this cluster alone: their command lines name its socket
  pgrep -f -- "containerd-shim-runc-v2 .*-address $sockets/containerd.sock" | xargs -r kill -9 2>/dev/null
fi

for _ in 1 2; do # once more for what was mounted over
  awk '{ print $2 }' /proc/mounts | grep -E "^($root|$sockets)/" | sort -r | while read -r mount; do umount -l "$mount"; done
done
ip link del "$bridge" 2>/dev/null
find /sys/fs/cgroup -maxdepth 3 -depth -type d -path '*/k8s.io*' -exec rmdir {} + 2>/dev/null
rm -rf "$root" "$sockets"
