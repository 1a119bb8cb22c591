//! `sutler:helm`

use sutler_helm as h;

use super::{ReadOnly, Weigh};
use crate::bindings::plugin::sutler::helm::{changes, charts, releases, types};
use crate::sandbox::{CapabilityError, State};

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

impl CapabilityError for h::Error {
    fn timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}

impl Weigh for h::Chart {
    fn weigh(&self) -> usize {
        self.values.weigh() + self.schema.weigh()
    }
}
impl Weigh for h::Rendered {
    fn weigh(&self) -> usize {
        self.manifest.len() + self.notes.len()
    }
}
impl Weigh for h::Release {
    fn weigh(&self) -> usize {
        self.values.weigh() + self.manifest.len() + self.notes.len()
    }
}
impl Weigh for h::Outcome {
    fn weigh(&self) -> usize {
        match self {
            Self::Done(r) => r.weigh(),
            Self::InProgress(s) => s.len(),
        }
    }
}
impl Weigh for h::Health {
    fn weigh(&self) -> usize {
        8
    }
}

impl From<h::Error> for types::Error {
    fn from(e: h::Error) -> Self {
        let detail = |code: &str, message: String| Self::Other(types::Detail { code: code.into(), message });
        match e {
            h::Error::NotGranted(n) => Self::NotGranted(n.to_string()),
            h::Error::ReadOnlyCall => Self::ReadOnlyCall,
            h::Error::Registry(m) => Self::Registry(m),
            h::Error::Render(m) => Self::Render(m),
            h::Error::NotFound => Self::NotFound,
            h::Error::AlreadyExists => Self::AlreadyExists,
            h::Error::Pending(m) => Self::Pending(m),
            h::Error::NotOwned(m) => Self::NotOwned(m),
            h::Error::TooLarge(m) => Self::TooLarge(m),
            h::Error::Unavailable(m) => Self::Unavailable(m),
            h::Error::TimedOut => Self::Unavailable("the call's time ran out".into()),
            h::Error::Other { code, message } => detail(code, message),
        }
    }
}

impl From<types::ChartReference> for h::ChartReference {
    fn from(c: types::ChartReference) -> Self {
        Self { url: c.url, version: c.version, digest: c.digest }
    }
}

impl From<types::ReleaseReference> for h::ReleaseReference {
    fn from(r: types::ReleaseReference) -> Self {
        Self { cluster: r.cluster, namespace: r.namespace, name: r.name }
    }
}

impl From<types::Options> for h::Options {
    fn from(o: types::Options) -> Self {
        Self {
            create_namespace: o.create_namespace,
            take_ownership: o.take_ownership,
            force_conflicts: o.force_conflicts,
            atomic: o.atomic,
            wait_for_jobs: o.wait_for_jobs,
            history_max: o.history_max,
        }
    }
}

fn chart_out(c: h::Chart) -> charts::Chart {
    charts::Chart {
        name: c.name,
        version: c.version,
        app_version: c.app_version,
        digest: c.digest.to_string(),
        values: c.values.to_string(),
        schema: c.schema.map(|s| s.to_string()),
    }
}

const fn status_out(s: h::Status) -> releases::Status {
    match s {
        h::Status::Unknown => releases::Status::Unknown,
        h::Status::Deployed => releases::Status::Deployed,
        h::Status::Uninstalled => releases::Status::Uninstalled,
        h::Status::Superseded => releases::Status::Superseded,
        h::Status::Failed => releases::Status::Failed,
        h::Status::Uninstalling => releases::Status::Uninstalling,
        h::Status::PendingInstall => releases::Status::PendingInstall,
        h::Status::PendingUpgrade => releases::Status::PendingUpgrade,
        h::Status::PendingRollback => releases::Status::PendingRollback,
    }
}

fn release_out(r: h::Release) -> releases::Release {
    releases::Release {
        name: r.name,
        namespace: r.namespace,
        revision: r.revision,
        status: status_out(r.status),
        description: r.description,
        chart_name: r.chart_name,
        chart_version: r.chart_version,
        values: r.values.to_string(),
        manifest: r.manifest,
        notes: r.notes,
    }
}

