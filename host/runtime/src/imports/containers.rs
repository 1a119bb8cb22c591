//! Containers: linked so that plugins load; nothing can be granted in this version.

use super::ReadOnly;
use crate::bindings::plugin::sutler::containers::{read, types, write};
use crate::sandbox::State;

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

fn refused<T>() -> Answer<T> {
    Ok(Err(types::Error::NotGranted("containers are not offered by this version of sutler".into())))
}

impl types::Host for State {}

impl read::Host for State {
    async fn inspect(&mut self, _: String) -> Answer<read::State> {
        refused()
    }
    async fn list(&mut self) -> Answer<Vec<read::State>> {
        refused()
    }
    async fn logs(&mut self, _: String, _: u32) -> Answer<Vec<String>> {
        refused()
    }
}

impl write::Host for State {
    async fn run(&mut self, _: write::Spec) -> Answer<()> {
        refused()
    }
    async fn stop(&mut self, _: String, _: u32) -> Answer<()> {
        refused()
    }
    async fn remove(&mut self, _: String) -> Answer<()> {
        refused()
    }
}

impl write::Host for ReadOnly {
    async fn run(&mut self, _: write::Spec) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn stop(&mut self, _: String, _: u32) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn remove(&mut self, _: String) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
}
