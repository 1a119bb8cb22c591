//! The capability as the runtime calls it: the functions of `sutler:helm`, each behind the grants of its call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sutler_kubernetes::Clusters;
use sutler_model::{Call, Digest, Effective};

use crate::asked::{check_name, check_options, now_millis, seed, writes};
use crate::chart::Chart as Pulled;
use crate::config::{ConfigError, HelmConfig, RegistryConfig};
use crate::engine::{RenderRequest, TemplateEngine};
use crate::error::Error;
use crate::grant::{self, Grants};
use crate::jobs::Jobs;
use crate::oci::{ChartUrl, Charts, Clock, RegistryError, Wanted};
use crate::releases::{self, Asked, Health, Record, Rendering, Resumed, Seen, Target};
use crate::types::{Chart, ChartReference, Options, Outcome, Release, ReleaseReference, Rendered};

/// Helm, behind grants.
pub struct Helm {
    charts: Charts,
    clusters: Arc<Clusters>,
    engine: Arc<dyn TemplateEngine>,
    jobs: Arc<dyn Jobs>,
    timeout: Duration,
    render_limit: Duration,
}

impl std::fmt::Debug for Helm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Helm").finish_non_exhaustive()
    }
}

impl Helm {
    /// Reads the registries' secrets and opens the cache; connects to nothing.
    ///
    /// # Errors
    /// What in the configuration cannot be used.
    pub fn new(
        config: &HelmConfig,
        registries: &BTreeMap<String, RegistryConfig>,
        clusters: Arc<Clusters>,
        engine: Arc<dyn TemplateEngine>,
        jobs: Arc<dyn Jobs>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            charts: Charts::new(config, registries)?,
            clusters,
            engine,
            jobs,
            timeout: Duration::from_secs(config.timeout_seconds.max(1)),
            render_limit: Duration::from_secs(config.render_seconds.max(1)),
        })
    }

    const fn clock(&self, call: &Call) -> Clock {
        Clock { deadline: call.deadline, each: self.timeout }
    }

    /// `charts.pull`.
    ///
    /// # Errors
    /// `NotGranted`, `Registry`, `TooLarge`, `Unavailable`, `TimedOut`.
    pub async fn pull(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        chart: &ChartReference,
    ) -> Result<Chart, Error> {
        let pulled = self.chart(call, grants, chart).await?;
        Ok(Chart {
            name: pulled.metadata.name.clone(),
            version: pulled.metadata.version.clone(),
            app_version: pulled.metadata.app_version.clone(),
            digest: pulled.digest,
            values: pulled.values.clone(),
            schema: pulled.schema.clone(),
        })
    }

    async fn chart(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        chart: &ChartReference,
    ) -> Result<Arc<Pulled>, Error> {
        let url: ChartUrl = chart.url.parse().map_err(RegistryError::from)?;
        grants.check(|g| g.chart(&url, &call.owner))?;
        let digest = match &chart.digest {
            Some(text) => Some(text.parse::<Digest>().map_err(|e| Error::Registry(e.to_string()))?),
            None => None,
        };
        let wanted = Wanted { url, version: chart.version.clone(), digest };
        Ok(self.charts.get(&wanted, self.clock(call)).await?)
    }

    /// `charts.tags`.
    ///
    /// # Errors
    /// As [`Helm::pull`].
    pub async fn tags(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        url: &str,
    ) -> Result<Vec<String>, Error> {
        let url: ChartUrl = url.parse().map_err(RegistryError::from)?;
        grants.check(|g| g.chart(&url, &call.owner))?;
        Ok(self.charts.tags(&url, self.clock(call)).await?.as_ref().clone())
    }

    /// `charts.render`: as a first install would.
    ///
    /// # Errors
    /// Also `Render`.
    pub async fn render(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        chart: &ChartReference,
        of: &ReleaseReference,
        values: &str,
    ) -> Result<Rendered, Error> {
        let target = self.target(call, grants, of).await?;
        // Templates look up what belongs to the release of this name.
        target.history().await?;
        let rendering = self.rendering(&target, chart, values).await?;
        let answer = releases::render(&target, rendering).await?;
        Ok(Rendered { manifest: answer.manifest, notes: answer.notes })
    }

    async fn rendering(
        &self,
        target: &Target<'_>,
        chart: &ChartReference,
        values: &str,
    ) -> Result<Rendering<'_>, Error> {
        let values: Value = serde_json::from_str(values)
            .map_err(|e| Error::Render(format!("the values are not JSON: {e}")))?;
        if !values.is_object() {
            return Err(Error::Render("the values are not a JSON object".into()));
        }
        let pulled = self.chart(target.call, target.grants, chart).await?;
        let discovery = |e| Error::kube("what the cluster serves", e);
        let request = RenderRequest {
            name: target.name.to_owned(),
            namespace: target.namespace.to_owned(),
            revision: 1,
            upgrade: false,
            chart: pulled.archive.clone(),
            kube_version: target.cluster.version().await.map_err(discovery)?,
            api_versions: target.cluster.api_versions().await.map_err(discovery)?,
            lookups: Vec::new(),
            seed: seed(target, &pulled.digest, &values)?,
            now_millis: now_millis(target.call),
            values,
        };
        Ok(Rendering { engine: self.engine.as_ref(), request, limit: self.render_limit })
    }

    /// The release within the call: grants first, then its cluster.
    async fn target<'a>(
        &'a self,
        call: &'a Call,
        grants: &'a Effective<Grants>,
        of: &'a ReleaseReference,
    ) -> Result<Target<'a>, Error> {
        check_name(&of.name)?;
        self.place(call, grants, of.cluster.as_deref(), &of.namespace, Some(&of.name)).await
    }

    async fn place<'a>(
        &'a self,
        call: &'a Call,
        grants: &'a Effective<Grants>,
        cluster: Option<&str>,
        namespace: &'a str,
        name: Option<&'a str>,
    ) -> Result<Target<'a>, Error> {
        let named = Some(self.clusters.name(cluster)).filter(|_| !self.clusters.is_default(cluster));
        grant::release(grants, &call.owner, named, namespace, name)?;
        if call.left().is_zero() {
            return Err(Error::TimedOut);
        }
        let cluster =
            self.clusters.get(cluster).await.map_err(|e| Error::kube("the cluster", e))?.of_call(call);
        let storage = releases::Storage::new(cluster.clone(), namespace);
        let (jobs, name) = (self.jobs.as_ref(), name.unwrap_or_default());
        Ok(Target { cluster, storage, grants, call, jobs, name, namespace })
    }

    /// `releases.get`: the newest revision.
    ///
    /// # Errors
    /// `NotFound`; `NotOwned` for another application's release.
    pub async fn get(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
    ) -> Result<Release, Error> {
        Ok(self.newest(&self.target(call, grants, of).await?).await?.into())
    }

    async fn newest(&self, target: &Target<'_>) -> Result<Record, Error> {
        target.history().await?.pop().ok_or(Error::NotFound)
    }

    /// `releases.history`: oldest first.
    ///
    /// # Errors
    /// As [`Helm::get`].
    pub async fn history(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
    ) -> Result<Vec<Release>, Error> {
        let history = self.target(call, grants, of).await?.history().await?;
        if history.is_empty() {
            return Err(Error::NotFound);
        }
        Ok(history.into_iter().map(Release::from).collect())
    }

    /// `releases.list`: the newest revision of each release that the call may see, by name.
    ///
    /// # Errors
    /// As [`Helm::get`].
    pub async fn list(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        namespace: &str,
    ) -> Result<Vec<Release>, Error> {
        let target = self.place(call, grants, cluster, namespace, None).await?;
        let owner = if grant::unowned(grants) { None } else { Some(&call.owner) };
        let all = target.storage.newest(owner).await?;
        let visible = |r: &Record| grants.check(|g| g.name(&r.name, &call.owner)).is_ok();
        Ok(all.into_iter().filter(visible).map(Release::from).collect())
    }

    /// `releases.readiness`: never waits.
    ///
    /// # Errors
    /// As [`Helm::get`].
    pub async fn readiness(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
    ) -> Result<Health, Error> {
        let target = self.target(call, grants, of).await?;
        let record = self.newest(&target).await?;
        releases::readiness(&target, &record).await
    }

    /// `releases.drift`: a JSON array of {object, field, expected, actual, class}.
    ///
    /// # Errors
    /// As [`Helm::get`].
    pub async fn drift(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
    ) -> Result<Value, Error> {
        let target = self.target(call, grants, of).await?;
        let record = self.newest(&target).await?;
        Ok(Value::Array(releases::drift(&target, &record).await?))
    }

    /// `releases.preview`: {install, revision, objects: [{object, action, fields, conflicts}], hooks}; changes nothing.
    ///
    /// # Errors
    /// What the upgrade itself would meet before its first write.
    pub async fn preview(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        chart: &ChartReference,
        of: &ReleaseReference,
        values: &str,
        options: Options,
    ) -> Result<Value, Error> {
        check_options(grants, options)?;
        let target = self.target(call, grants, of).await?;
        let rendering = self.rendering(&target, chart, values).await?;
        let history = target.history_as_healed().await?;
        let plan =
            releases::prepare(&target, rendering, history, options.take_ownership, Seen::Whole).await?;
        releases::preview(&target, &plan, &options).await
    }

    /// `changes.upgrade`: installs or upgrades; values replace those of the revision before. Where chart, values and
    /// manifest are those of the deployed revision and nothing drifted, that revision is the answer. It never waits for
    /// hooks, definitions or readiness: in progress, the same call goes on.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `Pending`, `NotOwned`, `TooLarge`, `Other` with code `hook-failed`, `not-ready` or `taken-back`,
    /// and what the API server refuses.
    pub async fn upgrade(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        chart: &ChartReference,
        of: &ReleaseReference,
        values: &str,
        options: Options,
    ) -> Result<Outcome, Error> {
        writes(call)?;
        check_options(grants, options)?;
        let target = self.target(call, grants, of).await?;
        let digest = self.chart(call, grants, chart).await?.digest.to_string();
        let asked = Asked::new(call, &["upgrade", &digest, values], &options);
        let history = match releases::resume(&target, &asked, &options).await? {
            Resumed::Outcome(outcome) => return Ok(outcome.public()),
            Resumed::Fresh(history) => history,
        };
        let rendering = self.rendering(&target, chart, values).await?;
        let plan =
            releases::prepare(&target, rendering, history, options.take_ownership, Seen::Marks).await?;
        Ok(releases::begin(&target, &asked, plan, &options).await?.public())
    }

    /// `changes.uninstall`: hooks before and after, objects with the policy `keep` stay.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotFound`, `NotOwned`, and what the API server refuses.
    pub async fn uninstall(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
        keep_history: bool,
    ) -> Result<Outcome, Error> {
        writes(call)?;
        let target = self.target(call, grants, of).await?;
        let asked = Asked::new(call, &["uninstall", &keep_history.to_string()], &Options::default());
        Ok(releases::uninstall(&target, &asked, keep_history).await?.public())
    }

    /// `changes.rollback`: to a revision that is kept, 0 for the one before the newest.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotFound`, `NotOwned`, `Other` with code `no-such-revision`, and what the API server refuses.
    pub async fn rollback(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
        revision: u32,
        options: Options,
    ) -> Result<Outcome, Error> {
        writes(call)?;
        check_options(grants, options)?;
        let target = self.target(call, grants, of).await?;
        let asked = Asked::new(call, &["rollback", &revision.to_string()], &options);
        Ok(releases::rollback(&target, &asked, revision, &options).await?.public())
    }

    /// `changes.test`: runs the chart's test hooks; the revision's status stays as it is.
    ///
    /// # Errors
    /// As [`Helm::rollback`], and `Other` with code `hook-failed`.
    pub async fn test(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &ReleaseReference,
    ) -> Result<Outcome, Error> {
        writes(call)?;
        let target = self.target(call, grants, of).await?;
        let asked = Asked::new(call, &["test"], &Options::default());
        Ok(releases::test(&target, &asked).await?.public())
    }
}
