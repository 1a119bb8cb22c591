//! Outbound HTTP: linked so that plugins load; nothing can be granted in this version.

use crate::bindings::plugin::sutler::http::outbound;
use crate::sandbox::State;

impl outbound::Host for State {
    async fn send(
        &mut self,
        _: outbound::Request,
    ) -> wasmtime::Result<Result<outbound::Response, outbound::Error>> {
        Ok(Err(outbound::Error::NotGranted("outbound HTTP is not offered by this version of sutler".into())))
    }
}