fn outcome_out(o: h::Outcome) -> changes::Outcome {
    match o {
        h::Outcome::Done(r) => changes::Outcome::Done(release_out(r)),
        h::Outcome::InProgress(s) => changes::Outcome::InProgress(s),
    }
}

fn health_out(h: h::Health) -> releases::Health {
    match h {
        h::Health::Ready => releases::Health::Ready,
        h::Health::Progressing(s) => releases::Health::Progressing(s),
        h::Health::Failed(s) => releases::Health::Failed(s),
    }
}

fn unavailable(describing: bool) -> h::Error {
    if describing {
        h::Error::Other { code: "describe-is-pure", message: "no capability is available in describe".into() }
    } else {
        h::Error::Other {
            code: "not-configured",
            message: "this host has no cluster configured; set [kubernetes] in sutler.toml".into(),
        }
    }
}

/// `(the capability, the call, its grants)`, cloned so that a future may hold them while the state counts.
macro_rules! parts {
    ($s:ident) => {{
        let (world, call, grants, describing) =
            ($s.world.helm.clone(), $s.call.clone(), $s.grants.clone(), $s.describing());
        let world = world.filter(|_| !describing).ok_or_else(|| unavailable(describing));
        (world, call, grants)
    }};
}

impl types::Host for State {}

impl State {
    /// The chart by the digest that it had when it was first asked for in this call, or in the plan before it.
    async fn pinned(
        &mut self,
        chart: types::ChartReference,
    ) -> wasmtime::Result<Result<h::ChartReference, h::Error>> {
        let mut chart = h::ChartReference::from(chart);
        if chart.digest.is_none() {
            let key = (chart.url.clone(), chart.version.clone());
            chart.digest = match self.pins.get(&key) {
                Some(digest) => Some(digest.clone()),
                None => match self.pull_now(&chart).await? {
                    Ok(found) => Some(found.digest.to_string()),
                    Err(e) => return Ok(Err(e)),
                },
            };
            if let Some(d) = &chart.digest {
                self.pins.insert(key, d.clone());
            }
        }
        Ok(Ok(chart))
    }

    async fn pull_now(&mut self, chart: &h::ChartReference) -> wasmtime::Result<Result<h::Chart, h::Error>> {
        let (world, call, grants) = parts!(self);
        let chart = chart.clone();
        let work = async move { world?.pull(&call, &grants.helm, &chart).await };
        self.through("a chart pull", 64, work).await
    }
}

impl charts::Host for State {
    async fn pull(&mut self, chart: types::ChartReference) -> Answer<charts::Chart> {
        let chart = match self.pinned(chart).await? {
            Ok(c) => c,
            Err(e) => return Ok(Err(e.into())),
        };
        Ok(self.pull_now(&chart).await?.map(chart_out).map_err(Into::into))
    }

    async fn tags(&mut self, url: String) -> Answer<Vec<String>> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.tags(&call, &grants.helm, &url).await };
        Ok(self.through("the tags of a chart", 64, work).await?.map_err(Into::into))
    }

    async fn render(
        &mut self,
        chart: types::ChartReference,
        release: types::ReleaseReference,
        values: String,
    ) -> Answer<charts::Rendered> {
        let chart = match self.pinned(chart).await? {
            Ok(c) => c,
            Err(e) => return Ok(Err(e.into())),
        };
        let (world, call, grants) = parts!(self);
        let bytes = values.len();
        let work = async move { world?.render(&call, &grants.helm, &chart, &release.into(), &values).await };
        let out = self.through("a chart's rendering", bytes, work).await?;
        Ok(out.map(|r| charts::Rendered { manifest: r.manifest, notes: r.notes }).map_err(Into::into))
    }
}

