//! What only tests may have in the binary.

use anyhow::Result;

use crate::process::output;
use crate::project::Project;

/// (crate, feature): a build of what ships has none of them.
const OF_TESTS: &[(&str, &str)] = &[("sutler-ledger", "failpoints"), ("sutler-ledger", "testing")];

/// The features with which the binary is built by itself.
pub fn read(project: &Project) -> Result<String> {
    let what = ["tree", "--package", "sutler", "--edges", "features,no-dev", "--prefix", "none"];
    output(project.cargo().args(what))
}

pub fn check(tree: &str) -> Vec<String> {
    let enabled = |(krate, feature): &&(&str, &str)| {
        let line = format!("{krate} feature \"{feature}\"");
        tree.lines().any(|l| l.trim_end_matches(" (*)") == line)
    };
    let told = |(krate, feature): &(&str, &str)| {
        format!("sutler ships with feature {feature} of {krate}: it is for [dev-dependencies] only")
    };
    OF_TESTS.iter().filter(enabled).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_of_tests_is_found() {
        let clean = "sutler v0.1.0 (/sutler)\nsutler-ledger feature \"default\"\nsutler-ledger v0.1.0\n";
        assert!(check(clean).is_empty());
        for line in ["sutler-ledger feature \"failpoints\"", "sutler-ledger feature \"failpoints\" (*)"] {
            assert_eq!(check(&format!("{clean}{line}\n")).len(), 1);
        }
    }
}
