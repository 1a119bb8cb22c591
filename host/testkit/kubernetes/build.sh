#!/bin/bash
# build.sh: makes the one binary of module/ unless one of exactly these inputs is cached, and prints its path.
# Links kube-apiserver … kubectl, helm lie beside it.
#   SUTLER_KUBERNETES_CACHE  where binaries lie, a folder a key (default: ~/.cache/sutler/kubernetes)
#   SUTLER_KUBERNETES_JOBS   parallel compilers (default: one a core)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/module"
# GOGC: the compilers live for seconds; collecting less often saves a sixth of their time.
export GOGC=${GOGC:-400} CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off

version_of() { awk -v module="$1" '$1 == module { print $2; exit }' go.mod; }
kubernetes=$(version_of k8s.io/kubernetes)
minor=$(cut -d. -f2 <<< "$kubernetes")

key=$( { cat go.mod go.sum main.go ../build.sh; go env GOVERSION GOARCH; } | sha256sum | cut -c1-16)
folder=${SUTLER_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sutler/kubernetes}/$key
mkdir -p "$folder"

if [ ! -x "$folder/kubernetes" ]; then
  exec 9> "$folder/lock"
  flock 9 # a second build of the same inputs waits and finds the first one's
fi
if [ ! -x "$folder/kubernetes" ]; then
  began=$SECONDS
  stamps=(
    "-X k8s.io/component-base/version.gitVersion=$kubernetes"
    "-X k8s.io/component-base/version.gitMajor=1"
    "-X k8s.io/component-base/version.gitMinor=$minor"
    "-X k8s.io/client-go/pkg/version.gitVersion=$kubernetes"
    "-X helm.sh/helm/v4/internal/version.version=$(version_of helm.sh/helm/v4)"
  )
  go build -p "${SUTLER_KUBERNETES_JOBS:-$(nproc)}" -trimpath -buildvcs=false \
    -ldflags "-s -w ${stamps[*]}" -o "$folder/part.$$" . >&2
  mv "$folder/part.$$" "$folder/kubernetes"
  echo "built Kubernetes $kubernetes in $((SECONDS - began)) s" >&2
fi
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl helm; do
  [ -L "$folder/$name" ] || ln -sf kubernetes "$folder/$name"
done
echo "$folder/kubernetes"
