//! One call: find the pair's plugin, check the settings, call, check the answer. It knows neither HTTP nor how a
//! sandbox works, and it never lets an answer through that the contract does not allow.

mod answers;
mod apply;
mod dispatcher;
mod drift;
mod plan;
mod provisioner;
mod settings;

pub use dispatcher::{DispatchConfig, Dispatcher, Readiness};
pub use provisioner::{
    CallError, Failed, HandleView, ObservedView, Outcome, PlanView, PlannedField, PlannedView, PluginView,
    Provisioner,
};
