#!/bin/bash
# down.sh --root FOLDER: ends the daemon that up.sh started there, with its containers, and removes the folder.
set -euo pipefail
[ $# = 2 ] && [ "$1" = --root ] || { echo "usage: down.sh --root FOLDER" >&2; exit 2; }
root=$2
[ -d "$root" ] || exit 0

# The daemon ends its containers and its containerd.
if [ -f "$root/docker.pid" ]; then
  pid=$(cat "$root/docker.pid")
  if [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = dockerd ]; then
    kill "$pid"
    for _ in $(seq 150); do kill -0 "$pid" 2> /dev/null || break; sleep 0.2; done
    kill -KILL "$pid" 2> /dev/null || true
  fi
fi
# Of a daemon that was killed: what it had below the folder.
for process in /proc/[0-9]*; do
  case $({ tr "\0" " " < "$process/cmdline"; } 2> /dev/null) in
    *containerd*"$root/"*) kill -KILL "${process#/proc/}" 2> /dev/null || true ;;
  esac
done
awk -v root="$root/" 'index($2, root) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mounted; do
  umount --lazy "$mounted" || true
done
ip link delete sutler-docker0 2> /dev/null || true
rm -rf "$root"
