//! What all routes share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics_exporter_prometheus::PrometheusHandle;
use sutler_access::Access;
use sutler_dispatch::Provisioner;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::in_flight::{InFlight, Running};
use crate::share::Shares;
use crate::{ApiConfig, ApiError};

/// The HTTP side of one host. Cheap to clone; both routers and every listener share one.
#[derive(Clone)]
pub struct Api {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) provisioner: Arc<dyn Provisioner>,
    pub(crate) access: ArcSwap<Access>,
    pub(crate) config: ApiConfig,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) event_streams: Arc<Semaphore>,
    pub(crate) shares: Shares,
    pub(crate) stopping: CancellationToken,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Api {
    /// `metrics`: what `GET /metrics` shows; without it the route answers 404.
    ///
    /// # Errors
    /// `ApiError::Config` for a configuration that cannot be used.
    pub fn new(
        provisioner: Arc<dyn Provisioner>,
        access: Access,
        config: ApiConfig,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Self, ApiError> {
        config.check()?;
        crate::edge::describe_metrics();
        let inner = Inner {
            provisioner,
            access: ArcSwap::from_pointee(access),
            metrics,
            in_flight: Arc::default(),
            requests: Arc::new(Semaphore::new(config.max_concurrent_requests)),
            streams: Arc::new(Semaphore::new(config.max_log_streams)),
            event_streams: Arc::new(Semaphore::new(config.max_event_streams)),
            shares: Shares::new(&config),
            stopping: CancellationToken::new(),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Other tokens from now on. The caller checks the listen rules first: an open host stays on loopback.
    pub fn set_access(&self, access: Access) {
        self.inner.access.store(Arc::new(access));
    }

    /// The requests that run now, the longest first.
    pub fn running(&self) -> Vec<Running> {
        self.inner.in_flight.list()
    }

    /// Ends streams and answers `Connection: close` from now on; [`crate::Server::run`] does it when it is told to stop.
    pub fn stop(&self) {
        self.inner.stopping.cancel();
    }
}
