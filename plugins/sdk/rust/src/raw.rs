//! The host's functions as the contract has them: the imports of a component, or the world in memory of `testing`.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::wit::sutler::{
    containers::{read as containers_read, write as containers_write},
    helm::{changes as helm_changes, charts as helm_charts, releases as helm_releases},
    host::{clock, config, log, random},
    http::outbound as http,
    kubernetes::{read as kubernetes_read, write as kubernetes_write},
    logs::read as logs_read,
};

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::{docker::*, host::*};
