#!/bin/sh -e
# build.sh OUT: the static program for the test image.
[ $# = 1 ] || { echo "usage: build.sh OUT" >&2; exit 2; }
case $1 in /*) out=$1 ;; *) out=$PWD/$1 ;; esac
cd "$(dirname "$0")"
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$out" .
