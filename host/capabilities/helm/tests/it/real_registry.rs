//! Against Debian's docker-registry with TLS and a user, started here; Helm's binary pushes, signs and judges.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use sutler_helm::{Chart, ChartReference, Error};
use sutler_model::Mode;
use sutler_testkit::TestAuthority;

use crate::support::{call, engine, grants, helm};

const USER: &str = "robot";
const PASSWORD: &str = "only-for-tests";

/// Helm's binary: the real tests' own, or the newest that was ever built for them.
fn helm_binary() -> PathBuf {
    let given = std::env::var_os("SUTLER_REAL_HELM").map(PathBuf::from);
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let built = std::fs::read_dir(home.join(".cache/sutler/kubernetes")).into_iter().flatten().flatten();
    given
        .or_else(|| built.map(|e| e.path().join("helm")).find(|p| p.exists()))
        .expect("no helm: set SUTLER_REAL_HELM, or run `cargo xtask cluster up` once")
}

fn done(command: &mut Command) -> String {
    let out = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; apt-get install docker-registry apache2-utils gnupg"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

struct Site {
    folder: tempfile::TempDir,
    host: String,
    server: Child,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let gpg = self.path("gpg");
        if gpg.exists() {
            let _ = Command::new("gpgconf").arg("--homedir").arg(gpg).args(["--kill", "all"]).output();
        }
    }
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("sr-").tempdir().unwrap();
        let authority = TestAuthority::new();
        let certificate = authority.issue(&["127.0.0.1", "localhost"]);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", authority.pem());
        write("tls.pem", &certificate.certificate_pem);
        write("tls.key", &certificate.key_pem);
        write("htpasswd", &done(Command::new("htpasswd").args(["-Bbn", USER, PASSWORD])));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.path().display();
        let configuration = format!(
            "version: 0.1\nlog: {{level: warn, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: \"{at}/data\"}}}}\n\
             http: {{addr: \"127.0.0.1:{port}\", tls: {{certificate: \"{at}/tls.pem\", key: \"{at}/tls.key\"}}}}\n\
             auth: {{htpasswd: {{realm: tests, path: \"{at}/htpasswd\"}}}}\n"
        );
        write("registry.yml", &configuration);
        let mut registry = Command::new("docker-registry");
        registry
            .arg("serve")
            .arg(folder.path().join("registry.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = registry.spawn().expect("apt-get install docker-registry");
        let site = Self { folder, host: format!("127.0.0.1:{port}"), server };
        let started = Instant::now();
        while std::net::TcpStream::connect(&site.host).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "docker-registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn helm(&self, arguments: &[&str]) -> Command {
        let mut helm = Command::new(helm_binary());
        helm.args(arguments)
            .current_dir(self.folder.path())
            .env("HELM_REGISTRY_CONFIG", self.path("login.json"));
        helm.env("GNUPGHOME", self.path("gpg"));
        helm
    }

    /// As Docker and Helm keep it.
    fn login(&self, password: &str) {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{password}"));
        let config = json!({"auths": {&self.host: {"auth": pair}}});
        std::fs::write(self.path("login.json"), config.to_string()).unwrap();
    }

    fn chart(&self, version: &str) {
        std::fs::create_dir_all(self.path("app/templates")).unwrap();
        let meta = format!("apiVersion: v2\nname: app\nversion: {version}\nappVersion: \"3\"\n");
        std::fs::write(self.path("app/Chart.yaml"), meta).unwrap();
        std::fs::write(self.path("app/values.yaml"), "replicas: 2\n").unwrap();
    }

    fn push(&self, version: &str) {
        let to = format!("oci://{}/charts", self.host);
        let file = format!("app-{version}.tgz");
        done(&mut self.helm(&["push", &file, &to, "--ca-file", "ca.pem"]));
    }

    async fn pull(&self, more: Value, version: &str) -> Result<Chart, Error> {
        let mut table = json!({"ca": self.path("ca.pem")});
        table.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let tables = BTreeMap::from([(self.host.clone(), serde_json::from_value(table).unwrap())]);
        let folder = tempfile::tempdir().unwrap();
        let helm = helm(folder.path(), &tables, None, engine());
        let url = format!("oci://{}/charts/app", self.host);
        let reference = ChartReference { url: url.clone(), version: Some(version.into()), digest: None };
        helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await
    }

    fn gpg(&self, arguments: &[&str]) -> String {
        let mut gpg = Command::new("gpg");
        gpg.arg("--homedir").arg(self.path("gpg")).args([
            "--batch",
            "--yes",
            "--quiet",
            "--pinentry-mode",
            "loopback",
        ]);
        gpg.args(["--passphrase", ""]);
        done(gpg.args(arguments))
    }

    /// Helm's `verify` on the file that was packaged, with the ring of that name.
    fn helm_verifies(&self, version: &str, ring: &str) -> bool {
        let file = format!("app-{version}.tgz");
        self.helm(&["verify", &file, "--keyring", ring]).output().unwrap().status.success()
    }

    async fn we_verify(&self, version: &str, ring: &str) -> Result<String, String> {
        let more = json!({"docker-config": self.path("login.json"), "verify": self.path(ring)});
        self.pull(more, version).await.map(|c| c.version).map_err(|e| e.to_string())
    }
}

fn make_gpg_home(site: &Site) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir(site.path("gpg")).unwrap();
    std::fs::set_permissions(site.path("gpg"), std::fs::Permissions::from_mode(0o700)).unwrap();
}

