//! Mistakes of instances: what the start and `sutler config check` say of them.

use std::path::Path;
use std::process::Command;

use sutler_access::hash_token;
use sutler_testkit::{SutlerProcess, sutler_binary};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_instances_is_told_at_the_start() {
    let start = |table: &str| {
        let free = "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n";
        let config = format!("{free}[catalog]\ndir = \"/\"\n{table}");
        async move {
            match SutlerProcess::try_start(&config, &[]).await {
                Ok(_) => "it started".to_owned(),
                Err(log) => log,
            }
        }
    };
    for (table, said) in [
        (
            "[instances.a]\nbase-path = \"/x\"\n[instances.b]\nbase-path = \"/x\"\n",
            "[instances.a] base-path \"/x\": it is, or lies under, that of [instances.b]",
        ),
        ("[instances.a]\nbase-path = \"/operations\"\n", "it meets the route /operations"),
        ("[instances.a]\nbase-path = \"/instances/b\"\n", "its own name alone"),
        ("[instances.A]\n", "instances.A: the instance's name cannot be used"),
        ("[instances.a]\ntenants = [\"acme-*\"]\n", "instances.a: tenants has \"acme-*\""),
        ("[instances.a]\nnamespaces = [\"{team}\"]\n", "unknown placeholder {team}"),
        ("[instances.a]\nquotas = { pods = 1 }\n", "unknown key \"pods\""),
        ("[instances.a]\ntoken-hash = [\"secret\"]\n", "instances.a: token-hash 1 is not sha256:"),
    ] {
        let log = start(table).await;
        assert!(log.contains(said), "{table}: {log}");
    }
}

#[test]
fn config_check_names_mistakes_of_instances() {
    let folder = tempfile::tempdir().unwrap();
    let check = |table: &str| check_in(folder.path(), table);
    let none = "[instances.a]\ntenants = [\"acme\"]\nquotas = { applications = 0 }\n\
                [instances.a.tenant-quotas]\nacme = { milli-cpus = 0 }\n\"*\" = { applications = 0 }\n";
    let (fine, said) = check(none);
    assert!(fine, "{said}");
    for (table, words) in [
        (
            "[instances.a]\ntenants = [\"acme\"]\n[instances.a.tenant-quotas]\nglobex = { applications = 1 }\n",
            "[instances.a] tenant-quotas.globex: tenants does not name it",
        ),
        (
            "[instances.a.tenant-quotas]\n\"acme-*\" = { applications = 1 }\n",
            "tenant-quotas.\"acme-*\": identifier",
        ),
        ("[instances.a]\nconfig.none = { chart = \"x\" }\n", "config.none: there is no none.wasm in"),
        ("[instances.a]\nnamespaces = []\n", "leaves no namespace"),
        ("[instances.a]\ntenants = [\"acme-*\"]\n", "tenants has \"acme-*\""),
        ("[instances.a]\nbase-path = \"/logs\"\n", "it meets the route /logs"),
        ("[instances.a]\nbase-path = \"/..\"\n", "neither . nor .."),
        ("[api]\nbase-path = \"/..\"\n", "neither . nor .."),
        ("[instances.a]\nmax-requests = 0\n", "[instances.a] max-requests cannot be 0"),
        ("[instances.a]\nmax-log-streams = 0\n", "[instances.a] max-log-streams cannot be 0"),
        (
            &caller("emeaa", "[instances.emea]\n"),
            "instances has \"emeaa\", which no table configures; did you mean \"emea\"?",
        ),
        (
            &caller("other", "[instances.emea]\n"),
            "instances has \"other\", which no table configures; add [instances.other]",
        ),
    ] {
        let (fine, said) = check(table);
        assert!(!fine && said.contains(words), "{table}: {said}");
    }
    for table in [&caller("*", "[instances.emea]\n"), &caller("emea", "")] {
        let (fine, said) = check(table);
        assert!(fine, "{table}: {said}");
    }
}

/// A caller for one instance, before these tables.
fn caller(instance: &str, tables: &str) -> String {
    let hash = hash_token("t");
    format!(
        "[[access.callers]]\nname = \"cp\"\ntoken-hash = [\"{hash}\"]\ninstances = [\"{instance}\"]\n{tables}"
    )
}