impl releases::Host for State {
    async fn get(&mut self, of: types::ReleaseReference) -> Answer<releases::Release> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.get(&call, &grants.helm, &of.into()).await };
        Ok(self.through("a release", 64, work).await?.map(release_out).map_err(Into::into))
    }

    async fn history(&mut self, of: types::ReleaseReference) -> Answer<Vec<releases::Release>> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.history(&call, &grants.helm, &of.into()).await };
        let out = self.through("a release's history", 64, work).await?;
        Ok(out.map(|v| v.into_iter().map(release_out).collect()).map_err(Into::into))
    }

    async fn list(&mut self, cluster: Option<String>, namespace: String) -> Answer<Vec<releases::Release>> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.list(&call, &grants.helm, cluster.as_deref(), &namespace).await };
        let out = self.through("the releases of a namespace", 64, work).await?;
        Ok(out.map(|v| v.into_iter().map(release_out).collect()).map_err(Into::into))
    }

    async fn readiness(&mut self, of: types::ReleaseReference) -> Answer<releases::Health> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.readiness(&call, &grants.helm, &of.into()).await };
        Ok(self.through("a release's readiness", 64, work).await?.map(health_out).map_err(Into::into))
    }

    async fn drift(&mut self, of: types::ReleaseReference) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.drift(&call, &grants.helm, &of.into()).await };
        Ok(self.through("a release's drift", 64, work).await?.map(|v| v.to_string()).map_err(Into::into))
    }

    async fn preview(
        &mut self,
        chart: types::ChartReference,
        of: types::ReleaseReference,
        values: String,
        options: types::Options,
    ) -> Answer<String> {
        let chart = match self.pinned(chart).await? {
            Ok(c) => c,
            Err(e) => return Ok(Err(e.into())),
        };
        let (world, call, grants) = parts!(self);
        let bytes = values.len();
        let work = async move {
            world?.preview(&call, &grants.helm, &chart, &of.into(), &values, options.into()).await
        };
        Ok(self
            .through("an upgrade's preview", bytes, work)
            .await?
            .map(|v| v.to_string())
            .map_err(Into::into))
    }
}

impl changes::Host for State {
    async fn upgrade(
        &mut self,
        chart: types::ChartReference,
        of: types::ReleaseReference,
        values: String,
        options: types::Options,
    ) -> Answer<changes::Outcome> {
        let chart = match self.pinned(chart).await? {
            Ok(c) => c,
            Err(e) => return Ok(Err(e.into())),
        };
        let (world, call, grants) = parts!(self);
        let bytes = values.len();
        let work = async move {
            world?.upgrade(&call, &grants.helm, &chart, &of.into(), &values, options.into()).await
        };
        Ok(self.through("a release's upgrade", bytes, work).await?.map(outcome_out).map_err(Into::into))
    }

    async fn rollback(
        &mut self,
        of: types::ReleaseReference,
        revision: u32,
        options: types::Options,
    ) -> Answer<changes::Outcome> {
        let (world, call, grants) = parts!(self);
        let work =
            async move { world?.rollback(&call, &grants.helm, &of.into(), revision, options.into()).await };
        Ok(self.through("a release's rollback", 64, work).await?.map(outcome_out).map_err(Into::into))
    }

    async fn uninstall(
        &mut self,
        of: types::ReleaseReference,
        keep_history: bool,
    ) -> Answer<changes::Outcome> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.uninstall(&call, &grants.helm, &of.into(), keep_history).await };
        Ok(self.through("a release's uninstall", 64, work).await?.map(outcome_out).map_err(Into::into))
    }

    async fn test(&mut self, of: types::ReleaseReference) -> Answer<changes::Outcome> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.test(&call, &grants.helm, &of.into()).await };
        Ok(self.through("a release's tests", 64, work).await?.map(outcome_out).map_err(Into::into))
    }
}

impl changes::Host for ReadOnly {
    async fn upgrade(
        &mut self,
        _: types::ChartReference,
        _: types::ReleaseReference,
        _: String,
        _: types::Options,
    ) -> Answer<changes::Outcome> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn rollback(
        &mut self,
        _: types::ReleaseReference,
        _: u32,
        _: types::Options,
    ) -> Answer<changes::Outcome> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn uninstall(&mut self, _: types::ReleaseReference, _: bool) -> Answer<changes::Outcome> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn test(&mut self, _: types::ReleaseReference) -> Answer<changes::Outcome> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
}
