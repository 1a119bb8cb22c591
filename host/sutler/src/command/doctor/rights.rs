//! Whether the host's account may do what grants need.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use sutler_kubernetes::{Cluster, PolicyRule, Right};

use super::Report;

/// Questions to the API server at once.
const AT_ONCE: usize = 16;

/// What the account may not do of what the rules say: how many rights were asked about, and `patch
/// deployments.apps`.
pub(super) async fn lacking(
    cluster: &Cluster,
    rules: &BTreeSet<PolicyRule>,
    namespace: Option<&str>,
) -> Result<(usize, Vec<String>), sutler_kubernetes::Error> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for (group, resource) in
            rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r)))
        {
            for verb in &rule.verbs {
                let names = rule.resource_names.iter().map(String::as_str);
                let any = rule.resource_names.is_empty().then_some("");
                rights.extend(names.chain(any).map(|name| Right { verb, group, resource, namespace, name }));
            }
        }
    }
    let asked = rights.len();
    let answers = futures::stream::iter(rights)
        .map(|right| async move { cluster.allowed(&right).await.map(|yes| (!yes).then(|| shown(&right))) })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let lacking = answers.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok((asked, lacking))
}

fn shown(r: &Right<'_>) -> String {
    let group = if r.group.is_empty() { String::new() } else { format!(".{}", r.group) };
    let name = if r.name.is_empty() { String::new() } else { format!(" {}", r.name) };
    format!("{} {}{group}{name}", r.verb, r.resource)
}

pub(super) fn tell(
    report: &mut Report,
    plugin: &str,
    namespace: Option<&str>,
    lacking: Result<(usize, Vec<String>), sutler_kubernetes::Error>,
) {
    let place = namespace.map_or_else(|| "in the cluster".to_owned(), |ns| format!("in namespace {ns}"));
    match lacking {
        Ok((asked, lacking)) if lacking.is_empty() => {
            report.ok("rights", format!("{plugin} {place}: all {asked} rights that its grants need"));
        }
        Ok((_, lacking)) => {
            let ns = namespace.map(|ns| format!(" --namespace {ns}")).unwrap_or_default();
            report.wrong(
                "rights",
                format!("{plugin} {place}: the host's account lacks {}", lacking.join(", ")),
                format!("sutler rbac print --plugin {plugin}{ns} | kubectl apply -f -"),
            );
        }
        Err(e) => report.wrong("rights", format!("{plugin} {place}: {e}"), "try again"),
    }
}
