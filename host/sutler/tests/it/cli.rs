//! The command line.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sutler_testkit::http::SampleRequest;
use sutler_testkit::{core_module, guest, hostile, sutler_binary};

fn sutler(args: &[&str]) -> Output {
    let folder = std::env::temp_dir();
    Command::new(sutler_binary()).args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}
fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

#[test]
fn plugin_check_shows_what_a_component_is() {
    let file = guest("namespace");
    let o = sutler(&["plugin", "check", file.to_str().unwrap()]);
    let text = out(&o);
    assert!(o.status.success(), "{text}{}", err(&o));
    for part in [
        "target/kubernetes-namespace",
        "sha256:",
        "sutler:kubernetes/write@0.1.0",
        "needs",
        "labels",
        "bytes",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn plugin_check_refuses_with_words() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = std::fs::read(guest("hostile")).unwrap();
    for (name, bytes, words) in [
        ("core.wasm", core_module(), "core WebAssembly module"),
        ("trap.wasm", hostile(&wasm, "describe-trap"), "describe"),
        ("schema.wasm", hostile(&wasm, "remote-ref"), "REFUSED"),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let o = sutler(&["plugin", "check", file.to_str().unwrap()]);
        assert!(!o.status.success(), "{name}");
        assert!(format!("{}{}", out(&o), err(&o)).contains(words), "{name}: {}{}", out(&o), err(&o));
    }
    // What is no file of its own, or has no end.
    let at = |name: &str| folder.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe.wasm")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", at("zero.wasm")).unwrap();
    std::fs::write(at("empty.wasm"), "").unwrap();
    std::fs::File::create(at("large.wasm")).unwrap().set_len((256 << 20) + 1).unwrap();
    for (name, words) in [
        ("pipe.wasm", "it is not a regular file"),
        ("zero.wasm", "it is not a regular file"),
        ("empty.wasm", "the file is empty; copy it again"),
        ("large.wasm", "it has more than 268435456 bytes"),
    ] {
        let o = sutler(&["plugin", "check", at(name).to_str().unwrap()]);
        assert!(
            !o.status.success() && err(&o).contains(words) && err(&o).contains(name),
            "{name}: {}",
            err(&o)
        );
    }
    let missing = sutler(&["plugin", "check", "/no/such.wasm"]);
    assert!(err(&missing).contains("/no/such.wasm"));
}

#[test]
fn plugin_run_is_one_call_as_the_server_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let request = folder.path().join("r.json");
    let file = guest("hostile");
    let run = |body: &Value, export: &str| {
        std::fs::write(&request, body.to_string()).unwrap();
        let o = sutler(&[
            "plugin",
            "run",
            file.to_str().unwrap(),
            export,
            "--request",
            request.to_str().unwrap(),
        ]);
        (o.status.success(), out(&o), err(&o))
    };
    let (ok, text, e) = run(&SampleRequest::new("tool/hostile").create(json!({"do": "ok"})).body(), "plan");
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{e}"));
    assert!(ok && answer["outcome"] == "planned", "{answer}");
    let (ok, text, _) =
        run(&SampleRequest::new("tool/hostile").create(json!({"do": "trap"})).body(), "apply");
    assert!(!ok && text.contains("plugin-fault"), "{text}");
    let (ok, text, _) = run(&json!({"requestId": "r"}), "plan");
    assert!(!ok && text.contains("invalid-request"), "{text}");
}

#[test]
fn config_check_names_every_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sutler.toml");
    let check = |toml: &str, env: &[(&str, &str)]| {
        std::fs::write(&file, toml).unwrap();
        let mut c = Command::new(sutler_binary());
        let o =
            c.args(["config", "check", "--config"]).arg(&file).envs(env.iter().copied()).output().unwrap();
        (o.status.success(), format!("{}{}", out(&o), err(&o)))
    };
    let dir = format!("[catalog]\ndir = {:?}\n", folder.path());
    let (ok, text) = check(&dir, &[]);
    assert!(ok && text.contains("fine"), "{text}");
    for (toml, words) in [
        (format!("{dir}[serber]\n"), "did you mean \"server\"?"),
        (format!("{dir}[server]\nlisten = \"0.0.0.0:80\"\n"), "token"),
        (format!("{dir}[pairs]\n\"nonsense\" = \"x\"\n"), "KIND/TYPE"),
        ("[catalog]\ndir = \"/no/such/folder\"\n".into(), "/no/such/folder"),
        (format!("{dir}[log]\nlevel = \"inof\"\n"), "not a level"),
        (format!("{dir}[runtime]\nsandboxes = 0\n"), "sandboxes"),
        (format!("{dir}[plugins.nope]\n"), "there is no nope.wasm"),
        (
            format!("{dir}[server]\nlisten = \"127.0.0.1:9\"\nadmin-listen = \"127.0.0.1:9\"\n"),
            "both 127.0.0.1:9",
        ),
        (format!("{dir}[server.tls]\ncertificate = \"/no/cert\"\nkey = \"/no/key\"\n"), "/no/cert"),
        (format!("{dir}[kubernetes.clusters.default]\nkubeconfig = \"/no/kubeconfig\"\n"), "/no/kubeconfig"),
        (format!("{dir}[tenants.\"Not OK\"]\n"), "Not OK"),
        (
            format!("{dir}[register]\ncontrol-plane = \"notaurl\"\npublic-url = \"http://x\"\n"),
            "control-plane",
        ),
        (
            format!(
                "{dir}[[plugins.x.grants.kubernetes]]\nverbs=[\"get\"]\nkinds=[\"Pod\"]\nnamespaces=[\"{{tenant}}-{{environment}}\"]\n"
            ),
            "{hash}",
        ),
    ] {
        let (ok, text) = check(&toml, &[]);
        assert!(!ok && text.contains(words), "{toml}: {text}");
    }
    let (ok, text) = check(&dir, &[("SUTLER__SERVER__LISTEN", "nonsense")]);
    assert!(!ok && text.contains("listen"), "{text}");
    let (ok, text) = check(&dir, &[("SUTLER__SERVER__ADMIN_LISTEN", "127.0.0.1:4444")]);
    assert!(ok && text.contains("127.0.0.1:4444"), "{text}");
}

#[test]
fn help_completions_and_tokens() {
    let help = out(&sutler(&["--help"]));
    assert!(help.contains("plugin check") && help.contains("SUTLER__SERVER__LISTEN"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(out(&sutler(&["completions", shell])).contains("sutler"));
    }
    let made = out(&sutler(&["token", "new"]));
    assert!(made.contains("token-hash  sha256:"), "{made}");
    assert_ne!(made, out(&sutler(&["token", "new"])));
}
