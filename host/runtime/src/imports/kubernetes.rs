//! `sutler:kubernetes`

use sutler_kubernetes as k8s;

use super::{ReadOnly, Weigh};
use crate::bindings::plugin::sutler::kubernetes::{read, types, write};
use crate::sandbox::{CapabilityError, State};

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

impl CapabilityError for k8s::Error {
    fn timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}

impl Weigh for k8s::Page {
    fn weigh(&self) -> usize {
        self.items.weigh()
    }
}

impl From<k8s::Error> for types::Error {
    fn from(e: k8s::Error) -> Self {
        let detail = |code: &str, message: String| Self::Other(types::Detail { code: code.into(), message });
        match e {
            k8s::Error::NotGranted(n) => Self::NotGranted(n.to_string()),
            k8s::Error::ReadOnlyCall => Self::ReadOnlyCall,
            k8s::Error::NotFound => Self::NotFound,
            k8s::Error::AlreadyExists => Self::AlreadyExists,
            k8s::Error::Conflict(c) => Self::Conflict(
                c.into_iter().map(|c| types::FieldConflict { field: c.field, manager: c.manager }).collect(),
            ),
            k8s::Error::Forbidden(m) => Self::Forbidden(m),
            k8s::Error::Invalid(message) | k8s::Error::Immutable { message, .. } => Self::Invalid(message),
            k8s::Error::Unavailable(m) => Self::Unavailable(m),
            k8s::Error::TimedOut => Self::Unavailable("the call's time ran out".into()),
            k8s::Error::Other { code, message } => detail(code, message),
        }
    }
}

impl From<types::Reference> for k8s::Reference {
    fn from(r: types::Reference) -> Self {
        Self {
            cluster: r.cluster,
            api_version: r.api_version,
            kind: r.kind,
            namespace: r.namespace,
            name: r.name,
        }
    }
}

impl From<read::Selector> for k8s::Selector {
    fn from(s: read::Selector) -> Self {
        Self {
            cluster: s.cluster,
            api_version: s.api_version,
            kind: s.kind,
            namespace: s.namespace,
            labels: s.labels,
            fields: s.fields,
            limit: s.limit,
            continue_token: s.continue_token,
        }
    }
}

impl From<write::Propagation> for k8s::Propagation {
    fn from(p: write::Propagation) -> Self {
        match p {
            write::Propagation::Background => Self::Background,
            write::Propagation::Foreground => Self::Foreground,
            write::Propagation::Orphan => Self::Orphan,
        }
    }
}

fn weight(r: &types::Reference) -> usize {
    r.api_version.len() + r.kind.len() + r.name.len() + r.namespace.as_ref().map_or(0, String::len)
}

impl types::Host for State {}

/// `(the capability, the call, its grants)`, cloned so that a future may hold them while the state counts.
macro_rules! parts {
    ($s:ident) => {{
        let (world, call, grants, describing) =
            ($s.world.kubernetes.clone(), $s.call.clone(), $s.grants.clone(), $s.describing());
        let world = world.filter(|_| !describing).ok_or_else(|| unavailable(describing));
        (world, call, grants)
    }};
}

fn unavailable(describing: bool) -> k8s::Error {
    if describing {
        k8s::Error::Other {
            code: "describe-is-pure",
            message: "no capability is available in describe".into(),
        }
    } else {
        k8s::Error::Other {
            code: "not-configured",
            message: "this host has no cluster configured; set [kubernetes] in sutler.toml".into(),
        }
    }
}

impl read::Host for State {
    async fn get(&mut self, of: types::Reference) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let bytes = weight(&of);
        let work = async move { world?.get(&call, &grants.kubernetes, &of.into()).await };
        Ok(self.through("kubernetes get", bytes, work).await?.map(|v| v.to_string()).map_err(Into::into))
    }

    async fn list(&mut self, of: read::Selector) -> Answer<read::Page> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.list(&call, &grants.kubernetes, &of.into()).await };
        let page = self.through("kubernetes list", 64, work).await?;
        Ok(page
            .map(|p| read::Page {
                items: p.items.iter().map(ToString::to_string).collect(),
                continue_token: p.continue_token,
            })
            .map_err(Into::into))
    }

    async fn dry_run_apply(
        &mut self,
        cluster: Option<String>,
        manifest: String,
        force: bool,
    ) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let bytes = manifest.len();
        let work = async move {
            world?.dry_run_apply(&call, &grants.kubernetes, cluster.as_deref(), &manifest, force).await
        };
        Ok(self
            .through("kubernetes dry-run-apply", bytes, work)
            .await?
            .map(|v| v.to_string())
            .map_err(Into::into))
    }

    async fn can_i(&mut self, verb: String, of: types::Reference) -> Answer<bool> {
        let (world, call, grants) = parts!(self);
        let bytes = weight(&of);
        let work = async move { world?.can_i(&call, &grants.kubernetes, &verb, &of.into()).await };
        Ok(self.through("kubernetes can-i", bytes, work).await?.map_err(Into::into))
    }
}

impl write::Host for State {
    async fn apply(&mut self, cluster: Option<String>, manifest: String, force: bool) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let bytes = manifest.len();
        let work = async move {
            world?.apply(&call, &grants.kubernetes, cluster.as_deref(), &manifest, force).await
        };
        Ok(self.through("kubernetes apply", bytes, work).await?.map(|v| v.to_string()).map_err(Into::into))
    }

    async fn create(&mut self, cluster: Option<String>, manifest: String) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let bytes = manifest.len();
        let work =
            async move { world?.create(&call, &grants.kubernetes, cluster.as_deref(), &manifest).await };
        Ok(self.through("kubernetes create", bytes, work).await?.map(|v| v.to_string()).map_err(Into::into))
    }

    async fn patch(&mut self, of: types::Reference, merge_patch: String) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let bytes = merge_patch.len() + weight(&of);
        let work = async move { world?.patch(&call, &grants.kubernetes, &of.into(), &merge_patch).await };
        Ok(self.through("kubernetes patch", bytes, work).await?.map(|v| v.to_string()).map_err(Into::into))
    }

    async fn delete(
        &mut self,
        of: types::Reference,
        uid: Option<String>,
        propagation: write::Propagation,
    ) -> Answer<()> {
        let (world, call, grants) = parts!(self);
        let bytes = weight(&of);
        let work = async move {
            world?.delete(&call, &grants.kubernetes, &of.into(), uid.as_deref(), propagation.into()).await
        };
        Ok(self.through("kubernetes delete", bytes, work).await?.map_err(Into::into))
    }
}

impl write::Host for ReadOnly {
    async fn apply(&mut self, _: Option<String>, _: String, _: bool) -> Answer<String> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn create(&mut self, _: Option<String>, _: String) -> Answer<String> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn patch(&mut self, _: types::Reference, _: String) -> Answer<String> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn delete(&mut self, _: types::Reference, _: Option<String>, _: write::Propagation) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
}
