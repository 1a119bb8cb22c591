//! The two ways to write a plugin.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::schema::{self, REQUIRES_REPLACE, WRITE_ONLY, marked, remove, spelled_like};
use crate::subject::{
    Action, Actual, At, Difference, DifferenceClass, LogSource, Observed, Planned, Presence, Progress,
};
use crate::{Error, Pair, Result, Steps, Subject};

/// One pair whose resources come about at once: read, write, delete. The SDK makes plan, apply, cancel and inspect
/// of these.
pub trait Resource {
    const PAIR: Pair;
    const SUMMARY: &'static str;
    type Settings: Serialize + DeserializeOwned + JsonSchema;
    type Outputs: Serialize + JsonSchema;

    /// What is there now, or `None`. Changes nothing.
    ///
    /// # Errors
    /// Why it cannot be known.
    fn read(of: &Subject<Self::Settings>) -> Result<Option<Actual<Self::Outputs>>>;
    /// Makes it so, from nothing or from what is there; repeated, it gives the same.
    ///
    /// # Errors
    /// Why it could not be.
    fn write(of: &Subject<Self::Settings>, wanted: &Self::Settings) -> Result<Self::Outputs>;
    /// Takes it away; what is gone already is no error.
    ///
    /// # Errors
    /// Why it is still there.
    fn delete(of: &Subject<Self::Settings>) -> Result<()>;
    /// Where the logs are, for a plugin that exports them.
    ///
    /// # Errors
    /// Why they cannot be located.
    fn locate(_of: &Subject<Self::Settings>) -> Result<Vec<LogSource>> {
        Ok(vec![])
    }
}

/// One pair whose resources come about in steps: each call does one thing, the host stores where it stands.
/// Several resources of a request go through the steps side by side.
pub trait Pipeline {
    const PAIR: Pair;
    const SUMMARY: &'static str;
    type Settings: Serialize + DeserializeOwned + JsonSchema;
    type Outputs: Serialize + JsonSchema;
    /// An enum of the steps, or `()` for none.
    type Step: Steps;

    /// What is there now, or `None`. Changes nothing.
    ///
    /// # Errors
    /// Why it cannot be known.
    fn read(of: &Subject<Self::Settings>) -> Result<Option<Actual<Self::Outputs>>>;

    /// One call of one step. Repeated from the same step, it gives the same.
    ///
    /// # Errors
    /// Why the step failed; a retryable error makes the host call again later.
    fn apply(of: &Subject<Self::Settings>, at: At<Self::Step>)
    -> Result<Progress<Self::Step, Self::Outputs>>;

    /// Takes back what apply made, beginning at the step where apply stood.
    ///
    /// # Errors
    /// Why it could not be; by default that this pair cannot cancel.
    fn cancel(
        _of: &Subject<Self::Settings>,
        _at: At<Self::Step>,
    ) -> Result<Progress<Self::Step, Self::Outputs>> {
        Err(cannot_cancel(Self::PAIR))
    }

    /// By default the comparison of what is wanted with what [`Pipeline::read`] finds.
    ///
    /// # Errors
    /// Why no plan can be made.
    fn plan(of: &Subject<Self::Settings>) -> Result<Planned> {
        let actual = Self::read(of)?;
        Ok(compare::<Self>(of, actual))
    }

    /// By default what [`Pipeline::read`] finds, in the spelling of what the caller believes.
    ///
    /// # Errors
    /// Why it cannot be known.
    fn inspect(of: &Subject<Self::Settings>) -> Result<Observed> {
        Self::read(of)?.map_or_else(|| Ok(Observed::absent()), |actual| observe::<Self>(of, actual))
    }

    /// The names of the steps that this change would take: by default all, none for a change that does nothing.
    fn steps(_of: &Subject<Self::Settings>, planned: &Planned) -> Vec<&'static str> {
        if planned.action == Action::NoOp { vec![] } else { Self::Step::ALL.iter().map(|s| s.name).collect() }
    }

    /// Where the logs are, for a plugin that exports them.
    ///
    /// # Errors
    /// Why they cannot be located.
    fn locate(_of: &Subject<Self::Settings>) -> Result<Vec<LogSource>> {
        Ok(vec![])
    }
}

fn cannot_cancel(pair: Pair) -> Error {
    Error::new(
        "cannot-cancel",
        format!("the plugin for {pair} cannot take this back; delete the resource instead"),
    )
}

impl<R: Resource> Pipeline for R {
    const PAIR: Pair = R::PAIR;
    const SUMMARY: &'static str = R::SUMMARY;
    type Settings = R::Settings;
    type Outputs = R::Outputs;
    type Step = ();