#[test]
fn config_check_names_what_a_plugin_could_not_use() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ksml.wasm"), "").unwrap();
    std::fs::write(folder.path().join("other.wasm"), "").unwrap();
    let base =
        "[plugins.ksml.config]\nnamespace = \"NS\"\n[plugins.ksml.grants.logs]\nnamespaces = [\"*\"]\n";
    let of = |namespace: &str, more: &str| format!("{}{more}", base.replace("NS", namespace));
    let other = "[plugins.other.config]\n";
    let emea = "[instances.emea]\nnamespaces = [\"emea-{tenant}\"]\n";
    for (tables, words) in [
        (
            "[plugins.ksml.config-files]\nvalues-file = \"none.yaml\"\n".into(),
            "[plugins.ksml] config-files.values-file: ",
        ),
        (
            of("emea-{tenat}", ""),
            "[plugins.ksml.config] namespace: pattern \"emea-{tenat}\" has the unknown placeholder",
        ),
        (
            of("emea", "[instances.emea.config.ksml]\nnamespaces = [\"a\", \"{tenat}\"]\n"),
            "[instances.emea] config.ksml namespaces: pattern \"{tenat}\" has the unknown placeholder",
        ),
        (
            of("ksml-{tenant}", &format!("{emea}config.ksml.namespace = \"apac-{{tenant}}\"\n")),
            "[instances.emea] namespaces does not cover \"apac-{tenant}\", which config.ksml.namespace tells the plugin",
        ),
        (
            of("ksml-{tenant}", emea),
            "does not cover \"ksml-{tenant}\", which [plugins.ksml.config] namespace tells the plugin",
        ),
        (
            of("ksml-{tenant}", &format!("{other}{emea}config.ksml.version = \"1\"\n")),
            "does not cover \"ksml-{tenant}\", which [plugins.ksml.config] namespace tells the plugin",
        ),
    ] {
        let (fine, said) = check_in(folder.path(), &tables);
        assert!(!fine && said.contains(words), "{tables}: {said}");
    }
    for tables in [
        of("ksml-{tenant}", &format!("{emea}config.ksml.namespace = \"emea-{{tenant}}\"\n")),
        // It may be meant for another instance.
        of("ksml-{tenant}", &format!("{other}{emea}")),
        // Without a grant in any namespace the key may mean anything.
        "[plugins.ksml.config]\nnamespace = \"{{ mine }}\"\n".into(),
    ] {
        let (fine, said) = check_in(folder.path(), &tables);
        assert!(fine, "{tables}: {said}");
    }
    let beside = folder.path().join("other.toml");
    for (toml, tables, words) in [
        ("[config-files]\na = \"none.yaml\"\n", "", "other.toml: config-files.a: "),
        ("[secrets]\na = { file = \"/no/such/file\" }\n", "", "other.toml: secrets: a: "),
        ("[config]\npassword = \"hunter2\n", "", "other.toml line 2: "),
        ("", "[plugins.other]\n", "it is configured twice"),
    ] {
        std::fs::write(&beside, toml).unwrap();
        let (fine, said) = check_in(folder.path(), tables);
        assert!(!fine && said.contains(words) && !said.contains("hunter2"), "{toml}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_of_two_instances_that_are_the_same_are_told() {
    let notice = "[instances.a] and [instances.b] both have the namespaces \"shared\", \"x-{tenant}\": tenants of equal";
    let two = |more: &str| {
        let own = format!("namespaces = [\"shared\", \"x-{{tenant}}\", \"{{instance}}-y\", {more}]\n");
        format!("[instances.a]\n{own}[instances.b]\n{}", own.replace("only-a", "only-b"))
    };
    let folder = tempfile::tempdir().unwrap();
    let (fine, said) = check_in(folder.path(), &two("\"only-a\""));
    assert!(fine && said.contains(notice), "{said}");
    let free =
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n";
    let config = format!("{free}[catalog]\ndir = {:?}\n{}", folder.path(), two("\"only-a\""));
    let host = SutlerProcess::start(&config, &[]).await;
    let log = host.log_lines().join("\n");
    assert!(
        log.contains("\"event\":\"shared-namespaces\"") && log.contains("[instances.a] and [instances.b]"),
        "{log}"
    );
    let (fine, said) =
        check_in(folder.path(), "[instances.a]\nnamespaces = [\"a\"]\n[instances.b]\nnamespaces = [\"b\"]\n");
    assert!(fine && !said.contains("both have"), "{said}");
}

/// `sutler config check` with this folder of plugins: whether it is fine, and what it says.
fn check_in(folder: &Path, tables: &str) -> (bool, String) {
    let file = folder.join("sutler.toml");
    std::fs::write(&file, format!("[catalog]\ndir = {folder:?}\n{tables}")).unwrap();
    let out =
        Command::new(sutler_binary()).args(["config", "check", "--config"]).arg(&file).output().unwrap();
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (out.status.success(), said)
}
