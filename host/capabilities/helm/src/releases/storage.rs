//! Where release records are: Secrets of the release's namespace.

use serde_json::Value;
use sutler_kubernetes::{
    ApplyOptions, Cluster, Error as KubeError, Propagation, RELEASE_SECRET, Reference, Selector,
};
use sutler_model::Owner;

use super::record::{Record, Status};
use super::target::Target;
use crate::error::Error;
use crate::types::Options;

/// Helm's own field manager, for records as for objects.
pub(crate) const MANAGER: &str = "helm";

/// How Helm's objects are applied server-side; `force` takes fields over from other managers.
pub(crate) fn applying(force: bool) -> ApplyOptions {
    ApplyOptions { field_manager: MANAGER.into(), force, dry_run: false }
}

#[derive(Debug, Clone)]
pub(crate) struct Storage<'a> {
    cluster: Cluster,
    namespace: &'a str,
}

impl<'a> Storage<'a> {
    pub(crate) const fn new(cluster: Cluster, namespace: &'a str) -> Self {
        Self { cluster, namespace }
    }

    fn what(&self) -> String {
        format!("release records in namespace {}", self.namespace)
    }

    async fn find(&self, labels: String) -> Result<Vec<Record>, Error> {
        let mut selector = Selector {
            api_version: "v1".into(),
            kind: "Secret".into(),
            namespace: Some(self.namespace.to_owned()),
            labels,
            fields: format!("type={RELEASE_SECRET}"),
            // A record may have a megabyte: small pages keep one answer bounded.
            limit: 20,
            ..Selector::default()
        };
        let mut out = Vec::new();
        loop {
            let page = self.cluster.list(&selector).await.map_err(|e| Error::kube(&self.what(), e))?;
            for secret in &page.items {
                out.push(Record::of_secret(secret)?);
            }
            match page.continue_token {
                Some(token) => selector.continue_token = Some(token),
                None => return Ok(out),
            }
        }
    }

    /// Every revision, oldest first; empty where there is no such release.
    pub(crate) async fn history(&self, name: &str) -> Result<Vec<Record>, Error> {
        let mut out = self.find(format!("owner=helm,name={name}")).await?;
        out.sort_by_key(|r| r.version);
        Ok(out)
    }

    /// The newest revision of each release; of one owner, or of everybody.
    pub(crate) async fn newest(&self, owner: Option<&Owner>) -> Result<Vec<Record>, Error> {
        let mut labels = "owner=helm".to_owned();
        if let Some(owner) = owner {
            labels.push_str(&format!(",{}={}", Owner::LABEL, owner.hash()));
        }
        let mut all = self.find(labels).await?;
        all.sort_by(|a, b| a.name.cmp(&b.name).then(b.version.cmp(&a.version)));
        all.dedup_by(|later, first| later.name == first.name);
        Ok(all)
    }

    /// Writes a new revision. That it must not exist yet is the lock between operations.
    ///
    /// # Errors
    /// `Pending` where another operation wrote the same revision first.
    pub(crate) async fn create(&self, record: &mut Record) -> Result<(), Error> {
        let secret = record.secret(false)?;
        match self.cluster.create(&secret, MANAGER, false).await {
            Ok(written) => {
                record.see(&written);
                Ok(())
            }
            Err(KubeError::AlreadyExists) => Err(pending(record)),
            Err(e) => Err(Error::kube(&described(record), e)),
        }
    }

    /// Writes a revision over the one that was read or written last.
    ///
    /// # Errors
    /// `Pending` where somebody else wrote it meanwhile.
    pub(crate) async fn update(&self, record: &mut Record) -> Result<(), Error> {
        let secret = record.secret(true)?;
        match self.cluster.replace(&secret, MANAGER, false).await {
            Ok(written) => {
                record.see(&written);
                Ok(())
            }
            Err(KubeError::Conflict(_) | KubeError::NotFound) => Err(Error::Pending(format!(
                "somebody else changed the {} meanwhile, so another operation is at work; try again when it has ended",
                described(record)
            ))),
            Err(e) => Err(Error::kube(&described(record), e)),
        }
    }

    pub(crate) async fn delete(&self, record: &Record) -> Result<(), Error> {
        let of = Reference {
            cluster: None,
            api_version: "v1".into(),
            kind: "Secret".into(),
            namespace: Some(self.namespace.to_owned()),
            name: record.key(),
        };
        match self.cluster.delete(&of, None, Propagation::Background).await {
            Ok(()) | Err(KubeError::NotFound) => Ok(()),
            // It is still there.
            Err(KubeError::Conflict(_)) => {
                Err(Error::Unavailable(format!("{}: it changed meanwhile", described(record))))
            }
            Err(e) => Err(Error::kube(&described(record), e)),
        }
    }
}

