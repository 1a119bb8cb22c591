//! Helm's provenance: a clear-signed text (RFC 9580 §7) with Chart.yaml and the archive's SHA-256. A key counts while
//! it is neither expired nor revoked, and a subkey only with both of its binding signatures.

use std::collections::BTreeMap;

use pgp::composed::{CleartextSignedMessage, Deserializable as _, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{PublicKey, Signature, SignatureType, SubpacketData};
use pgp::types::{KeyDetails as _, KeyVersion, Tag, VerifyingKey};
use serde::Deserialize;
use sutler_model::Digest;

/// Bytes of a provenance file.
pub(super) const LIMIT: u64 = 1 << 20;
const BLOCK: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";

/// The keys of which one must have signed.
#[derive(Debug)]
pub(crate) struct Keyring(Vec<SignedPublicKey>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadProvenance {
    #[error("its provenance file is not a clear-signed text")]
    Unsigned,
    #[error("its provenance file is signed by key {0}, which is not in the keyring")]
    UnknownKey(String),
    #[error("the signature of its provenance file is not valid")]
    Signature,
    #[error("its provenance file is signed by key {0}, which is expired, revoked or not for signing")]
    KeyUnusable(String),
    #[error("the signature of its provenance file expired")]
    Expired,
    #[error("the signature of its provenance file rests on {0}, which is too weak")]
    Weak(String),
    #[error("its provenance file lists no checksums")]
    NoSums,
    #[error("its provenance file has no checksum of {0}")]
    OtherFile(String),
    #[error("its archive has digest {actual}, but {signed} was signed")]
    Digest { signed: String, actual: Digest },
}

#[derive(Deserialize)]
struct Sums {
    files: BTreeMap<String, String>,
}

impl Keyring {
    /// Reads exported public keys: binary, or any number of armoured blocks.
    ///
    /// # Errors
    /// Where there is no key that can be read.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let read = |block: &[u8]| -> Vec<SignedPublicKey> {
            let keys = SignedPublicKey::from_reader_many(std::io::Cursor::new(block.to_vec()));
            // Old rings hold keys of kinds that nobody supports any more: they sign nothing here.
            keys.into_iter().flat_map(|(keys, _)| keys.flatten()).collect()
        };
        let keys: Vec<_> = match std::str::from_utf8(bytes) {
            Ok(text) if text.contains(BLOCK) => {
                text.split(BLOCK).skip(1).flat_map(|rest| read(format!("{BLOCK}{rest}").as_bytes())).collect()
            }
            _ => read(bytes),
        };
        if keys.is_empty() { Err("it holds no OpenPGP public key") } else { Ok(Self(keys)) }
    }

    /// Checks that the chart `name`-`version` with this digest was signed; `now` in seconds since 1970. Answers the
    /// signer's fingerprint.
    ///
    /// # Errors
    /// `BadProvenance`
    pub(crate) fn check(
        &self,
        provenance: &[u8],
        name: &str,
        version: &str,
        digest: Digest,
        now: u64,
    ) -> Result<String, BadProvenance> {
        let text = std::str::from_utf8(provenance).map_err(|_| BadProvenance::Unsigned)?;
        let (message, _) =
            CleartextSignedMessage::from_string(text.trim_start()).map_err(|_| BadProvenance::Unsigned)?;
        let signed = message.signed_text();
        let mut last = BadProvenance::Unsigned;
        let signer = message
            .signatures()
            .iter()
            .find_map(|s| self.signer(s, signed.as_bytes(), now).map_err(|e| last = e).ok());
        let Some(signer) = signer else { return Err(last) };
        let file = format!("{name}-{version}.tgz");
        let signed = signed.replace("\r\n", "\n");
        // Chart.yaml, `...`, the sums: as Helm splits it.
        let sums = signed.split("\n...\n").nth(1).ok_or(BadProvenance::NoSums)?;
        let sums: Sums = serde_saphyr::from_str(sums).map_err(|_| BadProvenance::NoSums)?;
        match sums.files.get(&file) {
            None => Err(BadProvenance::OtherFile(file)),
            Some(sum) if *sum == digest.to_string() => Ok(signer),
            Some(sum) => {
                Err(BadProvenance::Digest { signed: sum.chars().take(100).collect(), actual: digest })
            }
        }
    }

    /// The fingerprint of the key that made a signature.
    fn signer(&self, signature: &Signature, text: &[u8], now: u64) -> Result<String, BadProvenance> {
        let hash = signature.hash_alg().ok_or(BadProvenance::Signature)?;
        let strong = matches!(
            hash,
            HashAlgorithm::Sha256
                | HashAlgorithm::Sha384
                | HashAlgorithm::Sha512
                | HashAlgorithm::Sha3_256
                | HashAlgorithm::Sha3_512
        );
        if !strong {
            return Err(BadProvenance::Weak(hash.to_string()));
        }
        if !matches!(signature.typ(), Some(SignatureType::Text | SignatureType::Binary)) {
            return Err(BadProvenance::Signature);
        }
        if ended(
            signature.created().map(|t| t.as_secs()),
            signature.signature_expiration_time().map(|d| d.as_secs()),
            now,
        ) {
            return Err(BadProvenance::Expired);
        }
        let mut unusable = None;
        let mut known = false;
        for key in &self.0 {
            let primary = &key.primary_key;
            let subkeys = key.public_subkeys.iter().map(|s| (&s.key as &dyn Verifies, Some(s)));
            for (candidate, subkey) in std::iter::once((primary as &dyn Verifies, None)).chain(subkeys) {
                if !made_by(signature, candidate) {
                    continue;
                }
                known = true;
                if candidate.verifies(signature, text) {
                    let fingerprint = candidate.fingerprint_text();
                    let usable = live(key, now)
                        && subkey.map_or_else(|| signs(&self_signature(key)), |s| bound(primary, s, now));
                    if usable {
                        return Ok(fingerprint);
                    }
                    unusable = Some(fingerprint);
                }
            }
        }
        Err(match unusable {
            Some(key) => BadProvenance::KeyUnusable(key),
            None if known => BadProvenance::Signature,
            None => BadProvenance::UnknownKey(issuer(signature)),
        })
    }
}

