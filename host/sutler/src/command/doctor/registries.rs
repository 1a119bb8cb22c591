//! Whether the configured chart registries can be used.

use futures::StreamExt as _;
use sutler_helm::{RegistryAccess, RegistryError, RegistryProbe};

use super::Report;
use crate::config::Config;

const AREA: &str = "registry";
/// Registries that are asked at once.
const AT_ONCE: usize = 8;

pub(super) async fn look(config: &Config, report: &mut Report) {
    if config.registries.is_empty() {
        return;
    }
    let probe = match RegistryProbe::new(&config.helm, &config.registries) {
        Ok(probe) => probe,
        Err(e) => return report.wrong(AREA, e.to_string(), "mend [registries]; none of them was asked"),
    };
    let hosts: Vec<&str> = config.registries.keys().map(String::as_str).collect();
    let answers: Vec<_> = futures::stream::iter(hosts)
        .map(|host| {
            let asked = probe.ask(host);
            async move { (host, asked.await) }
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    for (host, answer) in answers {
        tell(report, host, answer);
    }
}

fn tell(report: &mut Report, host: &str, answer: Result<RegistryAccess, RegistryError>) {
    let table = format!("[registries.{host:?}]");
    match answer {
        Ok(RegistryAccess::SignedIn) => report.ok(AREA, format!("{host} accepts its credentials")),
        Ok(RegistryAccess::Open) => report.ok(AREA, format!("{host} answers, and asks for no credentials")),
        Ok(RegistryAccess::Untried) => report.warn(
            AREA,
            format!("{host} answers without asking for the credentials that are configured, so they were not tried"),
            "pull a chart to see whether they are right: sutler plugin run",
        ),
        Ok(RegistryAccess::Closed) => report.warn(
            AREA,
            format!("{host} answers and asks for credentials, and none are configured"),
            format!("set username and password-file under {table}, unless all charts there are public"),
        ),
        Err(e) => report.wrong(AREA, e.to_string(), advice(&e, &table)),
    }
}

fn advice(e: &RegistryError, table: &str) -> String {
    match e {
        RegistryError::Unreachable { why, .. } if why.contains("certificate") => format!(
            "set ca under {table} to the PEM file of the authority that signed its certificate, and check that the \
             certificate is for this name"
        ),
        RegistryError::Unreachable { .. } | RegistryError::Slow { .. } => {
            format!(
                "check the address, the network and the proxy; plain-http under {table} where it speaks no TLS"
            )
        }
        RegistryError::Refused { .. } | RegistryError::Credentials { .. } | RegistryError::Helper { .. } => {
            format!("mend the credentials under {table}")
        }
        _ => format!("check that {table} names the host and port of an OCI registry"),
    }
}
