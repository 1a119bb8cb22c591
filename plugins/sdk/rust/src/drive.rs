//! Between the contract's untyped functions and a pipeline's typed ones.
#![allow(clippy::result_large_err, reason = "the contract's types are as large as they are")]

use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::standing::{Standing, Standings};
use crate::subject::{step_from_wire, step_to_wire};
use crate::wit::exports::sutler::provisioner::provisioner as wire;
use crate::wit::logs::exports::sutler::provisioner::log_sources as wire_logs;
use crate::wit::sutler::provisioner::types::{Action, Application, Failure, Inquiry, Request};
use crate::{At, Error, Pair, Pipeline, Presence, Progress, Result, Steps, Subject, schema};

/// A pipeline behind its types. Made by `export!`.
pub struct Handler<P>(PhantomData<P>);

impl<P> Handler<P> {
    #[allow(clippy::new_without_default, reason = "made by the macro only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// A pair without its types.
pub trait Handles {
    fn pair(&self) -> Pair;
    fn describe(&self) -> wire::PairDescriptor;
    fn plan(&self, request: &Request) -> Result<wire::Proposal, Failure>;
    fn apply(&self, request: &Request, at: &wire::Checkpoint) -> Result<wire::Progress, wire::Stopped>;
    fn cancel(&self, request: &Request, at: &wire::Checkpoint) -> Result<wire::Progress, wire::Stopped>;
    fn inspect(&self, inquiry: &Inquiry) -> Result<Vec<wire::Observed>, Failure>;
    fn locate(&self, inquiry: &Inquiry) -> Result<Vec<wire_logs::Source>, Failure>;
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Forward,
    Back,
}

/// What a pass over the resources came to, if it ended early or has to wait.
struct Waiting {
    pause: Duration,
    message: String,
}

impl<P: Pipeline> Handler<P> {
    fn subject(
        (application, marked): (&Application, bool),
        resource: &str,
        action: Action,
        [wanted, believed, outputs]: [Option<&String>; 3],
    ) -> Result<Subject<P::Settings>> {
        let wanted_json = wanted.map(|s| json_of(s, "unreadable-settings")).transpose()?;
        let believed_json = believed.and_then(|s| serde_json::from_str(s).ok());
        Ok(Subject {
            application: application.clone(),
            pair: P::PAIR,
            resource: resource.to_owned(),
            action,
            wanted: wanted_json.as_ref().map(typed).transpose()?,
            // A hint that today's types cannot read is no hint.
            believed: believed_json.as_ref().and_then(|v| typed(v).ok()),
            wanted_json,
            believed_json,
            believed_outputs: outputs.and_then(|s| serde_json::from_str(s).ok()),
            marked,
        })
    }

    fn changes(request: &Request) -> Result<Vec<Subject<P::Settings>>, Failure> {
        let of = (&request.application, marked(&request.context));
        let each = request.changes.iter().map(|c| {
            let texts = [c.settings.as_ref(), c.previous_settings.as_ref(), c.previous_outputs.as_ref()];
            Self::subject(of, &c.resource, c.action, texts).map_err(|e| e.into_wire(Some(&c.resource)))
        });
        each.collect()
    }

    fn run(request: &Request, at: &wire::Checkpoint, way: Way) -> Result<wire::Progress, wire::Stopped> {
        let mut standings = Standings::read(&at.state).map_err(|e| Standings::default().stopped(e, None))?;
        let subjects = Self::changes(request).map_err(|failure| wire::Stopped {
            failure,
            applied: standings.applied(),
            state: at.state.clone(),
        })?;
        let mut waiting: Option<Waiting> = None;
        for of in &subjects {
            let mut standing = standings.resources.remove(&of.resource).unwrap_or_default();
            // Forward, only those at the checkpoint's step are due; back, all that are not undone.
            let due = match way {
                Way::Forward => standing.outputs.is_none() && Self::same_step(&standing.step, &at.step),
                Way::Back => !standing.undone,
            };
            let result = if due { Self::advance(of, at, way, &mut standing) } else { Ok(Turn::Over) };
            standings.resources.insert(of.resource.clone(), standing);
            match result {
                Ok(Turn::Over) => {}
                Ok(Turn::Save) => return Ok(wire::Progress::Save(standings.text())),
                Ok(Turn::Wait(w)) => {
                    if waiting.as_ref().is_none_or(|old| w.pause < old.pause) {
                        waiting = Some(w);
                    }
                }
                Err(e) => return Err(standings.stopped(e, Some(&of.resource))),
            }
        }
        Ok(Self::answer(&standings, waiting, way))
    }

