//! What keeps a browser page away while there is no token: a page on any site may send requests to this machine,
//! and with a name that resolves to 127.0.0.1 it may even read the answers.

use std::net::{IpAddr, Ipv6Addr};

use crate::{Denied, Incoming};

/// # Errors
/// `Denied::Browser` or `Denied::ForeignHost`.
pub(crate) fn refuse_browsers(incoming: &Incoming<'_>) -> Result<(), Denied> {
    // A browser sends Origin with each cross-site request that could change something, and programs never do.
    if incoming.origin.is_some() {
        return Err(Denied::Browser("the request has an Origin"));
    }
    if incoming.fetch_site.is_some_and(|s| s != "none") {
        return Err(Denied::Browser("the request has Sec-Fetch-Site"));
    }
    match incoming.host {
        Some(host) if is_loopback(host) => Ok(()),
        host => Err(Denied::ForeignHost(host.unwrap_or_default().chars().take(80).collect())),
    }
}

/// Whether a Host header names this machine: `localhost`, 127.0.0.0/8 or `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => {
                return address.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback()) && port_fits(port);
            }
            None => return false,
        },
        None => host.find(':').map_or((host, ""), |i| host.split_at(i)),
    };
    port_fits(port)
        && (name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|a| a.is_loopback()))
}

fn port_fits(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok())
}
