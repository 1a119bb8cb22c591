//! Logs to stderr and metrics for Prometheus.

use std::io::IsTerminal as _;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::{LogConfig, LogFormat};

/// Starts logging. `quiet`: for commands whose answer goes to a person, warnings and worse only.
pub(crate) fn logs(config: &LogConfig, quiet: bool) -> anyhow::Result<()> {
    let default = if quiet { "error" } else { "info" };
    let level = config.level.clone().unwrap_or_else(|| default.into());
    let filter = EnvFilter::try_new(&level)
        .map_err(|e| anyhow::anyhow!("log.level {level:?} is not a filter: {e}"))?
        // Below that it writes whole bodies, with what stands in them.
        .add_directive("bollard=info".parse()?);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE);
    let result = match config.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    // A second start in one process keeps the first.
    let _ = result;
    Ok(())
}

/// Starts metrics; what is counted before is lost.
pub(crate) fn metrics() -> anyhow::Result<PrometheusHandle> {
    let buckets = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0];
    PrometheusBuilder::new()
        .set_buckets(&buckets)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|e| anyhow::anyhow!("metrics cannot be started: {e}"))
}

/// A word that is no level would be read as a target, and the host would say nothing at all.
///
/// # Errors
/// Names the directive.
pub(crate) fn check_level(text: &str) -> anyhow::Result<()> {
    for directive in text.split(',') {
        let level = directive.rsplit('=').next().unwrap_or_default().trim();
        anyhow::ensure!(
            level.parse::<LevelFilter>().is_ok() && !level.is_empty(),
            "log.level: {directive:?} is not a level; use error, warn, info, debug, trace or off, or TARGET=LEVEL"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_level;

    #[test]
    fn levels() {
        for good in ["info", "off", "info,sutler_api=debug", "sutler_helm=trace"] {
            assert!(check_level(good).is_ok(), "{good}");
        }
        for bad in ["inof", "", "no such;;level=", "info,sutler_api", "a=b"] {
            assert!(check_level(bad).is_err(), "{bad}");
        }
    }
}
