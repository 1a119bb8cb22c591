//! The least that a fresh sandbox a call costs: the same component in bare wasmtime, with the host's own pool and
//! nothing of the host around it. What is between this and the host is the host's own doing.

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;
use sutler_runtime::Engine;
use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use crate::native::{Outcome, Request};

#[allow(unreachable_pub, clippy::all, missing_docs, dead_code)]
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "provisioner-plugin",
        exports: { default: async },
    });
}
use generated::exports::sutler::provisioner::provisioner::Proposal;
use generated::sutler::provisioner::types as t;

/// A component, ready to be instantiated.
pub(crate) struct Floor {
    engine: Engine,
    component: InstancePre<()>,
    plan: ComponentExportIndex,
}

impl Floor {
    pub(crate) fn new(engine: Engine, file: &std::path::Path) -> Result<Self> {
        let wrong = |e: wasmtime::Error| anyhow!("{e:#}");
        let component = Component::from_file(engine.wasmtime(), file).map_err(wrong)?;
        let mut linker = Linker::new(engine.wasmtime());
        // A plan of this plugin calls nothing of the host.
        linker.define_unknown_imports_as_traps(&component).map_err(wrong)?;
        let interface = component.get_export_index(None, "sutler:provisioner/provisioner@0.1.1");
        let plan = component.get_export_index(interface.as_ref(), "plan").context("no plan")?;
        Ok(Self { component: linker.instantiate_pre(&component).map_err(wrong)?, engine, plan })
    }

    /// One plan in a fresh sandbox.
    pub(crate) async fn plan(&self, r: &Request) -> Result<Vec<Outcome>> {
        let wrong = |e: wasmtime::Error| anyhow!("{e:#}");
        let mut store = Store::new(self.engine.wasmtime(), ());
        store.set_epoch_deadline(u64::MAX / 2);
        let guest = self.component.instantiate_async(&mut store).await.map_err(wrong)?;
        let function = guest
            .get_typed_func::<(&t::Request,), (Result<Proposal, t::Failure>,)>(&mut store, &self.plan)
            .map_err(wrong)?;
        let (answer,) = function.call_async(&mut store, (&asked(r),)).await.map_err(wrong)?;
        let proposal = answer.map_err(|f| anyhow!("{}", f.reason))?;
        let read = |text: Option<String>| -> Result<Option<Value>> {
            text.map(|t| serde_json::from_str(&t)).transpose().map_err(Into::into)
        };
        proposal
            .changes
            .into_iter()
            .map(|c| {
                Ok(Outcome {
                    before: read(c.before)?,
                    after: read(c.after)?,
                    unknown: c.unknown,
                    replace_because: c.replace_because,
                    warnings: c.warnings,
                })
            })
            .collect()
    }
}

fn asked(r: &Request) -> t::Request {
    let a = &r.application;
    let change = |c: &crate::native::Change| t::Change {
        resource: c.resource.clone(),
        action: t::Action::Update,
        settings: Some(c.settings.to_string()),
        previous_settings: None,
        previous_outputs: None,
    };
    t::Request {
        id: r.request_id.clone(),
        pair: t::Pair { kind: t::Kind::Tool, type_: r.type_name.clone() },
        application: t::Application {
            id: a.id.clone(),
            environment: a.environment.clone(),
            tenant: a.tenant.clone(),
            instance: a.instance.clone(),
        },
        changes: r.changes.iter().map(change).collect(),
        context: r#"{"marks":[]}"#.into(),
    }
}
