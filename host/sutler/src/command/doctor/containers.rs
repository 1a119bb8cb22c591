//! Whether the Docker daemon answers, and containers on it that nobody needs any more.

use std::time::Duration;

use sutler_containers::{ContainersConfig, Daemon, Owned};
use sutler_jobs::Asked;
use sutler_ledger::{Filter, Job, JobId, Ledger, Status};
use sutler_model::{Action, Identifier, Pair};

use super::Report;
use crate::config::Config;

const AREA: &str = "docker";
/// Operations of one application that are looked through.
const MOST: u32 = 50;

pub(super) async fn look(
    of: &ContainersConfig,
    config: &Config,
    ledger: Option<&dyn Ledger>,
    report: &mut Report,
) {
    let daemon = Daemon::new(of);
    let socket = of.socket.display();
    match daemon.version().await {
        Ok(version) => report.ok(AREA, format!("{socket}: Docker {version} answers")),
        Err(e) => {
            let todo =
                "start the daemon, and let the host's user use its socket (it is as good as root there)";
            return report.wrong(AREA, format!("{socket}: {e}"), todo);
        }
    }
    match daemon.owned().await {
        Ok(found) => {
            let (mut orphans, all) = (0, found.len());
            for container in found {
                if let Some(why) = orphan(&container, config, ledger).await {
                    orphans += 1;
                    tell(report, &container, &why);
                }
            }
            if orphans == 0 {
                report.ok(AREA, format!("{all} containers of applications, none of them an orphan"));
            }
        }
        Err(e) => report.warn(AREA, format!("{socket}: {e}"), "try again"),
    }
}

/// Why nobody needs the container any more; `None` where somebody may.
async fn orphan(c: &Owned, config: &Config, ledger: Option<&dyn Ledger>) -> Option<String> {
    let plugin = c.labels.get("sutler.dev/plugin")?;
    if !config.catalog.dir.join(format!("{plugin}.wasm")).is_file() {
        return Some(format!("its plugin {plugin} is not in {}", config.catalog.dir.display()));
    }
    let ledger = ledger?;
    match last(c, ledger).await? {
        Some(id) => deleted(&id, ledger).await.then(|| format!("operation {id} deleted its application")),
        // Operations of before are forgotten.
        None if c.age()? < Duration::from_secs(u64::from(config.operations.keep_days) * 24 * 3600) => {
            Some("no operation of this ledger is of its application; another host may have one".into())
        }
        None => None,
    }
}

/// The newest operation of the container's owner; `None` outside where that cannot be told.
async fn last(c: &Owned, ledger: &dyn Ledger) -> Option<Option<JobId>> {
    let label = |key: &str| c.labels.get(&format!("sutler.dev/{key}")).cloned();
    let pair = Pair::new(label("kind")?.parse().ok()?, Identifier::parse(&label("type")?).ok()?);
    let filter = Filter {
        pair: Some(pair),
        tenant: label("tenant"),
        application: label("application"),
        environment: label("environment"),
        limit: MOST,
        ..Filter::default()
    };
    let jobs = ledger.jobs(filter).await.ok()?;
    let name = |i: &Option<Identifier>| i.as_ref().map(ToString::to_string);
    let ours = |job: &Job| {
        name(&job.application.tenant) == label("tenant")
            && name(&job.application.instance) == label("instance")
    };
    Some(jobs.into_iter().find(ours).map(|job| job.id))
}

/// Whether the operation deleted all that it was asked about, and has done so.
async fn deleted(id: &JobId, ledger: &dyn Ledger) -> bool {
    let Ok(Some(job)) = ledger.job(id.clone()).await else { return false };
    let deletes = |asked: Asked| asked.request.changes.iter().all(|change| change.action == Action::Delete);
    job.standing.status == Status::Completed && Asked::from_json(&job.request).is_ok_and(deletes)
}

fn tell(report: &mut Report, c: &Owned, why: &str) {
    let what = if c.running { "runs" } else { "lies there" };
    report.warn(
        AREA,
        format!("container {} {what} as an orphan: {why}", c.name),
        format!("once nobody needs it: docker rm --force --volumes {}", c.name),
    );
}
