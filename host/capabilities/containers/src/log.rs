//! A container's log, for those who follow it.

use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use sutler_model::{Call, Effective};

use crate::capability::Named;
use crate::spec::check_name;
use crate::{Containers, Error, Grants, grant};

/// One container of an owner, by name: the same after it was replaced.
#[derive(Debug, Clone)]
pub struct Log {
    containers: Containers,
    call: Call,
    name: String,
}

/// What is read of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub follow: bool,
    /// Seconds since 1970; Docker serves from this second on.
    pub since: Option<i64>,
    pub tail: Option<u64>,
}

/// How the container is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Now {
    Gone,
    /// It runs, or will again without anybody's doing.
    Lives {
        id: String,
    },
    /// It has ended, or was not started yet.
    Still {
        id: String,
    },
}

impl Containers {
    /// # Errors
    /// `NotGranted`, before anything is sent.
    pub fn log(&self, call: &Call, grants: &Effective<Grants>, name: &str) -> Result<Log, Error> {
        check_name(name)?;
        grant::name(grants, name, &call.owner)?;
        Ok(Log { containers: self.clone(), call: call.clone(), name: name.to_owned() })
    }
}

impl Log {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// What the daemon says.
    pub async fn now(&self) -> Result<Now, Error> {
        // A stream outlives the call that opened it.
        let call = Call { deadline: Instant::now() + Duration::from_secs(30), ..self.call.clone() };
        Ok(match self.containers.look(&call, &self.name).await? {
            Named::Nobody | Named::Foreign => Now::Gone,
            Named::Ours(f) if f.status.running || f.status.restarting => Now::Lives { id: f.id },
            Named::Ours(f) => Now::Still { id: f.id },
        })
    }

    /// Pieces of lines, and whether each was written to stderr. A piece begins with its time (RFC 3339) and a space; the
    /// last one of a line ends with a newline.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn read(
        &self,
        id: &str,
        query: &LogQuery,
    ) -> Result<BoxStream<'static, Result<(bool, Bytes), Error>>, Error> {
        let options = LogsOptions {
            follow: query.follow,
            stdout: true,
            stderr: true,
            timestamps: true,
            since: query.since.and_then(|s| i32::try_from(s).ok()).unwrap_or_default(),
            tail: query.tail.map_or_else(|| "all".to_owned(), |n| n.to_string()),
            ..LogsOptions::default()
        };
        let doing = format!("read the log of {}", self.name);
        let frames = self.containers.daemon.client().await?.logs(id, Some(options));
        let piece = |frame: LogOutput| (matches!(frame, LogOutput::StdErr { .. }), frame.into_bytes());
        Ok(frames.map_ok(piece).map_err(move |e| Error::of(&doing, e)).boxed())
    }
}
