#!/bin/bash
# mkimage.sh NAME FOLDER OUT.tar ['["/entry","word"]'] [USER]: an image of one layer from a folder, as a docker
# archive, without a daemon or a network. The same folder gives the same bytes.
set -euo pipefail
name=$1 folder=$2 out=$3 entry=${4:-null} user=${5:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')

tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$folder" -cf "$work/layer.tar" .
layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
cat > "$work/config.json" <<JSON
{"architecture":"$arch","os":"linux","created":"1970-01-01T00:00:00Z",
 "config":{"Entrypoint":$entry,"User":"$user","Env":["PATH=/bin"]},
 "rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},
 "history":[{"created":"1970-01-01T00:00:00Z"}]}
JSON
echo "[{\"Config\":\"config.json\",\"RepoTags\":[\"$name\"],\"Layers\":[\"layer.tar\"]}]" > "$work/manifest.json"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cf "$out" manifest.json config.json layer.tar
