//! log, clock, random, config.

use sutler_model::Secret;

use crate::bindings::plugin::sutler::host::{clock, config, log, random};
use crate::bindings::plugin::sutler::provisioner::types;
use crate::sandbox::State;

/// The most bytes that one call of `random.bytes` gives (WIT).
const RANDOM_MAX: u32 = 4_096;
/// One message; what is longer is cut.
const MESSAGE_MAX: usize = 8 << 10;
const REDACTED: &str = "[redacted]";

impl types::Host for State {}

impl State {
    /// What the guest wants to log, on one line and without the secrets that it was given, also where JSON writes
    /// them otherwise. Secrets go before anything is cut, so that no half of one stays.
    fn redact(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in self.seen_secrets.values().map(Secret::expose).filter(|s| !s.is_empty()) {
            let quoted = serde_json::Value::from(secret).to_string();
            out = out.replace(secret, REDACTED).replace(quoted.trim_matches('"'), REDACTED);
        }
        out.chars().take(MESSAGE_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

impl log::Host for State {
    async fn write(&mut self, level: log::Level, message: String, fields: String) -> wasmtime::Result<()> {
        let size = message.len() + fields.len() + 16;
        if self.log_left == 0 {
            return Ok(());
        }
        let Some(left) = self.log_left.checked_sub(size) else {
            self.log_left = 0;
            tracing::warn!(event = "plugin-log-cut", plugin = %self.call.plugin, request_id = %self.call.request_id,
                "the plugin logged more than its limit allows for one call; the rest of this call is dropped");
            return Ok(());
        };
        self.log_left = left;
        let (message, fields) = (self.redact(&message), self.redact(&fields));
        let (plugin, id) = (&self.call.plugin, &self.call.request_id);
        macro_rules! emit { ($m:ident) => { tracing::$m!(event = "plugin-log", %plugin, request_id = %id, fields = %fields, "{message}") }; }
        match level {
            log::Level::Trace => emit!(trace),
            log::Level::Debug => emit!(debug),
            log::Level::Info => emit!(info),
            log::Level::Warn => emit!(warn),
            log::Level::Error => emit!(error),
        }
        Ok(())
    }
}

impl clock::Host for State {
    async fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX))
    }
}

impl random::Host for State {
    async fn bytes(&mut self, length: u32) -> wasmtime::Result<Vec<u8>> {
        let mut out = vec![0; length.min(RANDOM_MAX) as usize];
        self.random.of(&self.call).fill(&mut out);
        Ok(out)
    }
}

impl config::Host for State {
    async fn settings(&mut self) -> wasmtime::Result<String> {
        let application = &self.call.owner.application;
        Ok(if self.describing() { "{}".into() } else { self.settings.config_for(application).to_owned() })
    }

    async fn secret(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        if self.describing() {
            return Ok(None);
        }
        let found = self.settings.secrets.get(&name).cloned();
        if let Some(s) = &found {
            self.seen_secrets.insert(name, s.clone());
        }
        Ok(found.map(|s| s.expose().to_owned()))
    }
}
