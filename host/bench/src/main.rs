//! Figures as ratios, side by side in one run: `cargo xtask bench`. Prints a table; writes nothing.
#![allow(clippy::print_stdout, reason = "a program for people")]

mod application;
mod durable;
mod floor;
mod helm;
mod load;
mod logs;
mod native;
mod operation;
mod parked;
mod plan;
mod postgres;
mod process;
mod pull;
mod start;
mod upgrade;

use anyhow::Result;

/// The one that sutler has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it has to be, and whether it is.
    pub(crate) wanted: &'static str,
    pub(crate) met: bool,
}

/// What can be measured by itself: `cargo xtask bench inside plan`.
const SECTIONS: [&str; 12] = [
    "inside",
    "plan",
    "start",
    "render",
    "upgrade",
    "application",
    "logs",
    "pull",
    "durable",
    "postgres",
    "operation",
    "parked",
];

pub(crate) fn median(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = chosen.iter().find(|c| !SECTIONS.contains(&c.as_str())) {
        anyhow::bail!("there is no section {unknown:?}; known are {}", SECTIONS.join(", "));
    }
    let wants = |section: &str| chosen.is_empty() || chosen.iter().any(|c| c == section);
    let mut rows = Vec::new();
    if wants("inside") {
        rows.extend(plan::inside().await?);
    }
    if wants("plan") {
        rows.extend(plan::over_http().await?);
    }
    if wants("start") {
        rows.push(start::run().await?);
    }
    if wants("render") {
        match helm::run().await? {
            Some(row) => rows.push(row),
            None => println!(
                "no helm binary (SUTLER_REAL_HELM, or `cargo xtask cluster up` once): the rendering is not compared"
            ),
        }
    }
    if wants("upgrade") {
        match upgrade::run().await? {
            Some(more) => rows.extend(more),
            None => println!("no cluster (SUTLER_REAL, `cargo xtask cluster up`): upgrades are not compared"),
        }
    }
    if wants("application") {
        match application::run().await? {
            Some(row) => rows.push(row),
            None => {
                println!("no cluster (SUTLER_REAL, `cargo xtask cluster up`): applications are not compared")
            }
        }
    }
    if wants("logs") {
        match logs::run().await? {
            Some(more) => rows.extend(more),
            None => println!("no cluster (SUTLER_REAL, `cargo xtask cluster up`): logs are not compared"),
        }
    }
    if wants("pull") {
        rows.push(pull::run().await?);
    }
    if wants("durable") {
        rows.push(durable::run().await?);
    }
    if wants("postgres") {
        rows.push(postgres::run().await?);
    }
    if wants("operation") {
        rows.push(operation::run().await?);
    }
    if wants("parked") {
        rows.extend(parked::run().await?);
    }
    println!("\n{:<64} {:>12}  {:<14} met", "figure", "value", "wanted");
    for r in &rows {
        println!(
            "{:<64} {:>9.3} {:<2}  {:<14} {}",
            r.what,
            r.value,
            r.unit,
            r.wanted,
            if r.met { "yes" } else { "NO" }
        );
    }
    Ok(())
}
