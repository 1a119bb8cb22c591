//! One call: find the pair's plugin, check the settings, call, check the answer. It knows neither HTTP nor how a
//! sandbox works, and it never lets an answer through that the contract does not allow.

mod answers;
mod apply;
mod dispatcher;
mod drift;
mod large;
mod operations;
mod plan;
mod provisioner;
mod quotas;
mod serve;
mod settings;
mod worker;

pub use dispatcher::{Dispatcher, Readiness};
pub use provisioner::{
    Asker, CallError, EventView, Failed, HandleView, ObservedView, OperationFilter, OperationView, Outcome,
    PlanView, PlannedField, PlannedView, PluginView, ProgressView, Provisioner, Work,
};
pub use quotas::{InstanceQuotas, QuotaTable};
pub use sutler_ledger::{Audit, AuditFilter, AuditPlace, InvalidAuditPlace, InvalidJobId, Millis, Names};
pub use worker::PluginWorker;
