//! Seven steps, and in each one change outside: a ConfigMap that is created by name. Whoever counts them sees what
//! was lost and what was done twice. What the settings ask for happens in one of the steps besides.
use std::time::Duration;

use sutler_sdk::kubernetes::{self, Reference, text};
use sutler_sdk::prelude::*;

pub struct Seven;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Of no meaning: two settings that differ in it are two bodies.
    #[serde(default)]
    note: String,
    /// What happens besides, and in which step.
    #[serde(default)]
    deed: Option<Deed>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Deed {
    step: String,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The first attempt fails, worth another.
    FailOnce,
    /// Every attempt fails, worth another, until the gate is open.
    FailAtGate,
    /// It waits until the gate is open.
    WaitAtGate,
    /// It fails for good.
    Refuse,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    made: Vec<String>,
}

/// What a step has to remember.
#[derive(Default, Clone, Copy, Serialize, Deserialize)]
pub struct Mark {
    /// How often it was saved or waited.
    calls: u32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "step", content = "state", rename_all = "kebab-case")]
pub enum Step {
    First(Mark),
    Second(Mark),
    Third(Mark),
    Fourth(Mark),
    Fifth(Mark),
    Sixth(Mark),
    Seventh(Mark),
}

impl Default for Step {
    fn default() -> Self {
        Self::First(Mark::default())
    }
}

impl Steps for Step {
    const ALL: &'static [StepInfo] = &[
        StepInfo::new("first", "Make the first", 2),
        StepInfo::new("second", "Make the second", 2),
        StepInfo::new("third", "Make the third", 2),
        StepInfo::new("fourth", "Make the fourth", 2),
        StepInfo::new("fifth", "Make the fifth", 2),
        StepInfo::new("sixth", "Make the sixth", 2),
        StepInfo::new("seventh", "Make the seventh", 2),
    ];
}

const MAKE: [fn(Mark) -> Step; 7] =
    [Step::First, Step::Second, Step::Third, Step::Fourth, Step::Fifth, Step::Sixth, Step::Seventh];
/// Its change is made in a second call: the first one keeps the intent.
const SAVES: [usize; 2] = [1, 4];
/// It is over in a second call, after a pause.
const WAITS: usize = 3;
const PAUSE: Duration = Duration::from_millis(250);

impl Step {
    fn parts(self) -> (usize, Mark) {
        match self {
            Self::First(m) => (0, m),
            Self::Second(m) => (1, m),
            Self::Third(m) => (2, m),
            Self::Fourth(m) => (3, m),
            Self::Fifth(m) => (4, m),
            Self::Sixth(m) => (5, m),
            Self::Seventh(m) => (6, m),
        }
    }
}

fn name(of: &Subject<Settings>, index: usize) -> String {
    format!("{}-{}-{}", of.application.id, of.resource, Step::ALL[index].name)
}

fn reference(of: &Subject<Settings>, name: &str) -> Result<Reference> {
    Ok(Reference::new("v1", "ConfigMap", name).within(of.fill("t-{tenant}")?))
}

/// Who it belongs to: a second creation is ours or somebody else's.
fn owner(of: &Subject<Settings>) -> String {
    format!("{}/{}/{}", of.application.environment, of.application.id, of.resource)
}

fn make(of: &Subject<Settings>, index: usize) -> Result<()> {
    let at = reference(of, &name(of, index))?;
    let made = kubernetes::create(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": at.name, "namespace": at.namespace},
        "data": {"owner": owner(of), "settings": json!(of.wanted()?).to_string()},
    }));
    match made {
        Err(e) if e.is("already-exists") => match kubernetes::get(&at)? {
            Some(live) if text(&live, "/data/owner") == owner(of) => Ok(()),
            _ => Err(Error::new("name-taken", format!("{} belongs to somebody else", at.name))),
        },
        other => other.map(|_| ()),
    }
}

fn open(of: &Subject<Settings>) -> Result<bool> {
    Ok(kubernetes::get(&reference(of, "gate")?)?.is_none_or(|g| text(&g, "/data/state") != "closed"))
}

fn outputs(of: &Subject<Settings>) -> Outputs {
    Outputs { made: (0..MAKE.len()).map(|i| name(of, i)).collect() }
}

impl Pipeline for Seven {
    const PAIR: Pair = Pair::new(Kind::Tool, "seven");
    const SUMMARY: &'static str = "Seven changes, one a step";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = Step;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let Some(live) = kubernetes::get(&reference(of, &name(of, 6))?)? else { return Ok(None) };
        let settings: Value = serde_json::from_str(&text(&live, "/data/settings"))?;
        Actual::new(settings, outputs(of)).map(Some)
    }

    fn apply(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        if of.deletes() {
            for index in (0..MAKE.len()).rev() {
                kubernetes::delete(&reference(of, &name(of, index))?)?;
            }
            return Ok(Progress::Gone);
        }
        let (index, mark) = at.step.parts();
        let again = MAKE[index](Mark { calls: mark.calls + 1 });
        if SAVES.contains(&index) && mark.calls == 0 {
            return Ok(Progress::Save(again));
        }
        let deed = of.wanted()?.deed.as_ref().filter(|d| d.step == Step::ALL[index].name).map(|d| d.what);
        match deed {
            Some(What::Refuse) => return Err(Error::new("refused", "the settings ask for it")),
            Some(What::FailOnce) if at.attempt == 1 => {
                return Err(Error::new("not-yet", "the first attempt fails").retryable());
            }
            Some(What::FailAtGate) if !open(of)? => {
                return Err(Error::new("gate-closed", "the gate is closed").retryable());
            }
            Some(What::WaitAtGate) if !open(of)? => {
                return Ok(Progress::wait(again, PAUSE, "the gate is closed"));
            }
            _ => {}
        }
        make(of, index)?;
        if index == WAITS && mark.calls == 0 {
            return Ok(Progress::wait(again, PAUSE, "it has to settle"));
        }
        Ok(match MAKE.get(index + 1) {
            Some(next) => Progress::Next(next(Mark::default())),
            None => Progress::Done(outputs(of)),
        })
    }

    /// In reverse, one a call.
    fn cancel(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        let (index, _) = at.step.parts();
        kubernetes::delete(&reference(of, &name(of, index))?)?;
        Ok(match index.checked_sub(1) {
            Some(before) => Progress::Next(MAKE[before](Mark::default())),
            None => Progress::Gone,
        })
    }
}

sutler_sdk::export!(Seven);
