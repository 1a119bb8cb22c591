//! How many requests a second one cluster gets from this host, shared fairly between plugins: while requests have
//! to wait, each plugin's turn comes once a round, however many it has waiting.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// A token bucket with one queue a plugin.
pub(crate) struct Rate {
    /// Tokens a second.
    rate: f64,
    /// The most tokens that are saved up.
    burst: f64,
    state: Mutex<State>,
}

struct State {
    tokens: f64,
    at: Instant,
    /// Plugins that wait, the next one first.
    waiting: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<()>>)>,
    /// Whether a task hands out tokens to those that wait.
    pumped: bool,
}

impl Rate {
    /// Requests a second, and how many may come at once after a pause. 0 a second is no limit.
    pub(crate) fn new(per_second: u32, burst: u32) -> Option<Arc<Self>> {
        let burst = f64::from(burst.max(1));
        let state = State { tokens: burst, at: Instant::now(), waiting: VecDeque::new(), pumped: false };
        (per_second > 0).then(|| Arc::new(Self { rate: per_second.into(), burst, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let earned = now.duration_since(state.at).as_secs_f64() * self.rate;
        state.tokens = (state.tokens + earned).min(self.burst);
        state.at = now;
        state
    }

    /// Waits for a turn. Whoever stops waiting takes none.
    pub(crate) async fn turn(self: &Arc<Self>, plugin: &Arc<str>) {
        let turn = {
            let mut state = self.state();
            if state.waiting.is_empty() && state.tokens >= 1.0 {
                state.tokens -= 1.0;
                return;
            }
            let (give, turn) = oneshot::channel();
            match state.waiting.iter_mut().find(|(p, _)| p == plugin) {
                Some((_, queue)) => queue.push_back(give),
                None => state.waiting.push_back((plugin.clone(), VecDeque::from([give]))),
            }
            if !std::mem::replace(&mut state.pumped, true) {
                tokio::spawn(self.clone().pump());
            }
            turn
        };
        // The pump goes on while anybody waits, so a turn always comes; a lost one must not stop the request.
        let _ = turn.await;
    }

    /// Gives each token to the next plugin until nobody waits.
    async fn pump(self: Arc<Self>) {
        loop {
            let pause = {
                let mut state = self.state();
                while state.tokens >= 1.0 {
                    let Some((plugin, mut queue)) = state.waiting.pop_front() else { break };
                    let taken = queue.pop_front().is_some_and(|give| give.send(()).is_ok());
                    if !queue.is_empty() {
                        // One that left used up no turn.
                        if taken {
                            state.waiting.push_back((plugin, queue));
                        } else {
                            state.waiting.push_front((plugin, queue));
                        }
                    }
                    if taken {
                        state.tokens -= 1.0;
                    }
                }
                if state.waiting.is_empty() {
                    state.pumped = false;
                    return;
                }
                Duration::from_secs_f64((1.0 - state.tokens).max(0.0) / self.rate)
            };
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn a_plugin_with_many_requests_does_not_starve_one_with_few() {
        let rate = Rate::new(10, 1).unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        let ask = |plugin: &str, n: usize| {
            for _ in 0..n {
                let (rate, tell, plugin): (_, _, Arc<str>) = (rate.clone(), tell.clone(), plugin.into());
                tokio::spawn(async move {
                    rate.turn(&plugin).await;
                    let _ = tell.send(plugin);
                });
            }
        };
        ask("many", 50);
        tokio::time::sleep(Duration::from_millis(150)).await;
        ask("few", 3);
        let began = Instant::now();
        let mut order = Vec::new();
        while order.iter().filter(|p: &&Arc<str>| &***p == "few").count() < 3 {
            order.push(told.recv().await.unwrap());
        }
        // Two came before the few asked; from then on every second turn is theirs.
        assert!(order.len() <= 9, "{order:?}");
        assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
        let mut rest = 0;
        while rest + order.len() < 53 {
            told.recv().await.unwrap();
            rest += 1;
        }
        let whole = began.elapsed() + Duration::from_millis(150);
        assert!(
            (Duration::from_millis(5_100)..Duration::from_millis(5_600)).contains(&whole),
            "53 requests at 10 a second after one at once: {whole:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_takes_no_turn() {
        let rate = Rate::new(1, 1).unwrap();
        let plugin: Arc<str> = "a".into();
        rate.turn(&plugin).await;
        for _ in 0..100 {
            let gone = tokio::time::timeout(Duration::from_millis(1), rate.turn(&plugin)).await;
            assert!(gone.is_err());
        }
        let began = Instant::now();
        rate.turn(&plugin).await;
        assert!(began.elapsed() <= Duration::from_millis(1_100), "{:?}", began.elapsed());
        assert!(Rate::new(0, 5).is_none(), "0 is no limit");
    }
}
