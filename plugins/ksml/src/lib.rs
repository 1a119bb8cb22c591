//! KSML applications: their Helm chart, pulled from a registry, as one release for each application. It never puts a
//! secret into the chart's values, and never touches Kafka.

pub mod config;
pub mod secrets;
pub mod settings;
pub mod values;

use std::time::Duration;

use serde_json::Value;
use sutler_sdk::helm::{self, Health, Options, Outcome, Release, ReleaseReference, Status};
use sutler_sdk::prelude::*;

use config::Config;
use settings::{RestartPolicy, Settings};

pub struct Ksml;

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    pub release: String,
    pub namespace: String,
    pub revision: u32,
    pub chart: String,
    pub chart_version: String,
    pub replicas: u32,
    /// Whether everything that the chart made is ready.
    pub ready: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(tag = "step", content = "state", rename_all = "kebab-case")]
pub enum Step {
    #[default]
    Release,
    Ready {
        /// The revision before this work, 0 for none: what cancel goes back to.
        before: u32,
    },
}

impl Steps for Step {
    const ALL: &'static [StepInfo] = &[
        StepInfo::new("release", "Install or upgrade the release", 120),
        StepInfo::new("ready", "Wait until it is ready", 60),
    ];
}

const PAUSE: Duration = Duration::from_secs(1);

impl Pipeline for Ksml {
    const PAIR: Pair = Pair::new(Kind::Deployment, "ksml");
    const SUMMARY: &'static str = "A KSML application, deployed with its Helm chart";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = Step;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let at = Config::read()?.release(of)?;
        helm::get(&at)?.map(|release| actual(of, &at, &release, false)).transpose()
    }

    fn plan(of: &Subject<Settings>) -> Result<Planned> {
        let config = Config::read()?;
        let at = config.release(of)?;
        let release = helm::get(&at)?;
        if let Some(wanted) = &of.wanted {
            wanted.check()?;
            helm::pull(&config.chart())?;
        }
        let now = release.as_ref().map(|r| actual(of, &at, r, false)).transpose()?;
        let mut planned = sutler_sdk::compare::<Self>(of, now);
        if let (Some(r), Some(wanted)) = (&release, &of.wanted) {
            if r.status != Status::Deployed {
                // The last work on it was cut off or failed: equal settings do not mean that there is nothing to do.
                if planned.action == Action::NoOp {
                    planned.action = Action::Update;
                }
                planned.warnings.push(format!("release {} is {}", at.name, status_word(r.status)));
            }
            if planned.action != Action::NoOp
                && is_job(&r.values)
                && wanted.restart_policy == RestartPolicy::Never
            {
                planned.warnings.push("a Job cannot change in place: it is deleted and runs again".into());
            }
            if planned.replace_because.iter().any(|p| p == "/storeSize") {
                planned
                    .warnings
                    .push("volumes of the old size stay until somebody deletes their claims".into());
            }
        }
        Ok(planned)
    }

    fn apply(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        let config = Config::read()?;
        let release = config.release(of)?;
        match at.step {
            Step::Release if of.deletes() => remove(&release),
            Step::Release => install(of, &config, &release),
            Step::Ready { before } => settle(of, &release, before),
        }
    }

    fn cancel(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        let release = Config::read()?.release(of)?;
        if of.action == Action::Create {
            return remove(&release);
        }
        let Some(now) = helm::get(&release)? else { return Ok(Progress::Gone) };
        let history = helm::history(&release)?;
        let before = match at.step {
            Step::Ready { before } => before,
            // Cut off in the middle: back to what was deployed last.
            Step::Release => match history.iter().rfind(|r| r.status == Status::Deployed) {
                Some(last) if last.revision != now.revision => last.revision,
                _ => return Ok(Progress::Gone),
            },
        };
        // A rollback is a revision of its own, with the values of the one it goes back to.
        let Some(then) = history.into_iter().find(|r| r.revision == before) else {
            return Err(Error::new(
                "cannot-cancel",
                "the revision from before is not kept any more; apply the settings of before",
            ));
        };
        if (now.status != Status::Deployed || now.values != then.values)
            && let Outcome::InProgress(what) = helm::rollback(&release, before, Options::default())?
        {
            return Ok(Progress::wait(at.step, PAUSE, what));
        }
        Ok(Progress::Gone)
    }

    fn inspect(of: &Subject<Settings>) -> Result<Observed> {
        let at = Config::read()?.release(of)?;
        let Some(release) = helm::get(&at)? else { return Ok(Observed::absent()) };
        sutler_sdk::observe::<Self>(of, actual(of, &at, &release, true)?)
    }

    fn steps(of: &Subject<Settings>, planned: &Planned) -> Vec<&'static str> {
        match planned.action {
            Action::NoOp => vec![],
            _ if of.deletes() => vec!["release"],
            _ => vec!["release", "ready"],
        }
    }

    fn locate(of: &Subject<Settings>) -> Result<Vec<LogSource>> {
        let at = Config::read()?.release(of)?;
        Ok(vec![LogSource {
            cluster: None,
            namespace: at.namespace,
            label_selector: format!("app.kubernetes.io/instance={}", at.name),
            container: Some("ksml".into()),
        }])
    }
}

fn remove(at: &ReleaseReference) -> Result<Progress<Step, Outputs>> {
    if let Some(Outcome::InProgress(what)) = helm::uninstall(at)? {
        return Ok(Progress::wait(Step::Release, PAUSE, what));
    }
    secrets::delete(at)?;
    Ok(Progress::Gone)
}

