//! A plugin that does whatever harm its settings ask for. It shows that the host survives; it never does
//! anything useful, and nothing outside tests should load it.

mod describe;
mod harm;
mod order;
mod probe;

// Of the first released contract, so that every test with it shows that such a plugin still loads.
wit_bindgen::generate!({ path: "../../../../wit/released/0.1.0", world: "provisioner-plugin-with-logs", generate_all });

use exports::sutler::provisioner::{log_sources, provisioner::*};
use order::{Deed, Export, Order};
use serde_json::json;
use sutler::provisioner::types::{Action, Change, Failure, Inquiry, Known, Request};

struct Hostile;

/// A failure as this plugin answers it.
pub(crate) fn failure(code: &str, reason: impl Into<String>) -> Failure {
    Failure {
        code: code.into(),
        reason: reason.into(),
        resource: None,
        at: None,
        retryable: false,
        details: None,
    }
}

fn stopped(failure: Failure) -> Stopped {
    Stopped { failure, applied: vec![], state: "{}".into() }
}

fn order_of(change: &Change) -> Order {
    Order::read(change.settings.as_deref().or(change.previous_settings.as_deref()))
}

impl Guest for Hostile {
    fn describe() -> Descriptor {
        describe::descriptor()
    }

    fn plan(request: Request) -> Result<Proposal, Failure> {
        let mut proposal = Proposal { changes: vec![], steps: vec![] };
        for change in &request.changes {
            let order = order_of(change);
            let deed = order.deed(Export::Plan);
            harm::first(deed, &order)?;
            match deed {
                Deed::Empty => continue,
                Deed::UnknownStep => proposal.steps = vec!["no-such-step".into()],
                Deed::NextForever => proposal.steps = vec!["again".into()],
                _ => {}
            }
            proposal.changes.push(planned(change, &order, deed, &request));
            if deed == Deed::Twice {
                proposal.changes.push(planned(change, &order, deed, &request));
            }
        }
        Ok(proposal)
    }

    fn apply(request: Request, at: Checkpoint) -> Result<Progress, Stopped> {
        progress(&request, &at, Export::Apply)
    }

    fn cancel(request: Request, at: Checkpoint) -> Result<Progress, Stopped> {
        progress(&request, &at, Export::Cancel)
    }

    fn inspect(inquiry: Inquiry) -> Result<Vec<Observed>, Failure> {
        let mut all = vec![];
        for known in &inquiry.resources {
            let order = Order::read(known.settings.as_deref());
            let deed = order.deed(Export::Inspect);
            harm::first(deed, &order)?;
            if deed != Deed::Empty {
                all.push(observed(known, &order, deed, &inquiry));
            }
            if deed == Deed::Twice {
                all.push(observed(known, &order, deed, &inquiry));
            }
        }
        Ok(all)
    }
}

impl log_sources::Guest for Hostile {
    fn locate(inquiry: Inquiry) -> Result<Vec<log_sources::Source>, Failure> {
        let order = Order::read(inquiry.resources.first().and_then(|r| r.settings.as_deref()));
        let deed = order.deed(Export::Locate);
        harm::first(deed, &order)?;
        if let Some(told) = probe::told(deed, &order) {
            return Err(failure("probe", told));
        }
        if deed == Deed::Empty {
            return Ok(vec![]);
        }
        let source = log_sources::Source {
            cluster: None,
            namespace: order.namespace(),
            label_selector: if deed == Deed::NotJson {
                "=,!,=".into()
            } else {
                format!("app={}", inquiry.application.id)
            },
            container: None,
        };
        let times = if deed == Deed::HugeAnswer { 100_000 } else { 1 };
        Ok(vec![source; times])
    }
}

