use super::*;
use serde_json::{Value, json};

struct Files {
    folder: tempfile::TempDir,
    files: CredentialFiles,
}

impl Files {
    fn new(configs: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut files = CredentialFiles {
            optional: true,
            programs: Some(format!("{}:/usr/bin:/bin", folder.path().display()).into()),
            ..CredentialFiles::default()
        };
        for (i, config) in configs.iter().enumerate() {
            let path = folder.path().join(format!("{i}.json"));
            std::fs::write(&path, config.to_string()).unwrap();
            files.files.push(path);
        }
        Self { folder, files }
    }

    /// A helper that runs these lines of a shell.
    fn helper(self, name: &str, script: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.path().join(format!("docker-credential-{name}"));
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    async fn shown(&self, registry: &str) -> String {
        match self.files.login(registry).await {
            Ok(Login::Anonymous) => "anonymous".into(),
            Ok(Login::Basic { username, password }) => format!("basic {username} {}", password.expose()),
            Ok(Login::Token(t)) => format!("token {}", t.expose()),
            Ok(Login::Identity(t)) => format!("identity {}", t.expose()),
            Err(e) => format!("{e}"),
        }
    }
}

fn pair(text: &str) -> Value {
    use base64::Engine as _;
    json!({"auth": base64::engine::general_purpose::STANDARD.encode(text)})
}

#[tokio::test]
async fn entries() {
    let files = Files::new(&[json!({"auths": {
        "r.example": pair("a:b:c"), "https://old.example/v2/": pair("o:1\0\0"), "r.example:5000": pair("port:2"),
        "https://index.docker.io/v1/": pair("hub:3"), "parts.example": {"username": "u", "password": "p"},
        "identity.example": {"auth": "MDAwOg==", "identitytoken": "refresh"},
        "token.example": {"registrytoken": "ready"}, "empty.example": {}, "junk.example": {"auth": "%%%"},
        "https://Upper.Example": pair("up:4"),
    }, "HttpHeaders": {}, "credsStore": ""})]);
    for (registry, login) in [
        ("r.example", "basic a b:c"),
        ("r.example:5000", "basic port 2"),
        ("old.example", "basic o 1"),
        ("docker.io", "basic hub 3"),
        ("parts.example", "basic u p"),
        ("identity.example", "identity refresh"),
        ("token.example", "token ready"),
        ("empty.example", "anonymous"),
        ("junk.example", "anonymous"),
        ("upper.example", "basic up 4"),
        ("example", "anonymous"),
        ("evil-r.example", "anonymous"),
    ] {
        assert_eq!(files.shown(registry).await, login, "{registry}");
    }
}

#[tokio::test]
async fn the_first_file_goes_first_and_helpers_before_entries() {
    let helm = json!({"auths": {"a.example": pair("helm:1")}});
    let docker = json!({
        "auths": {"a.example": pair("docker:2"), "b.example": pair("docker:3"), "c.example": pair("docker:4")},
        "credHelpers": {"b.example": "known"}, "credsStore": "empty",
    });
    let files = Files::new(&[helm, docker])
        .helper("known", r#"read s; echo "{\"ServerURL\":\"$s\",\"Username\":\"of $s\",\"Secret\":\"5\"}""#)
        .helper("empty", r#"echo "credentials not found in native keychain"; exit 1"#);
    assert_eq!(files.shown("a.example").await, "basic helm 1");
    assert_eq!(files.shown("b.example").await, "basic of b.example 5");
    assert_eq!(files.shown("c.example").await, "basic docker 4", "what the store does not know");
    assert_eq!(files.shown("d.example").await, "anonymous");
}

#[tokio::test]
async fn helpers_that_answer_something_else() {
    let json = json!({"credHelpers": {
        "identity.example": "identity", "junk.example": "junk", "fails.example": "fails", "none.example": "none",
        "path.example": "../x", "docker.io": "hub", "loud.example": "loud",
    }});
    let files = Files::new(&[json])
        .helper("identity", r#"echo '{"Username":"<token>","Secret":"refresh"}'"#)
        .helper("junk", "echo hunter2")
        .helper("fails", "echo hunter2; echo hunter2 >&2; exit 3")
        .helper("hub", r#"read s; echo "{\"Username\":\"$s\",\"Secret\":\"x\"}""#)
        .helper("loud", "while :; do echo hunter2hunter2hunter2hunter2; done");
    for (registry, part) in [
        ("identity.example", "identity refresh"),
        ("junk.example", "docker-credential-junk: its answer is no credentials"),
        ("fails.example", "docker-credential-fails: it failed"),
        ("none.example", "docker-credential-none: there is no such program"),
        ("path.example", "its name may hold letters"),
        ("docker.io", "basic https://index.docker.io/v1/ x"),
        ("loud.example", "docker-credential-loud: it failed"),
    ] {
        let shown = files.shown(registry).await;
        assert!(shown.contains(part) && !shown.contains("hunter2"), "{registry}: {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_helper_without_end_is_stopped() {
    let files = Files::new(&[json!({"credsStore": "slow"})]).helper("slow", "exec sleep 600");
    let shown = files.shown("r.example").await;
    assert!(shown.contains("docker-credential-slow: it did not answer within 10 s"), "{shown}");
}

#[tokio::test]
async fn files_that_cannot_be_used() {
    let files = Files::new(&[json!({"auths": "hunter2"})]);
    let shown = files.shown("r.example").await;
    assert!(
        shown.contains("0.json is not Docker's config.json (line 1") && !shown.contains("hunter2"),
        "{shown}"
    );
    let gone = CredentialFiles::one(files.folder.path().join("none"));
    assert!(gone.check().unwrap_err().contains("cannot be read"));
    assert!(gone.login("r.example").await.is_err());
    let gone = CredentialFiles { optional: true, ..gone };
    assert_eq!(gone.login("r.example").await, Ok(Login::Anonymous));
    let large = files.folder.path().join("large");
    std::fs::write(&large, vec![b' '; (FILE_LIMIT + 1) as usize]).unwrap();
    assert!(CredentialFiles::one(large).check().unwrap_err().contains("larger than"));
}

#[test]
fn the_users_files() {
    let of = |set: &[(&str, &str)]| {
        let set: HashMap<String, String> = set.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let files = CredentialFiles::of_user(|name| set.get(name).map(Into::into)).files;
        files.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(&[("HOME", "/h")]), "/h/.config/helm/registry/config.json /h/.docker/config.json");
    assert_eq!(
        of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), ("DOCKER_CONFIG", "/d")]),
        "/x/helm/registry/config.json /d/config.json"
    );
    assert_eq!(of(&[("HELM_REGISTRY_CONFIG", "/r.json"), ("HELM_CONFIG_HOME", "/c")]), "/r.json");
    assert_eq!(of(&[("HELM_CONFIG_HOME", "/c")]), "/c/registry/config.json");
    assert_eq!(of(&[]), "");
}