fn export(site: &Site, user: &str, file: &str, armoured: bool) {
    let path: PathBuf = site.path(file);
    let path: &Path = &path;
    let mut arguments = vec!["--output", path.to_str().unwrap()];
    if armoured {
        arguments.push("--armor");
    }
    site.gpg(&[arguments.as_slice(), &["--export", user]].concat());
}

fn fingerprint(site: &Site, address: &str) -> String {
    let listed = site.gpg(&["--with-colons", "--fingerprint", address]);
    let line = listed.lines().find_map(|l| l.strip_prefix("fpr:::::::::")).unwrap();
    line.trim_end_matches(':').to_owned()
}

/// With the certificate that gpg makes beside each key. It puts a colon before its first line, against mistakes.
fn revoke(site: &Site, address: &str) {
    let file = site.path(&format!("gpg/openpgp-revocs.d/{}.rev", fingerprint(site, address)));
    let certificate = std::fs::read_to_string(file).unwrap().replace(":-----BEGIN", "-----BEGIN");
    std::fs::write(site.path("revocation"), certificate).unwrap();
    site.gpg(&["--import", site.path("revocation").to_str().unwrap()]);
}

#[tokio::test]
async fn real_registry_with_tls_users_and_what_helm_pushed() {
    let site = Site::start();
    site.login(PASSWORD);
    for version in ["1.0.0", "1.1.0+build.7", "2.0.0-rc.1"] {
        site.chart(version);
        done(&mut site.helm(&["package", "app"]));
        site.push(version);
    }
    let given = json!({"username": USER, "password": PASSWORD});
    let files = json!({"docker-config": site.path("login.json")});
    for login in [given.clone(), files] {
        let chart = site.pull(login, "^1").await.unwrap();
        assert_eq!((chart.version.as_str(), chart.values), ("1.1.0+build.7", json!({"replicas": 2})));
    }
    for (login, says) in [
        (json!({}), "refused a request without credentials (401)"),
        (json!({"username": USER, "password": "wrong"}), "refused the credentials of user robot (401)"),
        (json!({"token": "wrong"}), "refused the configured token (40"),
    ] {
        let e = site.pull(login, "1.0.0").await.unwrap_err();
        assert!(e.to_string().contains(says) && e.to_string().contains(&site.host), "{e}");
    }
    for (version, says) in [("9.9.9", "has no version 9.9.9"), ("^9", "has no version that fits ^9")] {
        let e = site.pull(given.clone(), version).await.unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
    }
    // What is stored in its place is found out.
    let blobs = site.path("data/docker/registry/v2/blobs/sha256");
    for data in done(Command::new("find").arg(blobs).args(["-name", "data", "-size", "-3"])).lines() {
        let mut bytes = std::fs::read(data).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(data, bytes).unwrap();
        }
    }
    let e = site.pull(given, "1.0.0").await.unwrap_err();
    assert!(matches!(&e, Error::Registry(m) if m.contains("the content of")), "{e:?}");
}

