//! WASI 0.2 with nothing in it: no files, sockets, arguments or environment; what is printed goes to the log.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder};

use crate::clock::Clock;
use crate::random::Random;

/// Made only for a component that imports WASI.
pub(crate) struct Wasi {
    pub(crate) ctx: WasiCtx,
    pub(crate) table: ResourceTable,
}

impl Wasi {
    pub(crate) fn new(plugin: &str, clock: &Clock, random: &Random, log_bytes: usize) -> Self {
        let lines = Lines { plugin: plugin.into(), buffer: Arc::new(Mutex::new((Vec::new(), log_bytes))) };
        let mut b = WasiCtxBuilder::new();
        b.stdout(lines.clone())
            .stderr(lines)
            .wall_clock(clock.clone())
            .monotonic_clock(clock.clone())
            .secure_random(random.clone())
            .insecure_random(random.clone())
            .insecure_random_seed(u128::from(random.clone().next_u64()))
            .max_random_size(64 << 10)
            .allow_tcp(false)
            .allow_udp(false);
        Self { ctx: b.build(), table: ResourceTable::new() }
    }
}

/// Whole lines of a guest's stdout and stderr as log events.
#[derive(Clone)]
struct Lines {
    plugin: Arc<str>,
    /// What is not a whole line yet, and how many bytes may still be logged.
    buffer: Arc<Mutex<(Vec<u8>, usize)>>,
}

impl Lines {
    fn push(&self, bytes: &[u8]) {
        let Ok(mut held) = self.buffer.lock() else { return };
        let (buffer, left) = &mut *held;
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            if buffer.len() + part.len() <= 8 << 10 {
                buffer.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let text = String::from_utf8_lossy(buffer);
                let line: String =
                    text.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                match left.checked_sub(line.len()) {
                    Some(l) => {
                        *left = l;
                        tracing::info!(event = "plugin-output", plugin = %self.plugin, "{line}");
                    }
                    None => *left = 0,
                }
                buffer.clear();
            }
        }
    }
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Lines {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        self.push(buf);
        Poll::Ready(Ok(buf.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
