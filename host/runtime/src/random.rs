//! Random bytes that follow from the call, keyed by the host, so that equal plans are equal and a repeated step
//! makes the same names.

use std::convert::Infallible;
use std::sync::Arc;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use sutler_model::{Call, Request, RequestId};

/// HMAC-SHA-256 in counter mode.
#[derive(Clone)]
pub(crate) struct Random {
    seed: [u8; 32],
    counter: u64,
    block: [u8; 32],
    used: usize,
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length, so this arm is never taken; an all-zero answer would show in tests.
    let Ok(mut m) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for p in parts {
        m.update(&(p.len() as u64).to_le_bytes());
        m.update(p);
    }
    m.finalize().into_bytes().into()
}

impl Random {
    /// `what` names the stream: equal for equal requests.
    pub(crate) fn new(host_key: &[u8; 32], what: &[&[u8]]) -> Self {
        Self { seed: mac(host_key, what), counter: 0, block: [0; 32], used: 32 }
    }

    /// The seed itself, for an engine that makes its own stream of it.
    pub(crate) const fn from_seed(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0, block: [0; 32], used: 32 }
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for o in out {
            if self.used == 32 {
                self.block = mac(&self.seed, &[&self.counter.to_le_bytes()]);
                self.counter += 1;
                self.used = 0;
            }
            *o = self.block.get(self.used).copied().unwrap_or_default();
            self.used += 1;
        }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }
}

/// What a call's random bytes follow from.
pub(crate) enum Seed {
    /// Everything the plugin is asked, but not the request's id: equal plans are equal.
    Question(Arc<Request>),
    /// Job and step: a repeated step makes the same names.
    Step { request: RequestId, job: Arc<str>, step: String },
    /// The owner alone; holds the call's id.
    Call(Arc<str>),
}

impl Seed {
    pub(crate) fn request_id(&self) -> &str {
        match self {
            Self::Question(r) => r.id.as_str(),
            Self::Step { request, .. } => request.as_str(),
            Self::Call(id) => id,
        }
    }

    pub(crate) const fn job(&self) -> Option<&Arc<str>> {
        match self {
            Self::Step { job, .. } => Some(job),
            Self::Question(_) | Self::Call(_) => None,
        }
    }

    fn random(&self, key: &[u8; 32], call: &Call) -> Random {
        let (what, hash) = (call.mode.as_str().as_bytes(), call.owner.hash());
        match self {
            Self::Question(r) => {
                let mut text = String::new();
                for c in &r.changes {
                    use std::fmt::Write as _;
                    let settings = c.settings.as_ref().map(sutler_model::canonical);
                    let _ = write!(text, "{}\0{}\0{:?}\0", c.resource, c.action.as_str(), settings);
                }
                Random::new(key, &[what, hash.as_bytes(), text.as_bytes()])
            }
            Self::Step { job, step, .. } => {
                Random::new(key, &[what, hash.as_bytes(), job.as_bytes(), step.as_bytes()])
            }
            Self::Call(_) => Random::new(key, &[what, hash.as_bytes()]),
        }
    }
}

/// A call's random bytes; most calls never ask for any, so the seed is hashed at the first question.
pub(crate) struct Lazy {
    key: [u8; 32],
    seed: Seed,
    random: Option<Random>,
}

impl Lazy {
    pub(crate) const fn new(key: [u8; 32], seed: Seed) -> Self {
        Self { key, seed, random: None }
    }
    pub(crate) fn of(&mut self, call: &Call) -> &mut Random {
        self.random.get_or_insert_with(|| self.seed.random(&self.key, call))
    }
}

/// As WASI wants it.
impl rand_core::TryRng for Random {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next_u64() as u32)
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next_u64())
    }
    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        self.fill(dst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_calls_give_equal_bytes() {
        let take = |key: u8, what: &[&[u8]], cut: usize| {
            let mut r = Random::new(&[key; 32], what);
            let mut out = [0; 100];
            let (a, b) = out.split_at_mut(cut);
            r.fill(a);
            r.fill(b);
            out
        };
        assert_eq!(take(1, &[b"plan", b"x"], 7), take(1, &[b"plan", b"x"], 50));
        assert_ne!(take(1, &[b"plan", b"x"], 7), take(2, &[b"plan", b"x"], 7));
        assert_ne!(take(1, &[b"ab", b"c"], 7), take(1, &[b"a", b"bc"], 7));
        assert_ne!(take(1, &[b"a"], 7), [0; 100]);
    }
}
