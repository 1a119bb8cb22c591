#!/bin/bash
# registries.sh up|down --root DIR: two OCI registries (Debian's docker-registry) with their state in DIR:
# one plain and open, from which the cluster pulls as well, and one with TLS and basic authentication.
#   SUTLER_REGISTRY_PORT      plain (default 15000)
#   SUTLER_REGISTRY_TLS_PORT  TLS (default 15001)
# `up` writes DIR/env: what tests are to be told.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { echo "usage: registries.sh up|down --root DIR" >&2; exit 2; }
[ $# = 3 ] && [ "$2" = --root ] || usage
action=$1 root=$3
. "$here/lib.sh"

if [ "$action" = down ]; then
  for name in plain tls; do stop $name 15 docker-registry || true; done
  rm -rf "$root"
  exit 0
fi
[ "$action" = up ] || usage

plain=127.0.0.1:${SUTLER_REGISTRY_PORT:-15000}
tls=127.0.0.1:${SUTLER_REGISTRY_TLS_PORT:-15001}
user=robot password=only-for-tests
mkdir -p "$root/log"
root=$(cd "$root" && pwd)
if alive plain && alive tls; then echo "already up: $root/env"; exit 0; fi
for name in plain tls; do stop $name 15 docker-registry || true; done

if [ ! -f "$root/tls.crt" ]; then
  (cd "$root" && authority registry-ca ca && certificate tls /CN=registry serverAuth "DNS:localhost,IP:127.0.0.1")
fi
htpasswd -Bbn "$user" "$password" > "$root/htpasswd"

configuration() { # NAME ADDRESS
  cat <<YAML
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage:
  filesystem: {rootdirectory: "$root/$1.data"}
  delete: {enabled: true}
http:
  addr: $2
YAML
}
configuration plain "$plain" > "$root/plain.yml"
{
  configuration tls "$tls"
  echo "  tls: {certificate: \"$root/tls.crt\", key: \"$root/tls.key\"}"
  echo "auth: {htpasswd: {realm: tests, path: \"$root/htpasswd\"}}"
} > "$root/tls.yml"

start plain docker-registry serve "$root/plain.yml"
start tls docker-registry serve "$root/tls.yml"
until curl -sf "http://$plain/v2/" > /dev/null; do need plain; sleep 0.1; done
until curl -sf --cacert "$root/ca.crt" -u "$user:$password" "https://$tls/v2/" > /dev/null; do need tls; sleep 0.1; done

cat > "$root/env" <<ENV
SUTLER_REAL_REGISTRY=$plain
SUTLER_REAL_REGISTRY_TLS=$tls
SUTLER_REAL_REGISTRY_CA=$root/ca.crt
SUTLER_REAL_REGISTRY_USER=$user
SUTLER_REAL_REGISTRY_PASSWORD=$password
ENV
echo "registries: $plain (plain), $tls (TLS, htpasswd)"
