//! Keys and provenance files, made with the library that the host checks them with. Helm's own are in `real_registry`.

use pgp::composed::{
    ArmorOptions, CleartextSignedMessage, KeyType, SecretKeyParamsBuilder, SignedPublicKey, SignedSecretKey,
    SubkeyParamsBuilder,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{KeyFlags, SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::types::{Duration, KeyDetails as _, Password, SigningKey, Tag, Timestamp};

/// A key that certifies, signs where `signs` says so, and has a signing subkey.
pub(crate) fn key(signs: bool) -> SignedSecretKey {
    key_of(KeyType::Ed25519Legacy, signs)
}

/// One that signs weak hashes too, which the others refuse.
pub(crate) fn rsa() -> SignedSecretKey {
    key_of(KeyType::Rsa(2048), true)
}

fn key_of(kind: KeyType, signs: bool) -> SignedSecretKey {
    let subkey =
        SubkeyParamsBuilder::default().key_type(KeyType::Ed25519Legacy).can_sign(true).build().unwrap();
    SecretKeyParamsBuilder::default()
        .key_type(kind)
        .can_certify(true)
        .can_sign(signs)
        .created_at(Timestamp::from_secs(1_500_000_000))
        .primary_user_id("Packager <packager@charts.example>".into())
        .subkeys(vec![subkey])
        .build()
        .unwrap()
        .generate(rand::thread_rng())
        .unwrap()
}

pub(crate) fn exported(key: &SignedPublicKey) -> String {
    key.to_armored_string(ArmorOptions::default()).unwrap()
}

fn statement(key: &SignedSecretKey, kind: SignatureType, more: Vec<SubpacketData>) -> SignatureConfig {
    let mut config = SignatureConfig::v4(kind, key.primary_key.algorithm(), HashAlgorithm::Sha256);
    let always = vec![
        SubpacketData::SignatureCreationTime(Timestamp::from_secs(1_600_000_000)),
        SubpacketData::IssuerFingerprint(key.primary_key.fingerprint()),
    ];
    config.hashed_subpackets =
        always.into_iter().chain(more).map(|data| Subpacket::regular(data).unwrap()).collect();
    config
}

/// The key as its owner revoked it.
pub(crate) fn revoked(key: &SignedSecretKey) -> SignedPublicKey {
    let mut public = key.to_public_key();
    let revocation = statement(key, SignatureType::KeyRevocation, vec![])
        .sign_key(&key.primary_key, &Password::empty(), &public.primary_key)
        .unwrap();
    public.details.revocation_signatures.push(revocation);
    public
}

/// The key with a life of so many seconds.
pub(crate) fn living(key: &SignedSecretKey, seconds: u32) -> SignedPublicKey {
    let mut public = key.to_public_key();
    let mut flags = KeyFlags::default();
    flags.set_sign(true);
    flags.set_certify(true);
    let more =
        vec![SubpacketData::KeyFlags(flags), SubpacketData::KeyExpirationTime(Duration::from_secs(seconds))];
    let user = &mut public.details.users[0];
    let certification = statement(key, SignatureType::CertPositive, more)
        .sign_certification(&key.primary_key, &public.primary_key, &Password::empty(), Tag::UserId, &user.id)
        .unwrap();
    user.signatures = vec![certification];
    public
}

/// What Helm writes for `app-1.0.0.tgz`.
pub(crate) fn text(digest: &str) -> String {
    format!("apiVersion: v2\nname: app\nversion: 1.0.0\n\n...\nfiles:\n  app-1.0.0.tgz: {digest}\n")
}

pub(crate) fn signed(text: &str, key: &impl SigningKey) -> String {
    CleartextSignedMessage::sign(rand::thread_rng(), text, key, &Password::empty())
        .unwrap()
        .to_armored_string(ArmorOptions::default())
        .unwrap()
}

/// With another hash, in 2020, and with more statements of the signature.
pub(crate) fn signed_as(
    text: &str,
    key: &SignedSecretKey,
    hash: HashAlgorithm,
    more: Vec<SubpacketData>,
) -> String {
    let mut config = statement(key, SignatureType::Text, more);
    config.hash_alg = hash;
    CleartextSignedMessage::new(text, config, &key.primary_key, &Password::empty())
        .unwrap()
        .to_armored_string(ArmorOptions::default())
        .unwrap()
}
