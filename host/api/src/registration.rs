//! Registration with a control plane, where the operator asked for it: tell it which pairs this host handles, until
//! it has answered; again when the pairs change. Nothing else is ever sent there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sutler_dispatch::Provisioner;
use sutler_model::{Pair, Secret};
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use crate::ApiError;

/// `[register]` of sutler.toml.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RegisterConfig {
    /// The control plane; `/provisioners` is added to it.
    pub control_plane: String,
    /// Where the control plane reaches this host, with the base path.
    pub public_url: String,
    /// The bearer token that the control plane asks for. Better given by environment than by file.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub token: Option<Secret>,
    /// What this host is called there.
    #[serde(default = "default_name")]
    pub name: String,
}

fn default_name() -> String {
    "sutler".into()
}

const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often the pairs are compared with what was registered.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The most of an answer that is read.
const MAX_ANSWER: usize = 64 * 1024;

#[derive(Serialize)]
struct Body<'a> {
    name: &'a str,
    url: &'a str,
    handles: Vec<HandleBody>,
}

#[derive(Serialize)]
struct HandleBody {
    kind: String,
    #[serde(rename = "type")]
    type_name: String,
}

/// What one attempt came to.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Registered,
    /// Somebody else has these.
    Taken(Vec<Pair>),
    Again(String),
}

/// The registration of one host.
pub struct Register {
    config: RegisterConfig,
    endpoint: Url,
    client: reqwest::Client,
    provisioner: Arc<dyn Provisioner>,
    lost: BTreeSet<Pair>,
    first_pause: Duration,
    look_every: Duration,
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Register")
            .field("config", &self.config)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl Register {
    /// # Errors
    /// `ApiError::Register` for an address that cannot be used.
    pub fn new(config: RegisterConfig, provisioner: Arc<dyn Provisioner>) -> Result<Self, ApiError> {
        let mut endpoint = address("control-plane", &config.control_plane)?;
        address("public-url", &config.public_url)?;
        let path = format!("{}/provisioners", endpoint.path().trim_end_matches('/'));
        endpoint.set_path(&path);
        // The first to install one decides; every part of this host installs the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            // A token must not follow a redirect to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("sutler/", env!("CARGO_PKG_VERSION")))
            .build()?;
        if endpoint.scheme() == "http" && config.token.is_some() && !loopback(&endpoint) {
            tracing::warn!(
                event = "register-in-the-clear",
                "the token of [register] goes over plain http; use https"
            );
        }
        Ok(Self {
            config,
            endpoint,
            client,
            provisioner,
            lost: BTreeSet::new(),
            first_pause: FIRST_PAUSE,
            look_every: LOOK_EVERY,
        })
    }

    /// Other pauses, for tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_pauses(mut self, first: Duration, look_every: Duration) -> Self {
        self.first_pause = first;
        self.look_every = look_every;
        self
    }

