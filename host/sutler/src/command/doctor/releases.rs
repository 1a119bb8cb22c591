//! Helm releases that an operation holds or left behind.

use std::collections::BTreeSet;

use sutler_helm::{Status, Unfinished, unfinished};
use sutler_kubernetes::Cluster;
use sutler_ledger::{JobId, Ledger};

use super::Report;

const AREA: &str = "releases";

/// Who holds a release.
enum Holder {
    /// An operation of this ledger, and how it stands.
    Running(&'static str),
    Ended(&'static str),
    /// An operation that this ledger does not know.
    Unknown,
    /// The ledger cannot be asked.
    Hidden(String),
    /// Helm, or another tool.
    Foreign,
}

/// `namespaces`: where plugins may have releases; `None` among them is every one.
pub(super) async fn look(
    cluster: &Cluster,
    namespaces: BTreeSet<Option<String>>,
    ledger: Option<&dyn Ledger>,
    report: &mut Report,
) {
    let all = namespaces.contains(&None);
    let (mut asked, mut found) = (0, 0);
    for namespace in namespaces.into_iter().filter(|ns| !all || ns.is_none()) {
        match unfinished(cluster, namespace.as_deref()).await {
            Ok(releases) => {
                (asked, found) = (asked + 1, found + releases.len());
                for release in releases {
                    let holder = holder(&release, ledger).await;
                    tell(report, cluster.name(), &release, &holder);
                }
            }
            Err(e) => {
                let place =
                    namespace.map_or_else(|| "all namespaces".to_owned(), |ns| format!("namespace {ns}"));
                report.warn(AREA, format!("{}: {place}: {e}", cluster.name()), "see the rights above");
            }
        }
    }
    if asked > 0 && found == 0 {
        report.ok(AREA, format!("{}: none is under way or was left so", cluster.name()));
    }
}

async fn holder(release: &Unfinished, ledger: Option<&dyn Ledger>) -> Holder {
    if !release.ours {
        return Holder::Foreign;
    }
    let Some(id) = release.job.as_deref().and_then(|j| j.parse::<JobId>().ok()) else {
        return Holder::Unknown;
    };
    let Some(ledger) = ledger else { return Holder::Hidden("the ledger cannot be opened".into()) };
    match ledger.brief(id).await {
        Ok(None) => Holder::Unknown,
        Ok(Some(job)) if job.standing.status.is_final() => Holder::Ended(job.standing.status.as_str()),
        Ok(Some(job)) => Holder::Running(job.standing.status.as_str()),
        Err(e) => Holder::Hidden(e.to_string()),
    }
}

fn tell(report: &mut Report, cluster: &str, r: &Unfinished, holder: &Holder) {
    let (name, namespace, doing) = (&r.name, &r.namespace, r.doing);
    let what =
        format!("{cluster}: release {namespace}/{name}: revision {} is {}", r.revision, r.status.as_str());
    let job = r.job.as_deref().unwrap_or("(without an id)");
    let heals = "apply the application again, or delete it: its next operation takes over what was left";
    match holder {
        Holder::Running(status) => {
            report.ok(AREA, format!("{what}: operation {job} works on it ({doing}, {status})"));
        }
        Holder::Ended(status) => report.warn(
            AREA,
            format!("{what}: the {doing} of operation {job} was cut off, and the operation is {status}"),
            if *status == "failed" {
                format!("sutler job retry {job}; or {heals}")
            } else {
                heals.to_owned()
            },
        ),
        Holder::Unknown => report.warn(
            AREA,
            format!("{what}: the {doing} of operation {job}, which this ledger does not know, was cut off"),
            format!("where another sutler with a ledger of its own works there, ask it; otherwise {heals}"),
        ),
        Holder::Hidden(why) => report.warn(
            AREA,
            format!("{what} by the {doing} of operation {job}; whether that still runs is not known: {why}"),
            "mend the ledger, then look again",
        ),
        Holder::Foreign => {
            let cure = match r.status {
                Status::PendingInstall | Status::Uninstalling => "uninstall",
                _ => "rollback",
            };
            report.warn(
                AREA,
                format!(
                    "{what} by Helm or another tool, which works on it or was cut off; sutler leaves it alone"
                ),
                format!("once nobody works on it: helm {cure} {name} --namespace {namespace}"),
            );
        }
    }
}
