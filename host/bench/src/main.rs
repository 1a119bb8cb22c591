//! Figures as ratios, side by side in one run: `cargo xtask bench`. Prints a table; writes nothing.
#![allow(clippy::print_stdout, reason = "a program for people")]

mod helm;
mod load;
mod native;
mod plan;
mod start;

use anyhow::Result;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it has to be, and whether it is.
    pub(crate) wanted: &'static str,
    pub(crate) met: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut rows = Vec::new();
    rows.extend(plan::run().await?);
    rows.push(start::run().await?);
    match helm::run().await? {
        Some(row) => rows.push(row),
        None => println!(
            "no helm binary (SUTLER_REAL_HELM, or `cargo xtask cluster up` once): the rendering is not compared"
        ),
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