const fn status_word(status: Status) -> &'static str {
    match status {
        Status::Deployed => "deployed",
        Status::Uninstalled => "uninstalled",
        Status::Superseded => "superseded",
        Status::Failed => "failed",
        Status::Uninstalling => "being uninstalled, or that was cut off",
        Status::PendingInstall => "being installed, or that was cut off",
        Status::PendingUpgrade => "being upgraded, or that was cut off",
        Status::PendingRollback => "being rolled back, or that was cut off",
        Status::Unknown => "in an unknown state",
    }
}

fn install(
    of: &Subject<Settings>,
    config: &Config,
    at: &ReleaseReference,
) -> Result<Progress<Step, Outputs>> {
    let wanted = of.wanted()?;
    wanted.check()?;
    let security = &wanted.kafka.security;
    let secret_version = secrets::apply(at, security)?;
    let values = values::of(&values::Input {
        config,
        release: at,
        application: &of.application.id,
        settings: wanted,
        sent: of.wanted_json.as_ref().unwrap_or(&Value::Null),
        secret_version: secret_version.as_deref(),
    });
    let now = helm::get(at)?;
    let before = now.as_ref().map_or(0, |r| r.revision);
    if let Some(now) = now.filter(|r| r.values != values)
        && (of.action == Action::Replace || (is_job(&now.values) && is_job(&values)))
        && let Some(Outcome::InProgress(what)) = helm::uninstall(at)?
    {
        return Ok(Progress::wait(Step::Release, PAUSE, what));
    }
    // What a person changed by hand is taken back, unless the operator would rather hear of it.
    let options = Options { force_conflicts: config.force_conflicts, ..Options::default() };
    match helm::upgrade(&config.chart(), at, &values, options)? {
        Outcome::Done(_) => Ok(Progress::Next(Step::Ready { before })),
        Outcome::InProgress(what) => Ok(Progress::wait(Step::Release, PAUSE, what)),
    }
}

fn settle(of: &Subject<Settings>, at: &ReleaseReference, before: u32) -> Result<Progress<Step, Outputs>> {
    match helm::readiness(at)? {
        Health::Ready => {
            let release = helm::get(at)?.ok_or_else(|| {
                Error::new(
                    "release-gone",
                    format!("somebody uninstalled release {} meanwhile; apply again", at.name),
                )
                .retryable()
            })?;
            Ok(Progress::Done(outputs(of.wanted()?, &release, true)))
        }
        Health::Progressing(what) => Ok(Progress::wait(Step::Ready { before }, PAUSE, what)),
        Health::Failed(why) => Err(Error::new(
            "not-ready",
            format!("release {}/{} cannot become ready: {why}", at.namespace, at.name),
        )),
    }
}

fn is_job(values: &Value) -> bool {
    values.get("deploymentMode").and_then(Value::as_str) == Some("Job")
}

fn outputs(settings: &Settings, release: &Release, ready: bool) -> Outputs {
    Outputs {
        release: release.name.clone(),
        namespace: release.namespace.clone(),
        revision: release.revision,
        chart: release.chart_name.clone(),
        chart_version: release.chart_version.clone(),
        replicas: settings.replicas,
        ready,
    }
}

/// What the release's record and its objects say; the objects only where it is `deep`.
fn actual(
    of: &Subject<Settings>,
    at: &ReleaseReference,
    release: &Release,
    deep: bool,
) -> Result<Actual<Outputs>> {
    let foreign = || {
        let why = format!(
            "release {}/{} was not made for this application; choose another name or uninstall it",
            at.namespace, at.name
        );
        Error::new("foreign-release", why)
    };
    let mut recorded = release.values.pointer(values::RECORD).cloned().ok_or_else(foreign)?;
    let settings = Settings::recorded(recorded.clone())?;
    let mut warnings = Vec::new();
    if let Some(told) = of.settings()
        && let Some(pointer) = secrets::pointer(&told.kafka.security)
        && secrets::pointer(&settings.kafka.security) == Some(pointer)
        && let Some(sent) =
            of.wanted_json.as_ref().or(of.believed_json.as_ref()).and_then(|s| s.pointer(pointer))
    {
        // The secret is only compared: told as it was sent where it is the same, as null where it is not.
        let same = secrets::same(at, &told.kafka.security)?;
        if same.is_none() {
            warnings.push(
                "whether Kafka's secret is as it was is not known: get on the Secret is not granted".into(),
            );
        }
        let value = if same == Some(false) { Value::Null } else { sent.clone() };
        let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(security)) = recorded.pointer_mut(parent) {
            security.insert(key.into(), value);
        }
    }
    let ready = !deep || matches!(helm::readiness(at)?, Health::Ready);
    let differences = if deep { drift(at)? } else { vec![] };
    Ok(Actual { settings: recorded, outputs: outputs(&settings, release, ready), differences, warnings })
}

fn drift(at: &ReleaseReference) -> Result<Vec<Difference>> {
    let part =
        |object: &Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = helm::drift(at)?.into_iter().map(|d| Difference {
        at: format!(
            "/release/{}/{}{}",
            part(&d.object, "kind"),
            part(&d.object, "name"),
            d.field.as_deref().unwrap_or_default()
        ),
        class: d.class(),
        expected: d.expected,
        actual: d.actual,
    });
    Ok(found.collect())
}

sutler_sdk::export_with_logs!(Ksml);