    /// Registers, and again when the pairs change, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut registered: Option<BTreeSet<Pair>> = None;
        loop {
            let pairs = self.pairs();
            // A host that never had a pair has nothing to say.
            let news = registered.as_ref().map_or(!pairs.is_empty(), |r| *r != pairs);
            if news {
                tokio::select! {
                    () = stop.cancelled() => return,
                    told = self.until_answered() => registered = Some(told),
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.look_every) => {}
            }
        }
    }

    /// What this host handles, without what the control plane gave to somebody else.
    fn pairs(&self) -> BTreeSet<Pair> {
        self.provisioner.handles().into_iter().map(|h| h.pair).filter(|p| !self.lost.contains(p)).collect()
    }

    /// Answers the pairs that the control plane took.
    async fn until_answered(&mut self) -> BTreeSet<Pair> {
        let mut pause = self.first_pause;
        loop {
            let pairs = self.pairs();
            match self.attempt(&pairs).await {
                Attempt::Registered => {
                    tracing::info!(event = "registered", control_plane = %self.endpoint, pairs = pairs.len());
                    return pairs;
                }
                Attempt::Taken(taken) => {
                    for pair in taken {
                        tracing::error!(event = "pair-taken", %pair, control_plane = %self.endpoint, "another provisioner has this pair; this host answers pair-not-handled for it");
                        self.provisioner.lose_pair(&pair);
                        self.lost.insert(pair);
                    }
                    // The rest goes at once. Each round loses at least one pair, so this ends.
                }
                Attempt::Again(reason) => {
                    let wait = jittered(pause);
                    tracing::warn!(event = "not-registered", control_plane = %self.endpoint, reason, next_ms = wait.as_millis());
                    tokio::time::sleep(wait).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn attempt(&self, pairs: &BTreeSet<Pair>) -> Attempt {
        let handle = |p: &Pair| HandleBody { kind: p.kind.to_string(), type_name: p.type_name.to_string() };
        let body = Body {
            name: &self.config.name,
            url: &self.config.public_url,
            handles: pairs.iter().map(handle).collect(),
        };
        let mut request = self.client.post(self.endpoint.clone()).json(&body);
        if let Some(token) = &self.config.token {
            request = request.bearer_auth(token.expose());
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(e) => return Attempt::Again(format!("no answer: {}", e.without_url())),
        };
        let status = response.status();
        if status.is_success() {
            return Attempt::Registered;
        }
        if status != StatusCode::CONFLICT {
            return Attempt::Again(format!("it answered {status}"));
        }
        let taken = match small_json(response).await {
            Some(answer) => taken(&answer, pairs),
            None => return Attempt::Again("it answered 409 without saying why".into()),
        };
        match (taken, pairs.iter().next()) {
            (Some(taken), Some(only)) if taken.is_empty() && pairs.len() == 1 => {
                Attempt::Taken(vec![only.clone()])
            }
            (Some(taken), _) if !taken.is_empty() => Attempt::Taken(taken),
            (Some(_), _) => Attempt::Again("it answered pair-taken without one of this host's pairs".into()),
            (None, _) => Attempt::Again("it answered 409, but not pair-taken".into()),
        }
    }
}

/// Of the pairs offered, those that an answer of `pair-taken` names; `None` for another code. It takes
/// `{"error":{"code","pairs":[…]}}` and the same without `error`; a pair is `{"kind","type"}` or `"kind/type"`.
fn taken(answer: &Value, offered: &BTreeSet<Pair>) -> Option<Vec<Pair>> {
    let detail = answer.get("error").filter(|e| e.is_object()).unwrap_or(answer);
    if detail.get("code")?.as_str()? != "pair-taken" {
        return None;
    }
    let one = |v: &Value| match v {
        Value::String(s) => s.parse().ok(),
        v => format!("{}/{}", v.get("kind")?.as_str()?, v.get("type")?.as_str()?).parse::<Pair>().ok(),
    };
    let listed = [detail, answer].into_iter().flat_map(|d| {
        let many = d.get("pairs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        many.iter().chain(d.get("pair"))
    });
    let found: BTreeSet<Pair> = listed.filter_map(one).filter(|p| offered.contains(p)).collect();
    Some(found.into_iter().collect())
}

async fn small_json(mut response: reqwest::Response) -> Option<Value> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if bytes.len() + chunk.len() > MAX_ANSWER {
            return None;
        }
        bytes.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&bytes).ok()
}

/// Half to all of the pause, so that hosts that lost a control plane together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let (_, random) = Uuid::new_v4().as_u64_pair();
    pause / 2 + pause.mul_f64((random % 1000) as f64 / 2000.0)
}

fn address(key: &'static str, text: &str) -> Result<Url, ApiError> {
    let bad = |rule: String| ApiError::Register { key, rule };
    let url = Url::parse(text).map_err(|e| bad(format!("{e}; write it as https://host/path")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad("write it as https://host/path".into()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("it has a user or a password; use register.token".into()));
    }
    Ok(url)
}

fn loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(d)) => d == "localhost",
        Some(url::Host::Ipv4(a)) => a.is_loopback(),
        Some(url::Host::Ipv6(a)) => a.is_loopback(),
        None => false,
    }
}