fn described(record: &Record) -> String {
    format!("record of {} revision {}", record.name, record.version)
}

/// Old revisions go before the new one is written; a release that was uninstalled with its history is superseded.
pub(crate) async fn make_room(
    target: &Target<'_>,
    history: &mut Vec<Record>,
    options: &Options,
) -> Result<(), Error> {
    let most = if options.history_max == 0 { 10 } else { options.history_max };
    let old: Vec<u32> = surplus(history, most).iter().map(|r| r.version).collect();
    for record in history.iter().filter(|r| old.contains(&r.version)) {
        target.storage.delete(record).await?;
    }
    history.retain(|r| !old.contains(&r.version));
    if let Some(last) = history.last_mut().filter(|l| l.info.status == Status::Uninstalled) {
        last.set(Status::Superseded, "superseded by new release");
        target.storage.update(last).await?;
    }
    Ok(())
}

/// A record under way that does not say what of.
pub(crate) fn lost(record: &Record) -> Error {
    Error::other(
        "broken-record",
        format!("the {} does not say how far its operation came; roll back or uninstall", described(record)),
    )
}

/// A job of ours holds the release.
pub(crate) fn worked_on(record: &Record, job: &str) -> Error {
    Error::Pending(format!(
        "operation {job} works on release {} in namespace {}: revision {} is {}; wait until it has ended, or cancel it",
        record.name,
        record.namespace,
        record.version,
        record.info.status.as_str()
    ))
}

/// Another operation holds the release.
pub(crate) fn pending(record: &Record) -> Error {
    Error::Pending(format!(
        "another operation holds release {} in namespace {}: revision {} is {}; wait for it, or where it was cut off roll back or uninstall",
        record.name,
        record.namespace,
        record.version,
        record.info.status.as_str()
    ))
}

/// The revisions to remove before a new one is written: the oldest, never the last deployed (Helm 4,
/// `removeLeastRecent`).
pub(crate) fn surplus(history: &[Record], most: u32) -> Vec<&Record> {
    let keep = (most as usize).saturating_sub(1);
    let excess = history.len().saturating_sub(keep);
    let deployed = history.iter().rev().find(|r| r.info.status == Status::Deployed).map(|r| r.version);
    history.iter().filter(|r| Some(r.version) != deployed).take(excess).collect()
}

/// The revision that an upgrade starts from: the last deployed, else the last failed or superseded.
pub(crate) fn base(history: &[Record]) -> Option<&Record> {
    let by = |s: &[Status]| history.iter().rev().find(|r| s.contains(&r.info.status));
    by(&[Status::Deployed])
        .or_else(|| history.last().filter(|r| matches!(r.info.status, Status::Failed | Status::Superseded)))
}

/// Name and version of the chart of a record.
pub(crate) fn chart_of(record: &Record) -> (String, String) {
    let text = |p: &str| record.chart.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/name"), text("/metadata/version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::releases::record::Fresh;

    fn history(statuses: &[Status]) -> Vec<Record> {
        statuses
            .iter()
            .zip(1..)
            .map(|(status, version)| {
                Record::new(Fresh {
                    name: "app".into(),
                    namespace: "ns".into(),
                    version,
                    status: *status,
                    description: String::new(),
                    chart: Value::Null,
                    config: Value::Null,
                    manifest: String::new(),
                    hooks: vec![],
                    notes: String::new(),
                    labels: Default::default(),
                    first_deployed: None,
                    rollback_revision: None,
                    server_side: true,
                    operation: None,
                })
            })
            .collect()
    }

    #[test]
    fn pruning_keeps_the_last_deployed() {
        use Status::{Deployed as D, Failed as F, Superseded as S};
        for (statuses, most, removed) in [
            (&[S, S, D][..], 10, &[][..]),
            (&[S, S, D], 3, &[1]),
            (&[D, F, F], 3, &[2]),
            (&[D, F, F], 1, &[2, 3]),
            (&[S, S, S, D], 2, &[1, 2, 3]),
            (&[F], 1, &[1]),
            (&[], 1, &[]),
        ] {
            let h = history(statuses);
            let got: Vec<u32> = surplus(&h, most).iter().map(|r| r.version).collect();
            assert_eq!(got, removed, "{statuses:?} at most {most}");
        }
    }

    #[test]
    fn what_an_upgrade_starts_from() {
        use Status::{Deployed as D, Failed as F, Superseded as S, Uninstalled as U};
        for (statuses, version) in [
            (&[S, D][..], Some(2)),
            (&[D, F], Some(1)),
            (&[F, F], Some(2)),
            (&[S], Some(1)),
            (&[U], None),
            (&[], None),
        ] {
            assert_eq!(base(&history(statuses)).map(|r| r.version), version, "{statuses:?}");
        }
    }
}