/// A primary key or a subkey, as far as a signature's check needs it.
trait Verifies {
    fn verifies(&self, signature: &Signature, text: &[u8]) -> bool;
    fn fingerprint_text(&self) -> String;
    fn id_text(&self) -> String;
}

impl<K: VerifyingKey> Verifies for K {
    fn verifies(&self, signature: &Signature, text: &[u8]) -> bool {
        signature.verify(self, text).is_ok()
    }
    fn fingerprint_text(&self) -> String {
        self.fingerprint().to_string()
    }
    fn id_text(&self) -> String {
        self.legacy_key_id().to_string()
    }
}

/// What the signature says of its key: a fingerprint, or in old ones an id.
fn issuer(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().first().map(ToString::to_string);
    let id = || signature.issuer_key_id().first().map(ToString::to_string);
    fingerprint.or_else(id).unwrap_or_else(|| "without a name".into())
}

fn made_by(signature: &Signature, key: &dyn Verifies) -> bool {
    let (fingerprint, id) = (key.fingerprint_text(), key.id_text());
    signature.issuer_fingerprint().iter().any(|f| f.to_string() == fingerprint)
        || signature.issuer_key_id().iter().any(|i| i.to_string() == id)
}

/// Whether something of this age (seconds since 1970) is past its life (seconds; 0 for no end).
fn ended(created: Option<u32>, lives: Option<u32>, now: u64) -> bool {
    match (created, lives) {
        (None, _) => true,
        (Some(_), None | Some(0)) => false,
        (Some(created), Some(lives)) => u64::from(created) + u64::from(lives) <= now,
    }
}

fn newest<'a>(signatures: impl Iterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.max_by_key(|s| s.created().map(|t| t.as_secs()))
}

/// The newest valid statement of a key on itself, from a direct signature or one on a user.
fn self_signature(key: &SignedPublicKey) -> Option<&Signature> {
    let primary = &key.primary_key;
    let direct = key.details.direct_signatures.iter().filter(|s| s.verify_key(primary).is_ok());
    let users = key.details.users.iter().flat_map(|user| {
        user.signatures.iter().filter(|s| {
            s.is_certification() && s.verify_certification(primary, Tag::UserId, &user.id).is_ok()
        })
    });
    newest(direct.chain(users))
}

/// Whether a key as a whole is valid: it says so itself, its time is not over, and it is not revoked.
fn live(key: &SignedPublicKey, now: u64) -> bool {
    let primary = &key.primary_key;
    let revoked = key.details.revocation_signatures.iter().any(|s| s.verify_key(primary).is_ok());
    let lives = self_signature(key).map(|s| s.key_expiration_time().map(|d| d.as_secs()));
    matches!(primary.version(), KeyVersion::V4 | KeyVersion::V6)
        && !revoked
        && lives.is_some_and(|lives| !ended(Some(primary.created_at().as_secs()), lives, now))
}

/// Whether a statement allows signing; one without flags is from before there were any.
fn signs(statement: &Option<&Signature>) -> bool {
    statement.is_some_and(|s| {
        let flagged = s
            .config()
            .is_some_and(|c| c.hashed_subpackets().any(|p| matches!(p.data, SubpacketData::KeyFlags(_))));
        !flagged || s.key_flags().sign()
    })
}

/// Whether a subkey belongs to the key, may sign, and is valid now.
fn bound(primary: &PublicKey, subkey: &SignedPublicSubKey, now: u64) -> bool {
    let of = |kind: SignatureType| {
        subkey
            .signatures
            .iter()
            .filter(move |s| s.typ() == Some(kind) && s.verify_subkey_binding(primary, &subkey.key).is_ok())
    };
    if of(SignatureType::SubkeyRevocation).next().is_some() {
        return false;
    }
    let Some(binding) = newest(of(SignatureType::SubkeyBinding)) else { return false };
    let back = binding.embedded_signature();
    binding.key_flags().sign()
        && back.is_some_and(|b| b.verify_primary_key_binding(&subkey.key, primary).is_ok())
        && !ended(
            Some(subkey.key.created_at().as_secs()),
            binding.key_expiration_time().map(|d| d.as_secs()),
            now,
        )
}
