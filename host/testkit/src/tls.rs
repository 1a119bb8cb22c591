//! Certificates of a test's own authority.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::PrivateKeyDer;

/// A certificate authority that exists for one test.
pub struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate of a [`TestAuthority`] and its key.
pub struct TestCertificate {
    pub certificate_pem: String,
    pub key_pem: String,
    config: Arc<rustls::ServerConfig>,
}

impl TestAuthority {
    /// # Panics
    /// When no key can be made.
    #[expect(clippy::expect_used, reason = "a test that cannot make keys cannot go on")]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key for the test authority");
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "sutler test authority");
        let pem = params.self_signed(&key).expect("a certificate of the test authority").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for servers and clients under these names (addresses included).
    ///
    /// # Panics
    /// When a name is none.
    #[expect(clippy::expect_used, reason = "a wrong name is a mistake in the test")]
    pub fn issue(&self, names: &[&str]) -> TestCertificate {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let key = KeyPair::generate().expect("a key for the test certificate");
        let mut params = CertificateParams::new(names).expect("names of hosts or addresses");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate of the test authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .expect("the key fits its certificate");
        TestCertificate {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            config: Arc::new(config),
        }
    }
}

impl Default for TestAuthority {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCertificate {
    pub(crate) fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.config.clone()
    }
}
