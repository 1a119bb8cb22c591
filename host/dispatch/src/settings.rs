//! Settings against the pair's schema, before the plugin sees them.

use sutler_catalog::{PairEntry, Violation};
use sutler_model::{Action, Failure, Request};

/// The first change whose settings are missing or break the schema.
pub(crate) fn check(request: &Request, pair: &PairEntry) -> Result<(), Failure> {
    for c in &request.changes {
        let fail = |path: &str, why: String| {
            let reason = format!("The settings of {} are not valid: {why}.", c.resource);
            Err(Failure::new("invalid-settings", reason).on(c.resource.as_str()).at(path))
        };
        match (&c.settings, c.action) {
            (None, Action::Delete | Action::NoOp) => {}
            (None, a) => return fail("", format!("{} needs settings", a.as_str())),
            // A delete does not fail because its settings break today's schema.
            (Some(_), Action::Delete) => {}
            (Some(s), _) => {
                if let Err(Violation { path, message }) = pair.settings.check(s) {
                    let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
                    return fail(&path, format!("{message}{place}"));
                }
            }
        }
    }
    Ok(())
}
