//! The audit, which the ledger keeps: what is asked of jobs is written with them.

use sutler_ledger::{Audit, AuditFilter};

use crate::error::OperationError;
use crate::operations::Operations;

impl Operations {
    /// Which changes were asked for, by whom; the newest first.
    ///
    /// # Errors
    /// What the ledger says.
    pub async fn audited(&self, filter: AuditFilter) -> Result<Vec<Audit>, OperationError> {
        self.0.ledger.audited(filter).await.map_err(OperationError::Ledger)
    }

    /// Adds to the audit what an operator does to this host.
    ///
    /// # Errors
    /// What the ledger says.
    pub async fn audit(&self, operator: &str, action: &str) -> Result<(), OperationError> {
        let row = Audit::of_host(operator, action, self.0.holder.as_ref());
        self.0.ledger.audit(row).await.map_err(OperationError::Ledger)
    }
}
