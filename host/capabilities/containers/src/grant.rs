//! What may run on the Docker daemon: `[plugins.NAME.grants.containers]`.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_model::{Effective, NotGranted, Owner, Pattern};

use crate::{Image, ImagePattern, Spec};

/// The containers grant of one layer. Without images nothing is allowed, not even looking.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Grants {
    /// Images: `registry.example/ksml/*`, `axual/ksml:1.*`, `axual/ksml@sha256:…`. The registry is exact, and names
    /// without one are Docker Hub's.
    #[schemars(with = "Vec<String>")]
    pub images: Vec<ImagePattern>,
    /// Patterns of names of containers and volumes; any where it is left out.
    #[schemars(with = "Vec<String>")]
    pub names: Vec<Pattern>,
    /// Patterns of Docker networks; `bridge`, which containers are in that name none, where it is left out. The host's
    /// own network and that of another container are never allowed.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<Pattern>,
    /// Ports of the host that may be published: `8080`, `9000-9100`.
    #[schemars(with = "Vec<String>")]
    pub ports: Vec<Ports>,
    /// Publish ports on every address of the host instead of 127.0.0.1.
    pub public_ports: bool,
    /// Allow named volumes, which outlive a container.
    pub volumes: bool,
    /// Containers that the plugin may have for one tenant of one instance; no limit where it is left out.
    pub max_containers: Option<u32>,
    /// The most memory of one container, in MiB; with it a container without a limit is refused.
    pub max_memory_mib: Option<u64>,
    /// The most CPU of one container, in thousandths of a core; with it a container without a limit is refused.
    pub max_milli_cpus: Option<u32>,
}

impl Default for Grants {
    fn default() -> Self {
        let one = |text: &str| text.parse().into_iter().collect();
        Self {
            images: vec![],
            names: one("*"),
            networks: one("bridge"),
            ports: vec![],
            public_ports: false,
            volumes: false,
            max_containers: None,
            max_memory_mib: None,
            max_milli_cpus: None,
        }
    }
}

/// One port or a range of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Ports {
    first: u16,
    last: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no port and no range of ports; write \"8080\" or \"9000-9100\"")]
pub struct BadPorts(String);

impl FromStr for Ports {
    type Err = BadPorts;
    fn from_str(s: &str) -> Result<Self, BadPorts> {
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self { first, last }),
            _ => Err(BadPorts(s.into())),
        }
    }
}

impl TryFrom<String> for Ports {
    type Error = BadPorts;
    fn try_from(s: String) -> Result<Self, BadPorts> {
        s.parse()
    }
}

type Refusal = (String, String);

/// What is missing, and the line that would allow it.
fn missing(what: impl Into<String>, key: &str, value: impl Into<serde_json::Value>) -> Refusal {
    let value = value.into();
    (what.into(), format!("containers = {{ {key} = {value} }}"))
}

/// For the keys that are lists.
fn missing_one(what: impl Into<String>, key: &str, value: &str) -> Refusal {
    missing(what, key, serde_json::json!([value]))
}

impl Grants {
    fn name(&self, name: &str, owner: &Owner) -> Result<(), Refusal> {
        if self.images.is_empty() {
            return Err(missing_one(format!("container {name}"), "images", "REGISTRY/IMAGE"));
        }
        match self.names.iter().any(|p| p.matches(name, owner)) {
            true => Ok(()),
            false => Err(missing_one(format!("the name {name} for a container or volume"), "names", name)),
        }
    }

    fn volume(&self, name: &str, owner: &Owner) -> Result<(), Refusal> {
        self.name(name, owner)?;
        match self.volumes {
            true => Ok(()),
            false => Err(missing(format!("the volume {name}"), "volumes", true)),
        }
    }

    fn run(&self, spec: &Spec, image: &Image, owner: &Owner) -> Result<(), Refusal> {
        self.name(&spec.name, owner)?;
        if !self.images.iter().any(|p| p.covers(image, owner)) {
            return Err(missing_one(format!("the image {image}"), "images", &image.to_string()));
        }
        let network = spec.network();
        if !self.networks.iter().any(|p| p.matches(network, owner)) {
            return Err(missing_one(format!("the network {network}"), "networks", network));
        }
        for port in &spec.ports {
            if !self.ports.iter().any(|p| (p.first..=p.last).contains(&port.host)) {
                let text = port.host.to_string();
                return Err(missing_one(format!("publishing port {text}"), "ports", &text));
            }
        }
        let mib = spec.memory_bytes.div_ceil(1 << 20);
        if self.max_memory_mib.is_some_and(|most| mib == 0 || mib > most) {
            let what =
                if mib == 0 { "memory without a limit".into() } else { format!("{mib} MiB of memory") };
            return Err(missing(what, "max-memory-mib", mib));
        }
        let cpus = spec.milli_cpus;
        if self.max_milli_cpus.is_some_and(|most| cpus == 0 || cpus > most) {
            let what = match cpus {
                0 => "CPU without a limit".into(),
                n => format!("{n} thousandths of a core"),
            };
            return Err(missing(what, "max-milli-cpus", cpus));
        }
        Ok(())
    }
}

/// Whether a container of this name may be looked at and ended.
///
/// # Errors
/// `NotGranted` naming the layer and the key.
pub(crate) fn name(grants: &Effective<Grants>, name: &str, owner: &Owner) -> Result<(), NotGranted> {
    grants.check(|g| g.name(name, owner))
}

/// Whether a volume of this name may be used.
///
/// # Errors
/// `NotGranted` naming the layer and the key.
pub(crate) fn volume(grants: &Effective<Grants>, name: &str, owner: &Owner) -> Result<(), NotGranted> {
    grants.check(|g| g.volume(name, owner))
}

/// Whether all that the spec asks for is granted.
///
/// # Errors
/// `NotGranted` naming the layer and the key.
pub(crate) fn run(
    grants: &Effective<Grants>,
    spec: &Spec,
    image: &Image,
    owner: &Owner,
) -> Result<(), NotGranted> {
    grants.check(|g| g.run(spec, image, owner))
}

/// Whether one more is allowed beside the `there` that there are.
///
/// # Errors
/// `NotGranted` naming the layer and the key.
pub(crate) fn one_more(grants: &Effective<Grants>, there: u32) -> Result<(), NotGranted> {
    grants.check(|g| match g.max_containers {
        Some(most) if there >= most => {
            let what = format!("a container beside the {there} that there are for this tenant");
            Err(missing(what, "max-containers", there + 1))
        }
        _ => Ok(()),
    })
}

/// Whether published ports are reached from other machines: every layer has to say so.
pub(crate) fn public(grants: &Effective<Grants>) -> bool {
    grants.layers().all(|g| g.public_ports)
}
