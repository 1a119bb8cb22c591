//! `POST /plan` through a Rust plugin, against a bare handler that does the same.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use axum::Router;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use sutler_access::Access;
use sutler_api::{Api, ApiConfig, Server, ServerOptions, router};
use sutler_catalog::{Catalog, CatalogConfig};
use sutler_dispatch::{Dispatcher, PluginWorker, Provisioner as _};
use sutler_jobs::{Operations, OperationsConfig};
use sutler_ledger::{Clock, Ledger, Memory, Millis};
use sutler_model::{Action, Application, Change, Identifier, Request, RequestId};
use sutler_runtime::{Capabilities, CompileCache, Engine, EngineConfig, Runtime, WasiPolicy};
use sutler_testkit::guest;
use tokio_util::sync::CancellationToken;

use crate::floor::Floor;
use crate::load::Ask;
use crate::native::{Native, Place};
use crate::{Row, load, median};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(2);
/// Calls of the measurement inside the host.
const CALLS: usize = 50_000;

fn settings() -> Value {
    json!({"size": 3, "zones": ["a", "b"], "owner": "team-a"})
}

fn body() -> Bytes {
    let body = json!({
        "requestId": "bench-1", "kind": "tool", "type": "pure",
        "application": {"id": "orders", "environment": "prod", "tenant": "acme", "instance": null},
        "changes": [{"resource": "main", "action": "update", "settings": settings()}],
    });
    body.to_string().into()
}

pub(crate) async fn dispatcher(folder: &std::path::Path, ledger: Arc<dyn Ledger>) -> Result<Dispatcher> {
    let plugins = folder.join("plugins");
    std::fs::create_dir(&plugins)?;
    std::fs::copy(guest("pure"), plugins.join("pure.wasm"))?;
    let cache = CompileCache::open(&folder.join("cache"))?;
    let engine = Engine::new(EngineConfig::default())?;
    let runtime = Arc::new(Runtime::new(engine, cache, Capabilities::default(), WasiPolicy::Empty)?);
    let catalog = Catalog::new(
        runtime,
        CatalogConfig { dir: plugins },
        BTreeMap::new(),
        BTreeMap::new(),
        BTreeMap::new(),
        BTreeMap::new(),
    );
    let snapshot = catalog.reload().await.map_err(|e| anyhow!(e))?;
    ensure!(
        snapshot.pairs().len() == 1,
        "the plugin was not loaded: {:?}",
        snapshot.files.values().map(|f| &f.reason).collect::<Vec<_>>()
    );
    let catalog = Arc::new(catalog);
    let worker = Arc::new(PluginWorker::new(catalog.clone(), ledger.clone()));
    let operations = Operations::new(ledger.clone(), worker, &OperationsConfig::default(), "bench")?;
    Ok(Dispatcher::new(catalog, operations, ledger, None, [7; 32], BTreeMap::new(), vec![]))
}

fn forgetful() -> Arc<dyn Ledger> {
    Arc::new(Memory::new(Clock::steady(Millis(0))))
}

/// A bare handler's address.
pub(crate) async fn serve(app: Router) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(
        axum::serve(axum::serve::ListenerExt::tap_io(listener, |s| drop(s.set_nodelay(true))), app)
            .into_future(),
    );
    Ok(address)
}