#[tokio::test]
async fn real_registry_charts_that_helm_signed() {
    let site = Site::start();
    site.login(PASSWORD);
    make_gpg_home(&site);
    let rsa = "RSA <rsa@charts.example>";
    site.gpg(&["--quick-generate-key", rsa, "rsa3072", "sign,cert", "never"]);
    site.gpg(&["--quick-generate-key", "Other <other@charts.example>", "ed25519", "sign,cert", "never"]);
    export(&site, "rsa@", "rsa.gpg", false);
    export(&site, "rsa@", "rsa.asc", true);
    export(&site, "other@", "other.gpg", false);
    export(&site, "@charts.example", "both.gpg", false);
    // Helm reads secret keys from the old form of a keyring.
    site.gpg(&["--output", site.path("secret.gpg").to_str().unwrap(), "--export-secret-keys", "rsa@"]);
    site.chart("1.0.0");
    let sign = ["package", "app", "--sign", "--key", "rsa@charts.example", "--keyring", "secret.gpg"];
    done(&mut site.helm(&sign));
    site.push("1.0.0");
    for ring in ["rsa.gpg", "both.gpg"] {
        assert!(site.helm_verifies("1.0.0", ring), "{ring}");
        assert_eq!(site.we_verify("1.0.0", ring).await, Ok("1.0.0".into()), "{ring}");
    }
    assert_eq!(site.we_verify("1.0.0", "rsa.asc").await, Ok("1.0.0".into()), "armoured");
    assert!(!site.helm_verifies("1.0.0", "other.gpg"));
    assert!(site.we_verify("1.0.0", "other.gpg").await.unwrap_err().contains("is not in the keyring"));

    // gpg's own signature of the same text, by keys of other kinds.
    let text = std::fs::read_to_string(site.path("app-1.0.0.tgz.prov")).unwrap();
    let text = text.split("\n\n").skip(1).collect::<Vec<_>>().join("\n\n");
    let text = text.split("-----BEGIN PGP SIGNATURE").next().unwrap().trim_end().to_owned() + "\n";
    std::fs::write(site.path("text"), text).unwrap();
    for (user, kind, verdict) in [
        ("ec", "ed25519", true),
        ("nist", "nistp256", true),
        ("old", "dsa2048", true),
        ("gone", "rsa2048", false),
    ] {
        let address = format!("{user}@keys.example");
        site.gpg(&["--quick-generate-key", &format!("{user} <{address}>"), kind, "sign,cert", "never"]);
        let provenance = site.path("app-1.0.0.tgz.prov");
        let _ = std::fs::remove_file(&provenance);
        let text = site.path("text");
        site.gpg(&[
            "--local-user",
            &address,
            "--output",
            provenance.to_str().unwrap(),
            "--clearsign",
            text.to_str().unwrap(),
        ]);
        if user == "gone" {
            revoke(&site, &address);
        }
        export(&site, &address, "one.gpg", false);
        site.push("1.0.0");
        let ours = site.we_verify("1.0.0", "one.gpg").await;
        assert_eq!(
            (ours.is_ok(), site.helm_verifies("1.0.0", "one.gpg")),
            (verdict, verdict),
            "{user}: {ours:?}"
        );
    }
}

#[tokio::test]
async fn real_registry_keys_that_expired_and_subkeys() {
    let site = Site::start();
    site.login(PASSWORD);
    make_gpg_home(&site);
    site.chart("1.0.0");
    done(&mut site.helm(&["package", "app"]));
    let digest = sutler_model::Digest::of(&std::fs::read(site.path("app-1.0.0.tgz")).unwrap());
    let text =
        format!("apiVersion: v2\nname: app\nversion: 1.0.0\n\n...\nfiles:\n  app-1.0.0.tgz: {digest}\n");
    std::fs::write(site.path("text"), text).unwrap();
    let (text, provenance) = (site.path("text"), site.path("app-1.0.0.tgz.prov"));
    let sign = |before: &[&str], address: &str| {
        let _ = std::fs::remove_file(&provenance);
        let own = ["--local-user", address, "--output", provenance.to_str().unwrap(), "--clearsign"];
        site.gpg(&[before, &own, &[text.to_str().unwrap()]].concat());
        export(&site, address, "one.gpg", false);
        site.push("1.0.0");
    };
    let past = ["--faked-system-time", "20200101T000000!"];
    let late = [
        past.as_slice(),
        &["--quick-generate-key", "Late <late@keys.example>", "ed25519", "sign,cert", "30d"],
    ];
    site.gpg(&late.concat());
    sign(&past, "late@keys.example");
    assert!(
        site.we_verify("1.0.0", "one.gpg").await.unwrap_err().contains("expired, revoked or not for signing")
    );
    assert!(!site.helm_verifies("1.0.0", "one.gpg"));

    site.gpg(&["--quick-generate-key", "Sub <sub@keys.example>", "ed25519", "cert", "never"]);
    let fingerprint = fingerprint(&site, "sub@keys.example");
    site.gpg(&["--quick-add-key", &fingerprint, "rsa2048", "sign", "never"]);
    sign(&[], "sub@keys.example");
    assert_eq!(site.we_verify("1.0.0", "one.gpg").await, Ok("1.0.0".into()));
    assert!(site.helm_verifies("1.0.0", "one.gpg"));
}
