#!/bin/bash
# up.sh --root DIR [--binary FILE] [--no-node]: starts one real Kubernetes with all its state in DIR: etcd,
# apiserver, controllers, scheduler and, unless --no-node, containerd, kubelet and kube-proxy. Run as root.
# A running cluster is left alone; a half-dead one is removed and made anew. Writes DIR/kubeconfig, and
# DIR/env: what tests are to be told.
# Environment: see README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root='' binary='' node=1
while [ $# -gt 0 ]; do
  case $1 in
    --root) root=$2; shift 2 ;;
    --binary) binary=$2; shift 2 ;;
    --no-node) node=0; shift ;;
    *) echo "unknown word $1" >&2; exit 2 ;;
  esac
done
[ -n "$root" ] || { echo "usage: up.sh --root DIR [--binary FILE] [--no-node]" >&2; exit 2; }
[ -n "$binary" ] || binary=$("$here/build.sh")
binary=$(readlink -f "$binary")

pods=${SUTLER_KUBERNETES_NET:-10.244.0}          # /24; .1 is the node
services=${SUTLER_KUBERNETES_SERVICES:-10.96.0}  # /24
port=${SUTLER_KUBERNETES_PORT:-16443}            # and the six above it
bridge=${SUTLER_KUBERNETES_BRIDGE:-sutler0}
proxy=${SUTLER_KUBERNETES_PROXY:-iptables}       # or none
registries=${SUTLER_KUBERNETES_REGISTRIES:-127.0.0.1:15000} # pulled from by plain HTTP
address=$pods.1
name=test-node

mkdir -p "$root"
root=$(cd "$root" && pwd)
. "$here/lib.sh"
# sockets have short paths
sockets=/run/sutler-$(printf %s "$root" | sha256sum | cut -c1-8)

all=1
for file in "$root"/*.pid; do file=${file##*/}; alive "${file%.pid}" || all=0; done
if [ $all = 1 ]; then echo "already up: $root/env"; exit 0; fi
"$here/down.sh" --root "$root"

if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then
  echo "port $port is taken, by another cluster perhaps: set SUTLER_KUBERNETES_PORT and, for a second cluster, the rest of README.md's settings" >&2
  rmdir "$root"
  exit 1
fi

mkdir -p "$root"/{pki,log} "$sockets"
cd "$root"
echo "$sockets $bridge" > places
ln -sfn "$binary" binary
began=$(date +%s%N)
reached() { printf '%6d ms  %s\n' $((($(date +%s%N) - began) / 1000000)) "$1"; }

# --- the bridge holds the node's address, for pods; clients on this machine use 127.0.0.1
ip link show "$bridge" > /dev/null 2>&1 || ip link add "$bridge" type bridge
ip addr show dev "$bridge" | grep -q " $address/" || ip addr add "$address/24" dev "$bridge"
ip link set "$bridge" up
echo 1 > /proc/sys/net/ipv4/ip_forward

# --- certificates
(
  cd pki
  authority test-cluster-ca ca
  key sa.key
  names=DNS:localhost,IP:127.0.0.1,IP:$address,IP:$services.1
  for n in kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local; do names+=,DNS:$n; done
  certificate apiserver /CN=kube-apiserver serverAuth "$names"
  certificate kubelet-server "/CN=$name" serverAuth "DNS:$name,IP:$address,IP:127.0.0.1"
  certificate admin /O=system:masters/CN=admin clientAuth
  certificate controllers /CN=system:kube-controller-manager clientAuth
  certificate scheduler /CN=system:kube-scheduler clientAuth
  certificate node "/O=system:nodes/CN=system:node:$name" clientAuth
  certificate proxy /CN=system:kube-proxy clientAuth
  certificate aggregator /CN=aggregator clientAuth
  certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
)
base64_of() { base64 -w0 "$1"; }
kubeconfig() { # FILE USER
  cat > "$1" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$port", certificate-authority-data: $(base64_of pki/ca.crt)}}]
users: [{name: $2, user: {client-certificate-data: $(base64_of "pki/$2.crt"), client-key-data: $(base64_of "pki/$2.key")}}]
contexts: [{name: test, context: {cluster: test, user: $2}}]
current-context: test
YAML
  chmod 600 "$1"
}
kubeconfig kubeconfig admin
for user in controllers scheduler node proxy; do kubeconfig "$user.kubeconfig" "$user"; done
reached certificates

# --- the control plane's store and server
start etcd "$binary" etcd --data-dir etcd --unsafe-no-fsync --log-level warn \
  --listen-client-urls "unix://$sockets/etcd.sock" --advertise-client-urls "unix://$sockets/etcd.sock" \
  --listen-peer-urls "unix://$sockets/peer.sock" --initial-advertise-peer-urls "unix://$sockets/peer.sock" \
  --initial-cluster "default=unix://$sockets/peer.sock"
# who asked for what: benches count by it
cat > audit.yaml <<YAML
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
YAML
start apiserver "$binary" apiserver --audit-policy-file=audit.yaml --audit-log-path=log/audit.log \
  --audit-log-maxsize=200 --audit-log-maxbackup=1 --etcd-servers="unix://$sockets/etcd.sock" \
  --bind-address=0.0.0.0 --advertise-address="$address" --secure-port="$port" \
  --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key --client-ca-file=pki/ca.crt \
  --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file=pki/sa.key --service-account-signing-key-file=pki/sa.key \
  --service-cluster-ip-range="$services.0/24" --authorization-mode=Node,RBAC --allow-privileged=true --profiling=false \
  --requestheader-client-ca-file=pki/ca.crt --requestheader-allowed-names=aggregator \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file=pki/aggregator.crt --proxy-client-key-file=pki/aggregator.key \
  --kubelet-client-certificate=pki/apiserver-kubelet.crt --kubelet-client-key=pki/apiserver-kubelet.key \
  --kubelet-certificate-authority=pki/ca.crt --kubelet-preferred-address-types=InternalIP

