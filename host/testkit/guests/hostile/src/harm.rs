//! Harm that never answers, or answers with a failure.

use std::hint::black_box;

use crate::failure;
use crate::order::{Deed, Order};
use crate::probe;
use crate::sutler::host::log;
use crate::sutler::provisioner::types::Failure;

/// Does what comes before any answer: many of these never return.
pub(crate) fn first(deed: Deed, order: &Order) -> Result<(), Failure> {
    match deed {
        Deed::Loop => spin(),
        Deed::Allocate => hoard(),
        Deed::Recurse => {
            black_box(dig(1));
        }
        Deed::Trap => core::arch::wasm32::unreachable(),
        Deed::Panic => panic!("asked to panic"),
        Deed::FloodLog => {
            let line = "all work and no play ".repeat(50);
            (0..order.number(100_000))
                .for_each(|n| log::write(log::Level::Info, &line, &format!(r#"{{"n":{n}}}"#)));
        }
        Deed::FloodHost => (0..order.number(100_000)).for_each(|_| drop(probe::read(order, "flood"))),
        Deed::SleepInHost => {
            let mut told = String::new();
            (0..order.number(1)).for_each(|_| told = probe::read(order, "slow"));
            return Err(failure("probe", told));
        }
        Deed::ReservedCode => return Err(failure("plugin-fault", "This code belongs to the host.")),
        Deed::BadCode => return Err(failure("Not Kebab Case!", "")),
        Deed::Fail => return Err(failure(&order.name("quota-exceeded"), "Asked to fail.")),
        Deed::FailRetryable => {
            return Err(Failure {
                retryable: true,
                ..failure(&order.name("busy"), "Asked to fail for now.")
            });
        }
        _ => {}
    }
    Ok(())
}

fn spin() {
    let mut n = 0_u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

fn hoard() {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 4 << 20]));
    }
}

#[allow(unconditional_recursion, reason = "that is the harm")]
#[inline(never)]
fn dig(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    dig(depth + 1) + frame[3]
}

/// A JSON object of `value` MiB (16 by default) that fits the outputs schema.
pub(crate) fn huge(order: &Order) -> String {
    let size = usize::try_from(order.number(16)).unwrap_or(16) << 20;
    let mut text = String::with_capacity(size + 16);
    text.push_str(r#"{"answer":""#);
    text.extend(std::iter::repeat_n('x', size));
    text.push_str(r#""}"#);
    text
}
