//! Bearer tokens: made random, kept as SHA-256. A fast hash is right here: a token of 256 random bits cannot be guessed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use sutler_model::{Digest, Secret};

use crate::AccessError;

/// What every token of ours begins with, so that scanners for leaked secrets can find one.
const PREFIX: &str = "sut_";

/// A token's hash as it stands in the configuration: `sha256:` and 64 hex digits.
pub fn hash_token(token: &str) -> String {
    Digest::of(token.as_bytes()).to_string()
}

/// A new token: `sut_` and 32 random bytes in base64url.
///
/// # Errors
/// `AccessError::NoRandom` when the operating system gives no random bytes.
pub fn new_token() -> Result<Secret, AccessError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| AccessError::NoRandom(e.to_string()))?;
    Ok(Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
}

/// Whether `digest` is among `known`; looks at all of them, whatever it finds.
pub(crate) fn among(digest: &Digest, known: &[Digest]) -> bool {
    known
        .iter()
        .fold(subtle::Choice::from(0), |found, k| found | k.as_bytes().ct_eq(digest.as_bytes()))
        .into()
}