# --- the node's container runtime, with the two images that every cluster has
node_files() {
  mkdir -p cni
  cat > cni/10-bridge.conflist <<JSON
{"cniVersion":"0.4.0","name":"bridge","plugins":[{"type":"bridge","bridge":"$bridge","isGateway":true,"hairpinMode":true,
 "ipam":{"type":"host-local","ranges":[[{"subnet":"$pods.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"$sockets/ipam"}}]}
JSON
  cat > containerd.toml <<TOML
version = 2
root = "$root/containerd"
state = "$sockets/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "$sockets/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true # inside a container itself, lowering it is forbidden
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$root/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$root/registries"
TOML
  if [ -n "${SUTLER_KUBERNETES_RUNC:-}" ]; then
    cat >> containerd.toml <<TOML
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    BinaryName = "$SUTLER_KUBERNETES_RUNC"
TOML
  fi
  for registry in $registries; do
    mkdir -p "registries/$registry"
    printf 'server = "http://%s"\n[host."http://%s"]\n' "$registry" "$registry" > "registries/$registry/hosts.toml"
  done
  # cgroup settings: works with version 1 too, and inside a container that may not make controllers
  cat > kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
port: $((port + 1))
healthzPort: 0
readOnlyPort: 0
tlsCertFile: $root/pki/kubelet-server.crt
tlsPrivateKeyFile: $root/pki/kubelet-server.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $root/pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$sockets/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
serializeImagePulls: false
resolvConf: ""
podLogsDir: $root/pod-logs
volumePluginDir: $root/volume-plugins
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%", imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 10s
syncFrequency: 10s
YAML
}
images() {
  local files=images/files
  mkdir -p $files/{bin,tmp,etc}
  cp "$(command -v busybox)" $files/bin/busybox
  for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -sf busybox "$files/bin/$applet"; done
  echo root:x:0:0:root:/:/bin/sh > $files/etc/passwd
  "$here/mkimage.sh" localhost/busybox:1 $files images/busybox.tar
  "$here/mkimage.sh" localhost/pause:1 $files images/pause.tar '["/bin/sleep","2147483647"]'
  for image in busybox pause; do
    ctr -a "$sockets/containerd.sock" -n k8s.io images import images/$image.tar > /dev/null
  done
}
if [ $node = 1 ]; then
  node_files
  start containerd containerd -c containerd.toml
  until ctr -a "$sockets/containerd.sock" version > /dev/null 2>&1; do need containerd; sleep 0.1; done
  images
  reached "containerd and images"
fi

export KUBECONFIG=$root/kubeconfig
admin=(--cacert pki/ca.crt --cert pki/admin.crt --key pki/admin.key)
until [ "$(curl -s "${admin[@]}" "https://127.0.0.1:$port/readyz")" = ok ]; do need etcd; need apiserver; sleep 0.1; done
reached "apiserver ready"

# --- what acts on the store
start controllers "$binary" controller-manager --kubeconfig=controllers.kubeconfig \
  --authentication-kubeconfig=controllers.kubeconfig --authorization-kubeconfig=controllers.kubeconfig \
  --bind-address=127.0.0.1 --secure-port=$((port + 3)) --leader-elect=false \
  --service-account-private-key-file=pki/sa.key --root-ca-file=pki/ca.crt \
  --cluster-signing-cert-file=pki/ca.crt --cluster-signing-key-file=pki/ca.key \
  --use-service-account-credentials=true --kube-api-qps=200 --kube-api-burst=400
start scheduler "$binary" scheduler --kubeconfig=scheduler.kubeconfig \
  --authentication-kubeconfig=scheduler.kubeconfig --authorization-kubeconfig=scheduler.kubeconfig \
  --bind-address=127.0.0.1 --secure-port=$((port + 4)) --leader-elect=false
if [ $node = 1 ]; then
  start kubelet "$binary" kubelet --config=kubelet.yaml --kubeconfig=node.kubeconfig \
    --hostname-override="$name" --node-ip="$address" --root-dir="$root/kubelet" --cert-dir="$root/pki"
  if [ "$proxy" != none ]; then
    start proxy "$binary" proxy --kubeconfig=proxy.kubeconfig --hostname-override="$name" --proxy-mode="$proxy" \
      --cluster-cidr="$pods.0/24" --iptables-localhost-nodeports=false \
      --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
      --healthz-bind-address=127.0.0.1:$((port + 5)) --metrics-bind-address=127.0.0.1:$((port + 6))
  fi
  ready='jsonpath={.status.conditions[?(@.type=="Ready")].status}'
  until "$binary" kubectl get node "$name" -o "$ready" 2>/dev/null | grep -q True; do need kubelet; sleep 0.2; done
  reached "node ready"
fi
until "$binary" kubectl get serviceaccount default > /dev/null 2>&1; do need controllers; sleep 0.1; done
reached "usable"

cat > env <<ENV
KUBECONFIG=$root/kubeconfig
SUTLER_REAL_KUBECTL=$(dirname "$binary")/kubectl
SUTLER_REAL_HELM=$(dirname "$binary")/helm
SUTLER_REAL_AUDIT=$root/log/audit.log
ENV
