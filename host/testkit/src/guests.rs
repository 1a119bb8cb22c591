//! Plugins for tests: where the built ones are, and files that are no plugin at all.

use std::path::PathBuf;

/// The checkout whose tests run, as cargo and nextest say: several with one target folder share what was built.
pub fn checkout() -> PathBuf {
    let said = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let whole =
        said.and_then(|of| of.ancestors().find(|f| f.join("host/testkit").is_dir()).map(PathBuf::from));
    whole.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// The folder that cargo builds into.
pub fn target_dir() -> PathBuf {
    let workspace = checkout();
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |dir| workspace.join(dir))
}

/// The built plugin of this name: `<target>/plugins/NAME.wasm`.
///
/// # Panics
/// When it has not been built.
#[expect(clippy::panic, reason = "the test cannot go on, and says what to do")]
pub fn guest(name: &str) -> PathBuf {
    let path = target_dir().join("plugins").join(format!("{name}.wasm"));
    if !path.is_file() {
        panic!("there is no {}: run cargo xtask build-guests", path.display());
    }
    path
}

const MARKER: &[u8] = b"SUTLER-HOSTILE-MODE:";
/// The marker and the mode after it, padded with spaces.
const FIELD: usize = 64;

/// The hostile plugin with another descriptor: `describe-trap`, `describe-loop`, `describe-read`, `two-pairs-equal`,
/// `two-pairs`, `no-pairs`, `bad-schema`, `not-json-schema`, `bad-outputs-schema`, `huge-schema`, `huge-descriptor`,
/// `remote-ref`, `file-ref`, `claims-namespace`, `claims-artifact`, `bad-name`, `empty-name`, `equal-steps`,
/// `bad-step`, `endless-step`, `pair:NAME`; `none` for the usual one.
///
/// # Panics
/// When the bytes are not the hostile plugin's, or the mode is longer than 44 bytes.
#[expect(clippy::panic, clippy::expect_used, reason = "a wrong call is a mistake in the test")]
pub fn hostile(wasm: &[u8], mode: &str) -> Vec<u8> {
    let room = FIELD - MARKER.len();
    assert!(mode.len() <= room, "the mode {mode:?} is longer than {room} bytes");
    let places: Vec<usize> =
        wasm.windows(MARKER.len()).enumerate().filter(|(_, w)| *w == MARKER).map(|(at, _)| at).collect();
    let [at] = places[..] else { panic!("the marker is {} times in the file instead of once", places.len()) };
    let mut patched = wasm.to_vec();
    let field =
        patched.get_mut(at + MARKER.len()..at + FIELD).expect("the whole of the marker is in the file");
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(mode.bytes()) {
        *to = from;
    }
    patched
}

#[expect(clippy::expect_used, reason = "the texts below are constants")]
fn assemble(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text of a test plugin")
}

/// A core module: WebAssembly, but no component.
pub fn core_module() -> Vec<u8> {
    assemble("(module (func (export \"describe\")))")
}

/// Bytes that are no WebAssembly; the same ones each time.
pub fn random_bytes() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..512).flat_map(next).collect()
}

/// WebAssembly that breaks off: a component's first half.
pub fn truncated() -> Vec<u8> {
    let mut whole = unknown_import();
    whole.truncate(whole.len() / 2);
    whole
}

/// A component that wants an interface which no host of this project has.
pub fn unknown_import() -> Vec<u8> {
    assemble(
        r#"(component
            (import "sutler:nowhere/nothing@0.1.0" (instance (export "do" (func))))
        )"#,
    )
}

/// A component that exports nothing.
pub fn no_exports() -> Vec<u8> {
    assemble("(component)")
}

/// A component whose provisioner has a `describe` of another type, and nothing else.
pub fn wrong_export_type() -> Vec<u8> {
    assemble(
        r#"(component
            (core module $m (func (export "describe") (result i32) i32.const 7))
            (core instance $i (instantiate $m))
            (func $describe (result u32) (canon lift (core func $i "describe")))
            (instance $provisioner (export "describe" (func $describe)))
            (export "sutler:provisioner/provisioner@0.1.0" (instance $provisioner))
        )"#,
    )
}

/// As [`wrong_export_type`], under a version of the contract that does not exist.
pub fn future_version() -> Vec<u8> {
    assemble(
        r#"(component
            (core module $m (func (export "describe") (result i32) i32.const 7))
            (core instance $i (instantiate $m))
            (func $describe (result u32) (canon lift (core func $i "describe")))
            (instance $provisioner (export "describe" (func $describe)))
            (export "sutler:provisioner/provisioner@99.0.0" (instance $provisioner))
        )"#,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patching_replaces_the_mode_and_keeps_the_length() {
        let mut file = b"abc".to_vec();
        file.extend(format!("{:64}", "SUTLER-HOSTILE-MODE:none").into_bytes());
        file.extend(b"xyz");
        let patched = hostile(&file, "pair:orders");
        assert_eq!(patched.len(), file.len());
        let text = String::from_utf8(patched.clone()).unwrap();
        assert!(text.starts_with("abcSUTLER-HOSTILE-MODE:pair:orders  ") && text.ends_with(" xyz"), "{text}");
        assert_eq!(hostile(&patched, "none"), file);
    }

    #[test]
    fn what_is_no_plugin_is_what_it_says() {
        let layer = |bytes: &[u8]| bytes[..4] == *b"\0asm" && bytes[6] == 1;
        assert!(!layer(&core_module()) && core_module().starts_with(b"\0asm"));
        for component in [unknown_import(), no_exports(), wrong_export_type(), future_version()] {
            assert!(layer(&component));
        }
        assert!(!random_bytes().starts_with(b"\0asm"));
        assert!(truncated().len() > 8);
    }
}
