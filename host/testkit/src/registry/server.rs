//! The registry as tests hold it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;

use super::auth::{Auth, Tokens};
use super::chart::{Chart, ChartError, find, package};
use super::fault::Fault;
use super::serve::handle;
use super::store::Contents;
use crate::net::{ANY_PORT, Server};
use crate::tls::TestAuthority;

/// How a registry is started.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    pub auth: Auth,
    /// With a certificate of an authority of its own: [`Registry::ca_pem`].
    pub tls: bool,
    pub listen: SocketAddr,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self { auth: Auth::None, tls: false, listen: ANY_PORT }
    }
}

/// What is wrong with the registry until [`Registry::behave`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Blobs are not what their digest says.
    WrongDigest,
    /// A manifest asked for by digest is another one's.
    WrongManifest,
    /// Blobs are gone.
    DropBlob,
    /// Blobs break off in the middle.
    Truncate,
    /// Blobs are somewhere else: 307 to this prefix and the path. Under its own `/elsewhere` the registry serves
    /// blobs to anybody, so that a test sees which headers followed.
    Redirect(String),
    /// Every answer is this status.
    Status(u16),
    /// Every answer comes this much later.
    Delay(Duration),
    /// A web server that is no OCI registry.
    NotARegistry,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    pub authorization: Option<String>,
}

/// A chart as it was pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// `oci://HOST:PORT/REPOSITORY`
    pub url: String,
    pub tag: String,
    /// Of the manifest: `sha256:…`.
    pub digest: String,
}

/// Decides which requests get another answer.
pub(crate) type Faults = Arc<dyn Fn(&RegistryRequest) -> Option<Fault> + Send + Sync>;

/// What the handlers share.
pub(crate) struct Shared {
    pub(crate) auth: Auth,
    pub(crate) base: Mutex<String>,
    pub(crate) contents: Mutex<Contents>,
    pub(crate) tokens: Mutex<Tokens>,
    pub(crate) seen: Mutex<Vec<RegistryRequest>>,
    pub(crate) wrong: Mutex<Option<Misbehaviour>>,
    pub(crate) faults: Mutex<Option<Faults>>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registry on a loopback port, for as long as this lives.
pub struct Registry {
    shared: Arc<Shared>,
    server: Server,
    ca: Option<String>,
}

impl Registry {
    /// # Panics
    /// When the address cannot be had.
    #[expect(clippy::expect_used, reason = "a test that cannot have a port cannot go on")]
    pub async fn start(options: RegistryOptions) -> Self {
        Self::try_start(options).await.expect("an address for the test registry")
    }

    /// # Errors
    /// When the address cannot be had.
    pub async fn try_start(options: RegistryOptions) -> io::Result<Self> {
        let authority = options.tls.then(TestAuthority::new);
        let tls = authority.as_ref().map(|a| a.issue(&["127.0.0.1", "localhost"]).server_config());
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            auth: options.auth,
            base: Mutex::default(),
            contents: Mutex::default(),
            tokens: Mutex::default(),
            seen: Mutex::default(),
            wrong: Mutex::default(),
            faults: Mutex::default(),
        });
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let server = Server::start(options.listen, tls, router).await?;
        *locked(&shared.base) = format!("{scheme}://{}", server.address);
        Ok(Self { shared, server, ca: authority.map(|a| a.pem().to_owned()) })
    }

    /// A plain registry of every chart folder in a folder, each as `charts/NAME`.
    ///
    /// # Errors
    /// When a chart cannot be read or there is none.
    ///
    /// # Panics
    /// When the loopback interface gives no port.
    pub async fn serve_folder(folder: &Path) -> Result<Self, ChartError> {
        let registry = Self::start(RegistryOptions::default()).await;
        registry.push_folder(folder)?;
        Ok(registry)
    }

    /// Pushes every chart folder in a folder, each as `charts/NAME`.
    ///
    /// # Errors
    /// When a chart cannot be read or there is none.
    pub fn push_folder(&self, folder: &Path) -> Result<Vec<Pushed>, ChartError> {
        let push = |chart: &std::path::PathBuf| {
            let chart = Chart::of_archive(package(chart)?)?;
            Ok(self.push(&format!("charts/{}", chart.name), chart))
        };
        find(folder)?.iter().map(push).collect()
    }

    /// Packages a chart's folder and pushes it into a repository.
    ///
    /// # Errors
    /// When the folder is no chart or cannot be read.
    pub fn push_chart(&self, folder: &Path, repository: &str) -> Result<Pushed, ChartError> {
        self.push_archive(package(folder)?, repository)
    }

    /// Pushes a chart's archive (tar.gz) into a repository.
    ///
    /// # Errors
    /// When the archive is no chart.
    pub fn push_archive(&self, archive: Vec<u8>, repository: &str) -> Result<Pushed, ChartError> {
        Ok(self.push(repository, Chart::of_archive(archive)?))
    }

    fn push(&self, repository: &str, chart: Chart) -> Pushed {
        let (digest, tag) = locked(&self.shared.contents).push_chart(repository, chart);
        Pushed { url: format!("oci://{}/{repository}", self.host()), tag, digest }
    }

    /// Puts any manifest under a tag: other artifacts, other media types. The blobs go through [`Self::push_blob`].
    pub fn push_manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        bytes: impl Into<Bytes>,
    ) -> String {
        locked(&self.shared.contents).push_manifest(repository, tag, media_type, bytes.into())
    }

    /// Puts a blob; its digest.
    pub fn push_blob(&self, repository: &str, bytes: Vec<u8>) -> String {
        locked(&self.shared.contents).push_blob(repository, bytes)
    }

    /// `127.0.0.1:PORT`
    pub fn host(&self) -> String {
        self.server.address.to_string()
    }

    /// `http://127.0.0.1:PORT`, or https.
    pub fn url(&self) -> String {
        locked(&self.shared.base).clone()
    }

    /// The certificate of the authority behind a registry with TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    pub fn misbehave(&self, how: Misbehaviour) {
        *locked(&self.shared.wrong) = Some(how);
    }

    /// Answers as this says where it says something, until [`Self::behave`].
    pub fn answer_with(&self, faults: impl Fn(&RegistryRequest) -> Option<Fault> + Send + Sync + 'static) {
        *locked(&self.shared.faults) = Some(Arc::new(faults));
    }

    pub fn behave(&self) {
        *locked(&self.shared.wrong) = None;
        *locked(&self.shared.faults) = None;
    }

    /// What arrived so far.
    pub fn requests(&self) -> Vec<RegistryRequest> {
        locked(&self.shared.seen).clone()
    }

    pub fn forget_requests(&self) {
        locked(&self.shared.seen).clear();
    }

    /// How many tokens were given out.
    pub fn tokens_issued(&self) -> usize {
        locked(&self.shared.tokens).issued
    }
}
