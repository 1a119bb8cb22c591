#!/bin/bash
# up.sh --root FOLDER: a Docker daemon for tests, with everything of its own below FOLDER and its socket at
# FOLDER/docker.sock. It leaves the machine's packet filter alone; ports are published by its own proxy.
# What tests need to know is in FOLDER/env.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 2 ] && [ "$1" = --root ] || { echo "usage: up.sh --root FOLDER" >&2; exit 2; }
root=$2
for program in dockerd containerd runc jq; do
  command -v "$program" > /dev/null || { echo "$program is not installed: apt-get install docker.io jq" >&2; exit 1; }
done
"$here/down.sh" --root "$root"
mkdir -p "$root/data" "$root/run"
# A bridge of its own: docker0 may be another daemon's.
ip link show sutler-docker0 > /dev/null 2>&1 || ip link add name sutler-docker0 type bridge
ip address replace 10.213.77.1/24 dev sutler-docker0
ip link set sutler-docker0 up

# start DRIVER: whether a daemon with this storage driver answers.
start() {
  setsid dockerd --host "unix://$root/docker.sock" --data-root "$root/data" --exec-root "$root/run" \
    --pidfile "$root/docker.pid" --storage-driver "$1" --bridge sutler-docker0 --iptables=false --ip-masq=false \
    --add-runtime "sutler-test=$here/runtime.sh" --default-runtime sutler-test \
    > "$root/docker.log" 2>&1 < /dev/null &
  local daemon=$!
  for _ in $(seq 150); do
    curl --silent --fail --unix-socket "$root/docker.sock" http://docker/_ping > /dev/null 2>&1 && return 0
    kill -0 "$daemon" 2> /dev/null || return 1
    sleep 0.2
  done
  kill "$daemon"
  return 1
}

# Within another overlay the kernel refuses a second one; vfs copies instead.
if ! start overlay2; then
  rm -rf "$root/data"
  start vfs || { tail -20 "$root/docker.log" >&2; exit 1; }
fi
echo "SUTLER_REAL_DOCKER=$root/docker.sock" > "$root/env"
