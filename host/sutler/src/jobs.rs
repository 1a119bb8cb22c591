//! The ledger's jobs as Helm asks for them.

use std::sync::Arc;

use futures::future::BoxFuture;
use sutler_helm::{Error, Jobs};
use sutler_ledger::{JobId, Ledger};

/// Answers from the ledger.
pub(crate) struct LedgerJobs(pub(crate) Arc<dyn Ledger>);

impl Jobs for LedgerJobs {
    fn runs<'a>(&'a self, job: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let Ok(id) = job.parse::<JobId>() else { return Ok(false) };
            let found = self.0.brief(id).await.map_err(|e| {
                Error::Unavailable(format!(
                    "whether operation {job} still works on the release is not known: {e}"
                ))
            })?;
            Ok(found.is_some_and(|j| !j.standing.status.is_final()))
        })
    }
}

#[cfg(test)]
mod tests {
    use sutler_ledger::{
        Clock, Job, JobKind, JobMode, Late, Memory, Millis, Phase, Record, Standing, Status,
    };
    use sutler_model::{Application, Digest, Identifier};

    use super::*;

    fn job(status: Status) -> Job {
        let id = |text: &str| Identifier::parse(text).unwrap();
        let standing = Standing {
            status,
            phase: Phase::Forward,
            step: String::new(),
            attempt: 1,
            cancel_requested: false,
        };
        Job {
            id: JobId::operation(),
            kind: JobKind::Provisioning,
            mode: JobMode::Create,
            subject_type: "application".into(),
            subject_id: "orders".into(),
            pair: "deployment/ksml".parse().unwrap(),
            application: Application {
                id: id("orders"),
                environment: id("prod"),
                tenant: None,
                instance: None,
            },
            resources: vec![],
            plugin: "ksml".parse().unwrap(),
            digest: Digest::of(b"x"),
            caller: "c".into(),
            request_id: format!("r-{}", status.as_str()),
            standing,
            due: Millis(0),
            lease: None,
            token: 0,
            revision: 1,
            deadline: Millis(1),
            created: Millis(0),
            updated: Millis(0),
            request: "{}".into(),
            state: "{}".into(),
            answer: None,
        }
    }

    #[tokio::test]
    async fn a_job_runs_until_it_is_final() {
        let ledger = Arc::new(Memory::new(Clock::steady(Millis(0))));
        let jobs = LedgerJobs(ledger.clone());
        for status in Status::ALL {
            let job = job(*status);
            let record = Record::Job {
                job: Box::new(job.clone()),
                events: vec![],
                route: "apply".into(),
                body: [0; 32],
            };
            ledger.import(record).await.unwrap();
            assert_eq!(jobs.runs(job.id.as_str()).await, Ok(!status.is_final()), "{status}");
        }
        for unknown in ["op_00000000000000000000000000000000", "no id"] {
            assert_eq!(jobs.runs(unknown).await, Ok(false), "{unknown}");
        }
        let away = LedgerJobs(Arc::new(Late::default()));
        let got = away.runs("op_00000000000000000000000000000000").await;
        assert!(matches!(&got, Err(Error::Unavailable(m)) if m.contains("op_0000")), "{got:?}");
    }
}
