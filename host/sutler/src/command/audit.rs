//! `sutler audit`: which changes were asked for, and by whom.

use std::process::ExitCode;

use chrono::{DateTime, FixedOffset};
use serde_json::{Value, json};
use sutler_ledger::{Audit, AuditFilter, AuditPlace, JobId, Millis};
use sutler_model::Identifier;

use super::columns::{columns, place, plain, time};
use super::{ConfigFile, say};
use crate::ledger::Purpose;
use crate::telemetry;

pub(crate) const HELP: &str = "\
Entries have names only, never settings, outputs or secrets. They are kept for [operations] keep-audit-days. \
Whoever serves callers and operators grants them GET /audit by audit = true beside their token.

For example:
  sutler audit --tenant acme --action delete
  sutler audit --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --actor control-plane --json";

#[derive(Debug, clap::Args)]
pub(crate) struct AuditCommand {
    /// The name of a caller's or operator's token
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// create, update, replace or delete of a resource, retry or cancel of an operation, reload of a host
    #[arg(long)]
    action: Option<String>,
    /// KIND/TYPE, operation or host
    #[arg(long, value_name = "TYPE")]
    resource_type: Option<String>,
    #[arg(long, value_name = "ID")]
    resource_id: Option<String>,
    #[arg(long)]
    instance: Option<String>,
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long)]
    environment: Option<String>,
    #[arg(long)]
    application: Option<String>,
    /// op_ and 32 hex digits
    #[arg(long, value_name = "ID")]
    operation: Option<JobId>,
    /// RFC 3339, not before
    #[arg(long, value_name = "TIME")]
    from: Option<DateTime<FixedOffset>>,
    /// RFC 3339, before
    #[arg(long, value_name = "TIME")]
    to: Option<DateTime<FixedOffset>>,
    /// Only entries older than this place, which ended the page before
    #[arg(long, value_name = "PLACE")]
    before: Option<AuditPlace>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// A JSON array instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFile,
}

impl AuditCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.load()?;
        let (json, limit, filter) = (self.json, self.limit, self.filter());
        filter.check().map_err(|(field, why)| anyhow::anyhow!("{}: {why}", option(field)))?;
        telemetry::logs(&config.log, true)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let rows = runtime.block_on(async {
            let ledger = config.ledger.open(Purpose::Look).await?.ledger;
            anyhow::Ok(ledger.audited(filter).await?)
        })?;
        if json {
            say(serde_json::to_string_pretty(&rows.iter().map(document).collect::<Vec<_>>())?);
        } else {
            table(&rows).iter().for_each(say);
        }
        if let Some(last) = rows.last().filter(|_| rows.len() == limit as usize) {
            eprintln!("there may be more: --before {}", last.place());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn filter(self) -> AuditFilter {
        let millis = |t: DateTime<FixedOffset>| Millis(t.timestamp_millis());
        AuditFilter {
            actor: self.actor,
            action: self.action,
            resource_type: self.resource_type,
            resource_id: self.resource_id,
            instance: self.instance,
            tenant: self.tenant,
            environment: self.environment,
            application: self.application,
            operation: self.operation,
            from: self.from.map(millis),
            to: self.to.map(millis),
            before: self.before,
            limit: self.limit,
            ..AuditFilter::default()
        }
    }
}

/// The option of a field: `--resource-type` of `resourceType`.
fn option(field: &str) -> String {
    let dashed = field.chars().flat_map(|c| [c.is_uppercase().then_some('-'), Some(c.to_ascii_lowercase())]);
    ["--".to_owned(), dashed.flatten().collect()].concat()
}

/// A head and a line for each entry.
fn table(rows: &[Audit]) -> Vec<String> {
    let head = ["TIME", "ACTOR", "ACTION", "TYPE", "RESOURCE", "APPLICATION", "OPERATION"];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        [
            time(row.at),
            plain(&row.actor),
            plain(&row.action),
            plain(&row.resource_type),
            plain(&row.resource_id),
            row.application.as_ref().map_or_else(|| "-".into(), place),
            row.operation.as_ref().map_or_else(|| "-".into(), ToString::to_string),
        ]
    }));
    columns(&lines)
}

fn document(row: &Audit) -> Value {
    let a = row.application.as_ref();
    let name = |i: Option<&Identifier>| i.map(ToString::to_string);
    json!({
        "place": row.place().to_string(),
        "at": time(row.at),
        "actor": row.actor,
        "action": row.action,
        "resourceType": row.resource_type,
        "resourceId": row.resource_id,
        "instance": name(a.and_then(|a| a.instance.as_ref())),
        "tenant": name(a.and_then(|a| a.tenant.as_ref())),
        "environment": name(a.map(|a| &a.environment)),
        "application": name(a.map(|a| &a.id)),
        "operationId": row.operation.as_ref().map(JobId::as_str),
        "requestId": row.request_id,
    })
}