fn planned(change: &Change, order: &Order, deed: Deed, request: &Request) -> Planned {
    let before = change.previous_settings.clone();
    let mut after = change.settings.clone();
    let mut warnings = vec![];
    match deed {
        Deed::NotJson => after = Some("{not json".into()),
        Deed::BreakSchema => after = Some(r#"{"do":42,"undeclared":true}"#.into()),
        Deed::HugeAnswer => after = Some(harm::huge(order)),
        Deed::Clock | Deed::Random => {
            after = Some(json!({"do": order.word(), "value": probe::told(deed, order)}).to_string())
        }
        Deed::Echo => warnings.push(format!("request {} of {}", request.id, request.application.id)),
        _ => warnings.extend(probe::told(deed, order)),
    }
    let action =
        if change.action != Action::Delete && before == after { Action::NoOp } else { change.action };
    Planned {
        resource: resource(&change.resource, deed),
        action,
        before,
        after,
        unknown: vec![],
        replace_because: if deed == Deed::Replace { vec!["/fixed".into()] } else { vec![] },
        warnings,
    }
}

fn progress(request: &Request, at: &Checkpoint, export: Export) -> Result<Progress, Stopped> {
    let mut applied = vec![];
    for change in &request.changes {
        let order = order_of(change);
        let deed = order.deed(export);
        harm::first(deed, &order).map_err(stopped)?;
        let state = at.state.clone();
        match deed {
            Deed::UnknownStep => return Ok(Progress::Next(NextStep { step: "no-such-step".into(), state })),
            Deed::NextForever => return Ok(Progress::Next(NextStep { step: "again".into(), state })),
            Deed::SaveForever => return Ok(Progress::Save(format!(r#"{{"attempt":{}}}"#, at.attempt))),
            Deed::WaitForever => {
                let message = "Waiting for nothing.".into();
                return Ok(Progress::Wait(Pause { state, after_milliseconds: 250, message }));
            }
            Deed::BadState => return Ok(Progress::Save("{not json".into())),
            Deed::HugeState => return Ok(Progress::Save(harm::huge(&order))),
            Deed::Empty => continue,
            _ => {}
        }
        if change.action == Action::Delete && deed == Deed::Ok {
            applied.push(Applied {
                resource: change.resource.clone(),
                outputs: "{}".into(),
                secret_outputs: "{}".into(),
            });
            continue;
        }
        let one = Applied {
            resource: resource(&change.resource, deed),
            outputs: outputs(&order, deed, &request.id),
            secret_outputs: secret_outputs(&order, deed),
        };
        if deed == Deed::Twice {
            applied.push(one.clone());
        }
        applied.push(one);
        if deed == Deed::FailAfter {
            let failure = failure("quota-exceeded", "The first resource was made, the next one was refused.");
            return Err(Stopped { failure, applied, state });
        }
    }
    Ok(Progress::Done(applied))
}

fn observed(known: &Known, order: &Order, deed: Deed, inquiry: &Inquiry) -> Observed {
    let (settings, outputs) = match deed {
        Deed::Absent => (None, None),
        Deed::BreakSchema => (Some(r#"{"do":42}"#.into()), Some(outputs(order, deed, &inquiry.id))),
        Deed::NotJson => (Some("{not json".into()), Some(outputs(order, deed, &inquiry.id))),
        _ => (known.settings.clone(), Some(outputs(order, deed, &inquiry.id))),
    };
    Observed {
        resource: resource(&known.resource, deed),
        presence: if deed == Deed::Absent { Presence::Absent } else { Presence::Present },
        settings,
        outputs,
        differences: vec![],
        warnings: probe::told(deed, order).into_iter().collect(),
    }
}

/// The resource that is answered on: another one where the order says so.
fn resource(name: &str, deed: Deed) -> String {
    if deed == Deed::WrongResource { "nobody-asked".into() } else { name.into() }
}

fn outputs(order: &Order, deed: Deed, request: &str) -> String {
    match deed {
        Deed::NotJson => "{not json".into(),
        Deed::BreakSchema => r#"{"answer":42,"undeclared":true}"#.into(),
        Deed::HugeAnswer => harm::huge(order),
        Deed::Echo => json!({"answer": format!("{request}: {}", order.text())}).to_string(),
        _ => json!({"answer": probe::told(deed, order).unwrap_or_else(|| "ok".into())}).to_string(),
    }
}

fn secret_outputs(order: &Order, deed: Deed) -> String {
    match deed {
        Deed::Echo => json!({"answer": order.secret()}).to_string(),
        _ => "{}".into(),
    }
}

export!(Hostile);
