//! What a reader tells of lines that it could not read.

use super::Reader;
use crate::LogLine;
use crate::line::Cause;
use crate::output::{Closed, Item};

impl Reader {
    pub(super) async fn rotated(&mut self, next: String) -> Result<(), Closed> {
        self.same_file = false;
        let why = if self.follower.is_some() {
            "the log was rotated before this reader came to it"
        } else {
            "the log was rotated while the connection was cut"
        };
        self.gap(Some(next), Cause::Rotated, why.into()).await
    }

    pub(super) async fn gap(
        &mut self,
        to: Option<String>,
        cause: Cause,
        reason: String,
    ) -> Result<(), Closed> {
        cause.count();
        let from = self.resume.last().map(str::to_owned);
        let (pod, container) = (self.pod.clone(), self.container.clone());
        let line = LogLine::Gap { pod, container, from, to, reason };
        self.pending.push(Item::Gap { line, after: self.resume.last_nanos() });
        self.deliver().await
    }

    /// One gap until lines come again.
    pub(super) async fn gap_once(&mut self, reason: String) -> Result<(), Closed> {
        if self.gap_told {
            return Ok(());
        }
        self.gap_told = true;
        self.gap(None, Cause::Unreadable, reason).await
    }
}