    fn same_step(one: &str, other: &str) -> bool {
        let first = P::Step::ALL.first().map_or("", |s| s.name);
        let named = |s: &str| if s.is_empty() { first.to_owned() } else { s.to_owned() };
        named(one) == named(other)
    }

    fn advance(
        of: &Subject<P::Settings>,
        at: &wire::Checkpoint,
        way: Way,
        standing: &mut Standing,
    ) -> Result<Turn> {
        let step = step_from_wire::<P::Step>(&standing.step, &standing.state)?;
        let at = At { step, attempt: at.attempt, written_by: at.written_by.clone() };
        let progress = match way {
            Way::Forward => P::apply(of, at)?,
            Way::Back => P::cancel(of, at)?,
        };
        let mut keep = |step: &P::Step| -> Result<bool> {
            let (name, state) = step_to_wire(step)?;
            let moved = !Self::same_step(&name, &standing.step);
            (standing.step, standing.state) = (name, state);
            Ok(moved)
        };
        match progress {
            Progress::Next(step) => {
                keep(&step)?;
                // Backwards the steps stay inside the state: the contract's order is the forward one.
                return Ok(if way == Way::Back { Turn::Save } else { Turn::Over });
            }
            Progress::Save(step) => {
                let moved = keep(&step)?;
                return Ok(if moved && way == Way::Forward { Turn::Over } else { Turn::Save });
            }
            Progress::Wait(step, pause, message) => {
                let moved = keep(&step)?;
                if moved && way == Way::Forward {
                    return Ok(Turn::Over);
                }
                return Ok(Turn::Wait(Waiting { pause, message }));
            }
            Progress::Done(outputs) => standing.outputs = Some(serde_json::to_value(outputs)?),
            Progress::DoneWithSecrets(outputs, secrets) => {
                standing.outputs = Some(serde_json::to_value(outputs)?);
                standing.secret_outputs = Some(secrets);
            }
            // What cancel took away has no outputs to tell; what was deleted has none left.
            Progress::Gone => standing.outputs = (way == Way::Forward).then(|| json!({})),
        }
        standing.undone = way == Way::Back;
        Ok(Turn::Over)
    }

    fn answer(standings: &Standings, waiting: Option<Waiting>, way: Way) -> wire::Progress {
        if let Some(w) = waiting {
            return wire::Progress::Wait(wire::Pause {
                state: standings.text(),
                after_milliseconds: w.pause.as_millis().try_into().unwrap_or(u32::MAX),
                message: w.message,
            });
        }
        let pending = |s: &&Standing| match way {
            Way::Forward => s.outputs.is_none(),
            Way::Back => !s.undone,
        };
        let rank = |s: &Standing| P::Step::ALL.iter().position(|known| known.name == s.step);
        match standings.resources.values().filter(pending).min_by_key(|s| rank(s)) {
            Some(next) => {
                wire::Progress::Next(wire::NextStep { step: next.step.clone(), state: standings.text() })
            }
            None => wire::Progress::Done(standings.applied()),
        }
    }
}

enum Turn {
    Over,
    Save,
    Wait(Waiting),
}

impl<P: Pipeline> Handles for Handler<P> {
    fn pair(&self) -> Pair {
        P::PAIR
    }

    fn describe(&self) -> wire::PairDescriptor {
        wire::PairDescriptor {
            pair: crate::wit::sutler::provisioner::types::Pair {
                kind: P::PAIR.kind,
                type_: P::PAIR.type_name.into(),
            },
            summary: P::SUMMARY.into(),
            settings_schema: schema::of::<P::Settings>().to_string(),
            outputs_schema: schema::of::<P::Outputs>().to_string(),
            steps: P::Step::ALL
                .iter()
                .map(|s| wire::Step {
                    name: s.name.into(),
                    title: s.title.into(),
                    timeout_seconds: s.timeout_seconds,
                })
                .collect(),
            extras: "{}".into(),
        }
    }

    fn plan(&self, request: &Request) -> Result<wire::Proposal, Failure> {
        let (mut changes, mut names) = (Vec::new(), Vec::new());
        for of in &Self::changes(request)? {
            let planned = P::plan(of).map_err(|e| e.into_wire(Some(&of.resource)))?;
            names.extend(P::steps(of, &planned));
            changes.push(wire::Planned {
                resource: of.resource.clone(),
                action: planned.action,
                before: planned.before.map(|v| v.to_string()),
                after: planned.after.map(|v| v.to_string()),
                unknown: planned.unknown,
                replace_because: planned.replace_because,
                warnings: planned.warnings,
            });
        }
        let steps =
            P::Step::ALL.iter().map(|s| s.name).filter(|n| names.contains(n)).map(str::to_owned).collect();
        Ok(wire::Proposal { changes, steps })
    }

