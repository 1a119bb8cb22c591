//! The operation that the fake host tells of.

use std::time::Duration;

use sutler_dispatch::{Audit, Failed, Millis, OperationView, ProgressView};
use sutler_model::{Application, Applied, Identifier};

pub(crate) fn id(s: &str) -> Identifier {
    Identifier::parse(s).unwrap()
}

pub(crate) const OPERATION: &str = "op_0190a000000070008000000000000000";

pub(crate) fn operation(caller: &str, answer: Option<Result<Vec<Applied>, Failed>>) -> OperationView {
    OperationView {
        id: OPERATION.into(),
        status: if answer.is_some() { "completed" } else { "running" },
        cancelling: false,
        pair: "deployment/ksml".parse().unwrap(),
        application: Application {
            id: id("orders"),
            environment: id("prod"),
            tenant: Some(id("acme")),
            instance: None,
        },
        resources: vec![id("main")],
        request_id: caller.into(),
        progress: ProgressView {
            step: "install".into(),
            title: "Install the chart".into(),
            index: Some(1),
            total: 2,
            message: "2 of 3 pods are ready".into(),
            attempt: 1,
        },
        retry_after: Duration::from_millis(1_500),
        answer,
        created: 1_767_225_600_000,
        updated: 1_767_225_601_500,
    }
}

/// The first is an operator's, the others are a caller's.
pub(crate) fn change(n: u64) -> Audit {
    let at = Millis(1_769_860_800_000 + i64::try_from(n).unwrap());
    let row = Audit { n, at, ..Audit::of_host("ops", "reload", "host-1") };
    if n == 1 {
        return row;
    }
    let application = Application {
        id: id("orders"),
        environment: id("prod"),
        tenant: Some(id("acme")),
        instance: Some(id("emea")),
    };
    Audit {
        actor: "axual".into(),
        action: "create".into(),
        resource_type: "deployment/ksml".into(),
        resource_id: "main".into(),
        application: Some(application),
        operation: Some(format!("op_{n:032x}").parse().unwrap()),
        request_id: Some("r-1".into()),
        ..row
    }
}
