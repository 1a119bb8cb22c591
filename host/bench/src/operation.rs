//! `GET /operations/{id}` again and again, against a bare handler that reads the same row of the same file by the
//! same statement, opens the answer and renders the same JSON.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::{Path as Id, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use hyper::Method;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use sutler_access::Access;
use sutler_api::{Api, ApiConfig, Server, ServerOptions, router};
use sutler_jobs::{Operations, OperationsConfig};
use sutler_ledger::{Filter, JobId, Keys, Ledger, Sqlite, SqliteOptions};
use tokio_util::sync::CancellationToken;

use crate::durable::{AtOnce, new};
use crate::load::{self, Ask};
use crate::{Row, median, plan};

/// Operations beside the one that is read.
const BESIDE: u64 = 200;
/// Many short rounds, so that what else the machine does meets both.
const ROUNDS: usize = 15;
const TIME: Duration = Duration::from_millis(700);

pub(crate) async fn run() -> Result<Row> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("ledger.db");
    let keys = Keys::open_or_make(&folder.path().join("ledger.key"), &file)?;
    let ledger: Arc<dyn Ledger> = Arc::new(Sqlite::open(&file, keys.clone(), SqliteOptions::default())?);
    let id = fill(&ledger).await?;
    let dispatcher = plan::dispatcher(folder.path(), ledger).await?;
    let config = ApiConfig::default();
    let api = Api::new(Arc::new(dispatcher), Access::open(), config.clone(), None)?;
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None, ServerOptions::from(&config))?;
    let (ours, stop) = (server.address(), CancellationToken::new());
    let (app, its, ends) = (router(&api), api.clone(), stop.clone());
    let serving = tokio::spawn(async move { server.run(app, &its, ends).await });
    let bare = plan::serve(Bare::new(&file, keys).router()).await?;
    let ask = Ask {
        method: Method::GET,
        path: format!("/operations/{id}"),
        body: Bytes::new(),
        begins: "{\"status\":\"done\",\"operationId\":\"op_",
    };
    same(ours, bare, &ask.path).await?;
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let (a, a50) = load::rate(ours, &ask, TIME).await?;
        let (b, b50) = load::rate(bare, &ask, TIME).await?;
        println!(
            "operation, round {round}: sutler {a:.0}/s p50 {a50:?}, bare axum {b:.0}/s p50 {b50:?}, ratio {:.3}",
            a / b
        );
        if round > 0 {
            ratios.push(a / b);
        }
    }
    stop.cancel();
    serving.await??;
    let ratio = median(&mut ratios);
    Ok(Row {
        what: "GET /operations/{id} ÷ bare axum handler on the same file",
        value: ratio,
        unit: "",
        wanted: ">= 0.8",
        met: ratio >= 0.8,
    })
}

/// Some applies; the id of one in their midst.
async fn fill(ledger: &Arc<dyn Ledger>) -> Result<JobId> {
    let operations = Operations::new(ledger.clone(), Arc::new(AtOnce), &OperationsConfig::default(), "fill")?;
    operations.start();
    for n in 0..BESIDE {
        let mut new = new(n)?;
        // Where nobody has a token.
        new.caller = "anonymous".into();
        operations.begin(new).await?;
    }
    operations.stop(Duration::from_secs(5)).await;
    let filter = Filter { limit: u32::try_from(BESIDE / 2)?, ..Filter::default() };
    let jobs = ledger.jobs(filter).await?;
    let job = jobs.last().context("no operation was made")?;
    ensure!(job.answer.is_some(), "the operation has not ended");
    Ok(job.id.clone())
}

/// Both answer the same.
async fn same(ours: SocketAddr, bare: SocketAddr, path: &str) -> Result<()> {
    let ask = |address| async move {
        let mut answer = Vec::new();
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await?;
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await?;
        let text = String::from_utf8(answer)?;
        anyhow::Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    };
    let (a, b) = (ask(ours).await?, ask(bare).await?);
    ensure!(a == b && !a.is_empty(), "sutler answers {a}, the bare handler {b}");
    Ok(())
}

/// The bare handler: idle connections, and the keys.
#[derive(Clone)]
struct Bare {
    file: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<Connection>>>,
    keys: Keys,
}

/// The whole row, as the ledger reads it.
const SELECT: &str = "SELECT j.*, q.sealed, s.sealed, a.sealed AS answer FROM provisioning_jobs j \
     LEFT JOIN sealed_requests q ON q.job = j.n LEFT JOIN sealed_states s ON s.job = j.n \
     LEFT JOIN sealed_answers a ON a.job = j.n WHERE substr(j.id, -32) = ?2 AND j.id = ?1";

impl Bare {
    fn new(file: &Path, keys: Keys) -> Self {
        Self { file: Arc::new(file.to_owned()), idle: Arc::default(), keys }
    }

    fn router(self) -> Router {
        Router::new().route("/operations/{id}", get(one)).with_state(self)
    }

    /// The answer's JSON as it is stored; `None` for another caller's.
    fn read(&self, id: &JobId) -> Result<Option<Arc<str>>> {
        let taken = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = match taken {
            Some(conn) => conn,
            None => Connection::open_with_flags(&*self.file, flags)?,
        };
        // As sutler's own: otherwise SQLite plans the statement anew each time.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let digits = id.as_str().get(3..).unwrap_or_default();
        let (caller, sealed) = conn.prepare_cached(SELECT)?.query_row([id.as_str(), digits], |r| {
            Ok((r.get::<_, String>("caller")?, r.get::<_, Vec<u8>>("answer")?))
        })?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        let text = self.keys.open_text("answer", id, &sealed)?;
        Ok((caller == "anonymous").then_some(text))
    }
}

async fn one(State(bare): State<Bare>, Id(id): Id<String>) -> Response {
    let missing = StatusCode::NOT_FOUND;
    let Ok(id) = id.parse::<JobId>() else { return missing.into_response() };
    let asked = id.clone();
    let read = tokio::task::spawn_blocking(move || bare.read(&asked)).await;
    let Ok(Ok(Some(text))) = read else { return missing.into_response() };
    match rendered(&id, &text) {
        Some(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The stored answer in the words of the API.
fn rendered(id: &JobId, text: &str) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Stored {
        applied: Vec<Applied>,
    }
    #[derive(serde::Deserialize, serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Applied {
        resource: String,
        outputs: Value,
        secret_outputs: Value,
    }
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        status: &'static str,
        operation_id: &'a str,
        outcome: &'static str,
        resources: Vec<Applied>,
    }
    let stored: Stored = serde_json::from_str(text).ok()?;
    let body =
        Body { status: "done", operation_id: id.as_str(), outcome: "succeeded", resources: stored.applied };
    serde_json::to_vec(&body).ok()
}
