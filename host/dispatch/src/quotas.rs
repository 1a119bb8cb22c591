//! Which quotas hold for an application, and what a plan takes of them.

use std::collections::BTreeMap;

use sutler_catalog::PairEntry;
use sutler_ledger::Takes;
use sutler_model::{Action, Application, Identifier, Planned, Proposal, Quota, Quotas, Request, Use};

use crate::dispatcher::Inner;
use crate::provisioner::CallError;

/// The quotas of one instance.
#[derive(Debug, Clone, Default)]
pub struct InstanceQuotas {
    pub own: Quota,
    /// By the tenant's name.
    pub tenants: BTreeMap<String, Quota>,
    /// For each tenant alike that is not named, and for those without one together.
    pub each_tenant: Quota,
}

/// The quotas of all instances, by name. An application without an instance has none.
pub type QuotaTable = BTreeMap<String, InstanceQuotas>;

fn of(table: &QuotaTable, application: &Application) -> Quotas {
    let Some(i) = application.instance.as_ref().and_then(|i| table.get(i.as_str())) else {
        return Quotas::default();
    };
    let named = application.tenant.as_ref().and_then(|t| i.tenants.get(t.as_str()));
    Quotas { instance: i.own, tenant: *named.unwrap_or(&i.each_tenant) }
}

impl Inner {
    /// What the proposal makes of what its application takes, and the quotas that must allow it.
    pub(crate) fn takes(&self, request: &Request, pair: &PairEntry, proposal: &Proposal) -> Takes {
        let one = |p: &Planned| -> (Identifier, Option<Use>) {
            let change = request.changes.iter().find(|c| c.resource == p.resource);
            let goes = p.action == Action::Delete || change.is_some_and(|c| c.action == Action::Delete);
            let after = p.after.as_ref().or_else(|| change?.settings.as_ref());
            let used = after.map(|after| pair.used(after)).unwrap_or_default();
            (p.resource.clone(), (!goes).then_some(used))
        };
        Takes {
            resources: proposal.changes.iter().map(one).collect(),
            quotas: of(&self.quotas, &request.application),
        }
    }

    /// Tells a plan what its apply would hear. Only where there is a quota is the ledger asked, and a ledger that is
    /// away keeps no plan from being made.
    pub(crate) async fn within_quotas(
        &self,
        request: &Request,
        pair: &PairEntry,
        proposal: &Proposal,
    ) -> Result<(), CallError> {
        if of(&self.quotas, &request.application).is_free() {
            return Ok(());
        }
        let takes = self.takes(request, pair, proposal);
        match self.operations.over_quota(&request.application, &request.pair, takes).await {
            Ok(None) => Ok(()),
            Ok(Some(over)) => Err(CallError::OverQuota(over)),
            Err(e) => {
                tracing::warn!(event = "quota-not-told", "{e}; the plan is served without its quotas");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_tenant_has_its_own_quota_and_the_others_one_each() {
        let most = |n| Quota { applications: Some(n), ..Quota::default() };
        let emea = InstanceQuotas {
            own: most(9),
            tenants: [("acme".to_owned(), most(3))].into(),
            each_tenant: most(1),
        };
        let table = QuotaTable::from([("emea".to_owned(), emea)]);
        let id = |s: &str| Identifier::parse(s).unwrap();
        for (instance, tenant, expected) in [
            (Some("emea"), Some("acme"), Quotas { instance: most(9), tenant: most(3) }),
            (Some("emea"), Some("globex"), Quotas { instance: most(9), tenant: most(1) }),
            (Some("emea"), None, Quotas { instance: most(9), tenant: most(1) }),
            (Some("apac"), Some("acme"), Quotas::default()),
            (None, Some("acme"), Quotas::default()),
        ] {
            let application = Application {
                id: id("orders"),
                environment: id("prod"),
                tenant: tenant.map(id),
                instance: instance.map(id),
            };
            assert_eq!(of(&table, &application), expected, "{instance:?} {tenant:?}");
        }
    }
}