/// The host, the bare handler and the bare handler with a bare sandbox, over loopback in turn.
pub(crate) async fn over_http() -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let dispatcher = dispatcher(folder.path(), forgetful()).await?;
    let native = native(&dispatcher, Place::Here)?;
    let sandboxed = native_in_sandbox(&dispatcher)?;
    let api = Api::new(Arc::new(dispatcher.clone()), Access::open(), ApiConfig::default(), None)?;
    let config = ApiConfig::default();
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None, ServerOptions::from(&config))?;
    let ours = server.address();
    let stop = CancellationToken::new();
    let (app, its, ends) = (router(&api), api.clone(), stop.clone());
    let serving = tokio::spawn(async move { server.run(app, &its, ends).await });
    let (bare, floor) = (serve(native.router()).await?, serve(sandboxed.router()).await?);
    let ask =
        Ask { method: Method::POST, path: "/plan".into(), body: body(), begins: "{\"outcome\":\"planned\"" };
    let (mut ratios, mut floors) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (a, a50) = load::rate(ours, &ask, TIME).await?;
        let (b, b50) = load::rate(bare, &ask, TIME).await?;
        let (f, f50) = load::rate(floor, &ask, TIME).await?;
        println!(
            "plan, round {round}: sutler {a:.0}/s p50 {a50:?}, bare axum {b:.0}/s p50 {b50:?}, bare axum and bare \
             sandbox {f:.0}/s p50 {f50:?}; sutler ÷ bare {:.3}, sutler ÷ bare with sandbox {:.3}",
            a / b,
            a / f
        );
        // The first warms all up.
        if round > 0 {
            ratios.push(a / b);
            floors.push(a / f);
        }
    }
    stop.cancel();
    serving.await??;
    let (ratio, floor) = (median(&mut ratios), median(&mut floors));
    Ok(vec![
        Row {
            what: "POST /plan through a Rust plugin ÷ bare axum handler",
            value: ratio,
            unit: "",
            wanted: ">= 0.7",
            met: ratio >= 0.7,
        },
        Row {
            what: "POST /plan ÷ bare axum handler that runs it in a bare sandbox",
            value: floor,
            unit: "",
            wanted: ">= 0.7",
            met: floor >= 0.7,
        },
    ])
}

fn native_in_sandbox(dispatcher: &Dispatcher) -> Result<Native> {
    let floor = Floor::new(Engine::new(EngineConfig::default())?, &guest("pure"))?;
    native(dispatcher, Place::Sandbox(floor))
}

fn native(dispatcher: &Dispatcher, place: Place) -> Result<Native> {
    let handles = dispatcher.handles();
    let schema = &handles.first().context("a pair")?.settings_schema;
    Ok(Native::new(jsonschema::validator_for(schema).map_err(|e| anyhow!(e.to_string()))?, place))
}

/// What the host adds to the work: the median of plans through it, one after the other and without HTTP, less the
/// median of the same work done natively; and how much of that is the sandbox, by the same work in a bare one.
pub(crate) async fn inside() -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let dispatcher = dispatcher(folder.path(), forgetful()).await?;
    let native = native(&dispatcher, Place::Here)?;
    let sandboxed = native_in_sandbox(&dispatcher)?;
    let request = request()?;
    let asked = Native::parse(&body())?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..CALLS {
        let r = request.clone();
        let began = Instant::now();
        let out = dispatcher.plan(r).await.map_err(|e| anyhow!(e.to_string()))?;
        times[0].push(began.elapsed().as_secs_f64() * 1e6);
        ensure!(out.is_ok(), "{out:?}");
        for (peer, times) in [&native, &sandboxed].into_iter().zip(&mut times[1..]) {
            let began = Instant::now();
            let out = peer.plan(&asked).await;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            ensure!(out.is_some(), "the peer's work failed");
        }
    }
    let [ours, native, floor] = times.map(|mut t| median(&mut t));
    println!(
        "inside: a plan takes {ours:.1} µs without HTTP, its work done natively {native:.1} µs, in a bare sandbox {floor:.1} µs"
    );
    let row = |what, value| Row { what, value, unit: "µs", wanted: "<= 15", met: value <= 15.0 };
    Ok(vec![
        row("what the host adds to a plan, p50 (look up, checks, sandbox)", ours - native),
        row("of which beside the bare sandbox", ours - floor),
    ])
}

fn request() -> Result<Request> {
    let id = |s: &str| Identifier::parse(s).map_err(anyhow::Error::from);
    Ok(Request {
        id: RequestId::parse("bench-1")?,
        pair: "tool/pure".parse()?,
        application: Application {
            id: id("orders")?,
            environment: id("prod")?,
            tenant: Some(id("acme")?),
            instance: None,
        },
        changes: vec![Change {
            resource: id("main")?,
            action: Action::Update,
            settings: Some(settings()),
            previous_settings: None,
            previous_outputs: None,
        }],
    })
}
