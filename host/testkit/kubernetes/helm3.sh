#!/bin/bash
# helm3.sh: makes Helm 3 of the versions in helm3/ unless one of exactly these inputs is cached, and prints its path.
# Its libraries are those of module/, so that most of it is compiled already.
#   SUTLER_KUBERNETES_CACHE  where binaries lie, a folder a key (default: ~/.cache/sutler/kubernetes)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/helm3"
export GOGC=${GOGC:-400} CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off

version=$(awk '$1 == "helm.sh/helm/v3" { print $2; exit }' go.mod)
key=$( { cat go.mod go.sum ../helm3.sh; go env GOVERSION GOARCH; } | sha256sum | cut -c1-16)
folder=${SUTLER_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sutler/kubernetes}/helm3-$key
mkdir -p "$folder"

exec 9> "$folder/lock"
flock 9 # a second build of the same inputs waits and finds the first one's
if [ ! -x "$folder/helm3" ]; then
  go build -trimpath -buildvcs=false -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$version" \
    -o "$folder/part.$$" helm.sh/helm/v3/cmd/helm >&2
  mv "$folder/part.$$" "$folder/helm3"
fi
echo "$folder/helm3"
