//! TLS: what is believed and what is not.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sutler_ledger::{Ledger, LedgerError, Postgres, PostgresOptions};
use tempfile::TempDir;

use super::contract::keys;
use crate::sqlite::held;
use sutler_testkit::postgres::{Server, give};

fn authority(folder: &Path) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
    issuer
}

/// A server with a certificate for 127.0.0.1 that speaks TLS only.
fn server(own: &Path) -> Server {
    let issuer = authority(own);
    Server::start(|folder| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &issuer).unwrap();
        for (name, text) in [("cert.pem", cert.pem()), ("key.pem", key.serialize_pem())] {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            give(&path);
        }
        let hba = folder.join("hba");
        std::fs::write(&hba, "local all all trust\nhostssl all all 127.0.0.1/32 trust\n").unwrap();
        give(&hba);
        let file = |name| folder.join(name).display().to_string();
        [
            "ssl=on".into(),
            format!("ssl_cert_file={}", file("cert.pem")),
            format!("ssl_key_file={}", file("key.pem")),
        ]
        .into_iter()
        .chain([format!("hba_file={}", file("hba"))])
        .flat_map(|setting| ["-c".to_owned(), setting])
        .collect()
    })
}

async fn refused(url: &str, ca_file: Option<PathBuf>) -> String {
    let folder = TempDir::new().unwrap();
    let options = PostgresOptions { ca_file, ..PostgresOptions::default() };
    match Postgres::open(url, keys(&folder), options).await {
        Err(LedgerError::Unavailable(why)) => why,
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("{url} was believed"),
    }
}

#[tokio::test]
async fn a_server_is_believed_by_its_authority_only() {
    let own = TempDir::new().unwrap();
    let server = server(own.path());
    let ca = own.path().join("ca.pem");
    let url = server.url("postgres");

    let folder = TempDir::new().unwrap();
    let options = PostgresOptions { ca_file: Some(ca.clone()), ..PostgresOptions::default() };
    let ledger = Postgres::open(&format!("{url}?sslmode=require"), keys(&folder), options).await.unwrap();
    let job = held().create(&ledger).await;
    // The same by the words of the URL, also where TLS is only preferred.
    for words in ["sslmode=verify-full&", "", "sslmode=prefer&"] {
        let url = format!("{url}?{words}sslrootcert={}", ca.display());
        let again = Postgres::open(&url, keys(&folder), PostgresOptions::default()).await.unwrap();
        assert!(again.job(job.id.clone()).await.unwrap() == Some(job.clone()));
    }

    let why = refused(&format!("{url}?sslmode=require"), None).await;
    assert!(why.contains("UnknownIssuer") && why.contains("ca-file"), "{why}");
    let elsewhere = TempDir::new().unwrap();
    authority(elsewhere.path());
    let why = refused(&url, Some(elsewhere.path().join("ca.pem"))).await;
    assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{why}");
    let by_name = url.replace("127.0.0.1", "localhost");
    let why = refused(&by_name, Some(ca.clone())).await;
    assert!(why.contains("not valid for name \"localhost\""), "{why}");
    let why = refused(&format!("{url}?sslmode=disable"), Some(ca)).await;
    assert!(why.contains("no encryption"), "{why}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let url = Server::shared().database().await;
    let why = refused(&format!("{url}?sslmode=require"), None).await;
    assert!(why.contains("does not support TLS"), "{why}");
}