    fn apply(&self, request: &Request, at: &wire::Checkpoint) -> Result<wire::Progress, wire::Stopped> {
        Self::run(request, at, Way::Forward)
    }

    fn cancel(&self, request: &Request, at: &wire::Checkpoint) -> Result<wire::Progress, wire::Stopped> {
        Self::run(request, at, Way::Back)
    }

    fn inspect(&self, inquiry: &Inquiry) -> Result<Vec<wire::Observed>, Failure> {
        let (mut out, mut first) = (Vec::new(), None);
        for known in &inquiry.resources {
            let seen = Self::subject(
                (&inquiry.application, marked(&inquiry.context)),
                &known.resource,
                Action::NoOp,
                [None, known.settings.as_ref(), known.outputs.as_ref()],
            )
            .and_then(|of| P::inspect(&of));
            out.push(match seen {
                Ok(o) => wire::Observed {
                    resource: known.resource.clone(),
                    presence: o.presence,
                    settings: o.settings.map(|v| v.to_string()),
                    outputs: o.outputs.map(|v| v.to_string()),
                    differences: o.differences.into_iter().map(crate::Difference::into_wire).collect(),
                    warnings: o.warnings,
                },
                Err(e) => {
                    let warnings = vec![e.reason.clone()];
                    first.get_or_insert_with(|| e.into_wire(Some(&known.resource)));
                    wire::Observed {
                        resource: known.resource.clone(),
                        presence: Presence::Unknown,
                        settings: None,
                        outputs: None,
                        differences: vec![],
                        warnings,
                    }
                }
            });
        }
        // Half an answer is worth more than none; none at all is a failure.
        match first {
            Some(failure) if out.iter().all(|o| o.presence == Presence::Unknown) => Err(failure),
            _ => Ok(out),
        }
    }

    fn locate(&self, inquiry: &Inquiry) -> Result<Vec<wire_logs::Source>, Failure> {
        let mut out: Vec<wire_logs::Source> = Vec::new();
        for known in &inquiry.resources {
            let found = Self::subject(
                (&inquiry.application, marked(&inquiry.context)),
                &known.resource,
                Action::NoOp,
                [None, known.settings.as_ref(), known.outputs.as_ref()],
            )
            .and_then(|of| P::locate(&of))
            .map_err(|e| e.into_wire(Some(&known.resource)))?;
            out.extend(found.into_iter().map(|s| wire_logs::Source {
                cluster: s.cluster,
                namespace: s.namespace,
                label_selector: s.label_selector,
                container: s.container,
            }));
        }
        Ok(out)
    }
}

/// Whether the host says that the settings' schema holds a mark, or does not say.
fn marked(context: &str) -> bool {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Context {
        marks: Option<Vec<String>>,
    }
    let context: Context = serde_json::from_str(context).unwrap_or_default();
    context.marks.is_none_or(|m| !m.is_empty())
}

fn json_of(text: &str, code: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| Error::new(code, format!("this is not JSON: {e}")))
}

fn typed<S: DeserializeOwned>(value: &Value) -> Result<S> {
    S::deserialize(value).map_err(|e| {
        Error::new(
            "unreadable-settings",
            format!("the settings fit their schema but not the plugin's type: {e}"),
        )
    })
}

/// The handler of a pair, or the failure that there is none.
///
/// # Errors
/// `unknown-pair`
pub fn find<'a>(
    handlers: &'a [&'a dyn Handles],
    pair: &crate::wit::sutler::provisioner::types::Pair,
) -> Result<&'a dyn Handles, Failure> {
    handlers.iter().find(|h| h.pair().is(pair)).copied().ok_or_else(|| {
        Error::new(
            "unknown-pair",
            format!("this plugin does not handle the type {:?} of that kind", pair.type_),
        )
        .into_wire(None)
    })
}

/// [`find`] for apply and cancel.
///
/// # Errors
/// `unknown-pair`
pub fn find_or_stop<'a>(
    handlers: &'a [&'a dyn Handles],
    pair: &crate::wit::sutler::provisioner::types::Pair,
    at: &wire::Checkpoint,
) -> Result<&'a dyn Handles, wire::Stopped> {
    find(handlers, pair).map_err(|failure| wire::Stopped {
        failure,
        applied: vec![],
        state: at.state.clone(),
    })
}