    fn read(of: &Subject<Self::Settings>) -> Result<Option<Actual<Self::Outputs>>> {
        R::read(of)
    }
    fn apply(of: &Subject<Self::Settings>, _: At<()>) -> Result<Progress<(), Self::Outputs>> {
        match of.action {
            Action::Delete => {
                R::delete(of)?;
                return Ok(Progress::Gone);
            }
            // Repeated after it has succeeded, nothing has to go any more.
            Action::Replace if R::read(of)?.is_some_and(|a| forced::<R>(of, a)) => R::delete(of)?,
            _ => {}
        }
        R::write(of, of.wanted()?).map(Progress::Done)
    }
    fn cancel(of: &Subject<Self::Settings>, _: At<()>) -> Result<Progress<(), Self::Outputs>> {
        match (of.action, &of.believed) {
            (Action::Create, _) => R::delete(of).map(|()| Progress::Gone),
            (Action::Update, Some(before)) => R::write(of, before).map(Progress::Done),
            _ => Err(cannot_cancel(R::PAIR)),
        }
    }
    fn locate(of: &Subject<Self::Settings>) -> Result<Vec<LogSource>> {
        R::locate(of)
    }
}

/// What is there in the spelling of what is wanted, and whether both are the same.
fn before<P: Pipeline + ?Sized>(of: &Subject<P::Settings>, settings: Value) -> (Value, bool) {
    match &of.wanted_json {
        None => (settings, false),
        Some(told) if *told == settings => (settings, true),
        Some(told) => {
            let before = spelled_like(settings, told, &filled(of.wanted.as_ref(), told));
            let same = before == *told;
            (before, same)
        }
    }
}

/// Whether what is there differs where nothing can change in place.
fn forced<P: Pipeline + ?Sized>(of: &Subject<P::Settings>, actual: Actual<P::Outputs>) -> bool {
    let (before, same) = before::<P>(of, actual.settings);
    of.marked && !same && !fixed(&schema::of::<P::Settings>(), &before, of.wanted_json.as_ref()).is_empty()
}

/// The pointers that force a replacement.
fn fixed(schema: &Value, before: &Value, told: Option<&Value>) -> Vec<String> {
    let mut fixed = marked(schema, before, REQUIRES_REPLACE);
    fixed.extend(told.map(|t| marked(schema, t, REQUIRES_REPLACE)).unwrap_or_default());
    fixed.sort();
    fixed.dedup();
    fixed.retain(|p| before.pointer(p) != told.and_then(|t| t.pointer(p)));
    fixed
}

/// The plan that follows from comparing what is wanted with what is there.
pub fn compare<P: Pipeline + ?Sized>(
    of: &Subject<P::Settings>,
    actual: Option<Actual<P::Outputs>>,
) -> Planned {
    let mut planned = Planned {
        action: Action::NoOp,
        before: None,
        after: of.wanted_json.clone(),
        unknown: vec![],
        replace_because: vec![],
        warnings: vec![],
    };
    let Some(actual) = actual else {
        planned.action = if of.deletes() { Action::NoOp } else { Action::Create };
        return planned;
    };
    planned.warnings = actual.warnings;
    let (mut before, same) = before::<P>(of, actual.settings);
    let schema = of.marked.then(schema::of::<P::Settings>);
    let fixed = schema.as_ref().map(|s| fixed(s, &before, of.wanted_json.as_ref())).unwrap_or_default();
    planned.action = match of.action {
        Action::Delete => Action::Delete,
        // Settings that are equal on a thing that has drifted are still work.
        _ if same && actual.differences.iter().all(|d| d.class == DifferenceClass::Normalized) => {
            Action::NoOp
        }
        Action::Replace => Action::Replace,
        _ if fixed.is_empty() => Action::Update,
        _ => Action::Replace,
    };
    if planned.action == Action::Replace {
        planned.replace_because = fixed;
    }
    // A secret that stays is told on neither side, a new one only as what comes.
    let secrets = schema.as_ref().map(|s| marked(s, &before, WRITE_ONLY));
    for secret in secrets.unwrap_or_default() {
        if let Some(after) = &mut planned.after
            && after.pointer(&secret) == before.pointer(&secret)
        {
            remove(after, &secret);
        }
        remove(&mut before, &secret);
    }
    planned.before = Some(before);
    planned
}

/// What inspect says of a thing that is there.
///
/// # Errors
/// `unreadable-answer` when the outputs cannot be written as JSON.
pub fn observe<P: Pipeline + ?Sized>(
    of: &Subject<P::Settings>,
    actual: Actual<P::Outputs>,
) -> Result<Observed> {
    let told = of.believed_json.clone().unwrap_or_default();
    let mut settings = spelled_like(actual.settings, &told, &filled(of.believed.as_ref(), &told));
    let mut differences = actual.differences;
    let schema = of.marked.then(schema::of::<P::Settings>);
    let secrets = schema.map(|s| marked(&s, &settings, WRITE_ONLY));
    for secret in secrets.unwrap_or_default() {
        let (now, then) = (settings.pointer(&secret), told.pointer(&secret));
        if then.is_some() && now != then {
            differences.push(Difference {
                at: secret.clone(),
                class: DifferenceClass::Drift,
                expected: None,
                actual: None,
            });
        }
        remove(&mut settings, &secret);
    }
    Ok(Observed {
        presence: Presence::Present,
        settings: Some(settings),
        outputs: Some(serde_json::to_value(actual.outputs)?),
        differences,
        warnings: actual.warnings,
    })
}

/// Settings with their defaults.
fn filled<S: Serialize>(typed: Option<&S>, told: &Value) -> Value {
    typed.and_then(|s| serde_json::to_value(s).ok()).unwrap_or_else(|| told.clone())
}
