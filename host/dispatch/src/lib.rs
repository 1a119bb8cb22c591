//! One call: find the pair's plugin, check the settings, call, check the answer. It knows neither HTTP nor WebAssembly.

mod provisioner;

pub use provisioner::{
    CallError, Failed, HandleView, ObservedView, Outcome, PlanView, PlannedField, PlannedView, PluginView, Provisioner,
};
