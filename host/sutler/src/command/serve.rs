//! `sutler serve`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sutler_access::Access;
use sutler_api::{Api, Register, RegisterConfig, Server, ServerOptions, admin_router, router};
use sutler_dispatch::Provisioner;
use tokio_util::sync::CancellationToken;

use super::ConfigFile;
use crate::config::Config;
use crate::ledger::Purpose;
use crate::{host, instances, telemetry};

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    file: ConfigFile,
    /// Register with this control plane at start (POST URL/provisioners)
    #[arg(long, value_name = "URL", requires = "public_url")]
    register: Option<String>,
    /// Where the control plane reaches this host
    #[arg(long, value_name = "URL", requires = "register")]
    public_url: Option<String>,
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut config = self.file.load()?;
        if let (Some(control_plane), Some(public_url)) = (self.register, self.public_url) {
            let before = config.register.take();
            let token = before.as_ref().and_then(|r| r.token.clone());
            let name = before.map_or_else(|| "sutler".into(), |r| r.name);
            config.register = Some(RegisterConfig { control_plane, public_url, token, name });
        }
        telemetry::logs(&config.log, false)?;
        for notice in &config.legacy {
            tracing::warn!(event = "legacy-variable", variable = notice.variable, "{notice}");
        }
        for notice in instances::notices(&config) {
            tracing::warn!(event = "shared-namespaces", "{notice}");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let code = runtime.block_on(serve(config));
        // A compilation that is under way cannot be interrupted, and nobody needs its result any more.
        runtime.shutdown_timeout(Duration::from_millis(200));
        code
    }
}

/// How long a call of a step may still take once the requests have ended.
const STEP_GRACE: Duration = Duration::from_secs(2);

async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    let metrics = telemetry::metrics()?;
    let access = Access::new(&config.access, &config.instance_access())?;
    access.listen_rule(config.server.listen)?;
    access.admin_listen_rule(config.server.admin_listen)?;
    // Addresses first: a second host on the same port is told before anything is compiled.
    let options = ServerOptions::from(&config.api);
    let public = Server::bind(config.server.listen, config.server.tls.clone(), options.clone())?;
    let admin = Server::bind(config.server.admin_listen, None, options)?;
    if access.callers_open() {
        tracing::warn!(
            event = "open",
            "no caller token is configured: listening on loopback only; make one with: sutler token new"
        );
    }
    let ledger = config.ledger.open(Purpose::Serve).await?;
    let host = host::build(&config, config.catalog.clone(), ledger).await?;
    let snapshot = host.dispatcher.catalog().reload().await.map_err(anyhow::Error::msg)?;
    tracing::info!(event = "plugins", files = snapshot.files.len(), pairs = snapshot.pairs().len());
    // Jobs of before go on as soon as their plugins are there.
    host.dispatcher.operations().start();
    let provisioner: Arc<dyn Provisioner> = Arc::new(host.dispatcher.clone());
    let api = Api::new(provisioner.clone(), access, config.api.clone(), Some(metrics))?;
    let stop = CancellationToken::new();
    tokio::spawn(signals(stop.clone()));
    let registration = match config.register {
        Some(r) => Some(tokio::spawn(Register::new(r, provisioner)?.run(stop.clone()))),
        None => None,
    };
    let gauges = tokio::spawn(gauges(host.runtime.clone(), stop.clone()));
    tracing::info!(event = "listening", address = %public.address(), admin = %admin.address(), tls = config.server.tls.is_some());
    let (served, operated) = tokio::join!(
        public.run(router(&api), &api, stop.clone()),
        admin.run(admin_router(&api), &api, stop.clone())
    );
    let unfinished = served?.len() + operated?.len();
    // What runs beyond is given back to the ledger, so that another host, or the next start, goes on at once.
    let applies = host.dispatcher.operations().stop(STEP_GRACE).await;
    stop.cancel();
    if let Some(r) = registration {
        let _ = r.await;
    }
    let _ = gauges.await;
    tracing::info!(event = "stopped", unfinished_requests = unfinished, unfinished_jobs = applies);
    Ok(if unfinished + applies == 0 { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

async fn signals(stop: CancellationToken) {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut s) => {
                s.recv().await;
            }
            // Without it SIGINT still stops the host.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminate => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!(event = "stopping");
    stop.cancel();
}

/// What is measured by looking.
async fn gauges(runtime: Arc<sutler_runtime::Runtime>, stop: CancellationToken) {
    let every = Duration::from_secs(5);
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        metrics::gauge!("sutler_sandboxes_in_use").set(runtime.engine().sandboxes_in_use() as f64);
    }
}
