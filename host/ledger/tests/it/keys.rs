use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sutler_ledger::{Keys, LedgerError};

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn why(path: &Path) -> String {
    match Keys::open(path) {
        Err(LedgerError::Open(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_file_is_made_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.key");
    let keys = Keys::open_or_make(&path, &folder.path().join("ledger.db")).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    let text = std::fs::read_to_string(&path).unwrap();
    let hex = text.rsplit('"').nth(1).unwrap();
    assert_eq!(hex.len(), 64);
    assert!(!format!("{keys:?}").contains(hex), "Debug shows no key");
    // A second opening takes the same file.
    Keys::open_or_make(&path, &folder.path().join("ledger.db")).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.key");
    Keys::rotate(&path).unwrap();
    for bad in [0o640, 0o604, 0o644, 0o660] {
        mode(&path, bad);
        assert!(why(&path).contains("chmod 600"), "{bad:o}");
    }
    mode(&path, 0o400);
    Keys::open(&path).unwrap();
}

#[test]
fn a_wrong_key_file_is_told_without_showing_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.key");
    assert!(why(&path).contains("sutler ledger rotate-key"));
    let key = "ab".repeat(32);
    for (text, words) in [
        (format!("active = \"k1\"\n[keys]\nk1 = \"{key}"), "64 hex digits"),
        (format!("active = \"k1\"\n[keys]\nk1 = \"{key}00\""), "\"k1\" must be 64 hex digits"),
        (format!("active = \"k2\"\n[keys]\nk1 = \"{key}\""), "\"k2\" is not under [keys]"),
        (format!("active = \"k1\"\nold = 1\n[keys]\nk1 = \"{key}\""), "write active"),
    ] {
        std::fs::write(&path, text).unwrap();
        mode(&path, 0o600);
        let why = why(&path);
        assert!(why.contains(words) && !why.contains("abab"), "{why}");
    }
    std::fs::write(&path, format!("active = \"k1\"\n\n[keys]\nk1 = \"{key}\"\n")).unwrap();
    Keys::open(&path).unwrap();
}

#[test]
fn hashes_stay_when_keys_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.key");
    // Also those of a file that was made before hashes had a key of their own.
    std::fs::write(&path, format!("active = \"k1\"\n\n[keys]\nk1 = \"{}\"\n", "ab".repeat(32))).unwrap();
    mode(&path, 0o600);
    let (before, name) = {
        let keys = Keys::open(&path).unwrap();
        (keys.derived("hashes"), keys.hashes_name())
    };
    // Ids are random: some of these sort before the first.
    for _ in 0..20 {
        Keys::rotate(&path).unwrap();
        let keys = Keys::open(&path).unwrap();
        assert_eq!((keys.derived("hashes"), keys.hashes_name()), (before, name.clone()));
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let kept: String = text.lines().filter(|l| !l.starts_with("k1 ")).flat_map(|l| [l, "\n"]).collect();
    assert!(kept.len() < text.len());
    std::fs::write(&path, kept).unwrap();
    let keys = Keys::open(&path).unwrap();
    assert_eq!(keys.derived("hashes"), before);
    assert_eq!(keys.older().len(), 19);

    let other = folder.path().join("other.key");
    Keys::rotate(&other).unwrap();
    let other = Keys::open(&other).unwrap();
    assert_ne!(other.hashes_name(), name);
    other.hash_like(&keys).unwrap();
    assert_eq!((other.derived("hashes"), other.older().len()), (before, 0));
}
