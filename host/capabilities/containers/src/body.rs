//! What Docker is told of a new container.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, PortBinding, PortMap, RestartPolicy,
};

use crate::Spec;

/// Processes and threads of a container: many times what a JVM has, and a part of what a kernel gives to all.
const MOST_PROCESSES: i64 = 4096;

/// No capability, no new privileges, nothing of the host: whatever an image runs, as root or not, has less than a
/// process of its user has on the host.
pub(crate) fn of(
    spec: &Spec,
    image: &str,
    labels: HashMap<String, String>,
    public: bool,
) -> ContainerCreateBody {
    let address = if public { "0.0.0.0" } else { "127.0.0.1" };
    let port = |p: &crate::Port| {
        let binding = PortBinding { host_ip: Some(address.into()), host_port: Some(p.host.to_string()) };
        (format!("{}/tcp", p.container), Some(vec![binding]))
    };
    let mut ports = PortMap::new();
    for (container, binding) in spec.ports.iter().map(port) {
        ports
            .entry(container)
            .or_insert_with(|| Some(vec![]))
            .get_or_insert_default()
            .extend(binding.unwrap_or_default());
    }
    let mount = |m: &crate::Mount| Mount {
        typ: Some(MountType::VOLUME),
        source: Some(m.volume.clone()),
        target: Some(m.path.clone()),
        ..Mount::default()
    };
    let limit = |n: u64| (n > 0).then(|| i64::try_from(n).unwrap_or(i64::MAX));
    let memory = limit(spec.memory_bytes);
    let host = HostConfig {
        memory,
        // The same with swap: no swap beyond the memory.
        memory_swap: memory,
        nano_cpus: limit(u64::from(spec.milli_cpus) * 1_000_000),
        restart_policy: Some(RestartPolicy { name: Some(spec.restart.policy()), maximum_retry_count: None }),
        port_bindings: (!ports.is_empty()).then(|| ports.clone()),
        network_mode: Some(spec.network().to_owned()),
        mounts: (!spec.mounts.is_empty()).then(|| spec.mounts.iter().map(mount).collect()),
        privileged: Some(false),
        pids_limit: Some(MOST_PROCESSES),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges".into()]),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: (!spec.command.is_empty()).then(|| spec.command.clone()),
        env: Some(spec.env.iter().map(|(k, v)| format!("{k}={v}")).collect()),
        labels: Some(labels),
        exposed_ports: (!ports.is_empty()).then(|| ports.into_keys().collect()),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}
