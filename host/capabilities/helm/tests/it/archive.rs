//! Hostile and broken archives.

use sutler_helm::{ArchiveError, ChartArchive};
use sutler_model::Digest;

use crate::support::{archive, chart};

pub(crate) const META: &[u8] = b"apiVersion: v2\nname: app\nversion: 1.0.0\n";

fn read(bytes: Vec<u8>) -> Result<ChartArchive, ArchiveError> {
    ChartArchive::read(bytes.into(), Digest::of(b""))
}

pub(crate) fn special(kind: tar::EntryType) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    tar.append_link(&mut header, "app/templates/x", "/etc/passwd").unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn a_good_chart() {
    let chart = read(chart("app", "1.2.3")).unwrap();
    assert_eq!((chart.metadata.name.as_str(), chart.metadata.version.as_str()), ("app", "1.2.3"));
    assert_eq!(chart.metadata.app_version.as_deref(), Some("1.10"), "the spelling is kept");
    assert_eq!(chart.values, serde_json::json!({"replicas": 1, "mode": 420}));
    assert_eq!(chart.schema, Some(serde_json::json!({"type": "object"})));
}

#[test]
fn entries_that_leave_the_folder() {
    for name in ["../x", "app/../../x", "/etc/passwd", "app/templates/../../../x", "..\\x"] {
        let got = read(archive(&[("app/Chart.yaml", META), (name, b"x")]));
        assert!(matches!(got, Err(ArchiveError::Outside(_))), "{name}: {got:?}");
    }
}

#[test]
fn links_and_devices() {
    use tar::EntryType;
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo] {
        assert!(matches!(read(special(kind)), Err(ArchiveError::Special(_))), "{kind:?}");
    }
}

#[test]
fn a_zip_bomb() {
    let zeros = vec![0u8; 60 << 20];
    let bomb = archive(&[("app/Chart.yaml", META), ("app/a", &zeros), ("app/b", &zeros)]);
    assert!(bomb.len() < 2 << 20, "it is small: {}", bomb.len());
    assert!(matches!(read(bomb), Err(ArchiveError::Bomb)));
}

#[test]
fn a_zip_bomb_inside_a_subchart() {
    let zeros = vec![0u8; 60 << 20];
    let inner = archive(&[("sub/Chart.yaml", b"name: sub\nversion: 1.0.0\n"), ("sub/a", &zeros)]);
    let bomb =
        archive(&[("app/Chart.yaml", META), ("app/charts/a.tgz", &inner), ("app/charts/b.tgz", &inner)]);
    assert!(matches!(read(bomb), Err(ArchiveError::Bomb)));
}

#[test]
fn archives_without_end() {
    let mut inner = archive(&[("sub/Chart.yaml", b"name: sub\nversion: 1.0.0\n")]);
    for _ in 0..10 {
        inner = archive(&[("sub/Chart.yaml", b"name: sub\nversion: 1.0.0\n"), ("sub/charts/s.tgz", &inner)]);
    }
    let got = read(archive(&[("app/Chart.yaml", META), ("app/charts/s.tgz", &inner)]));
    assert!(matches!(got, Err(ArchiveError::Depth)), "{got:?}");
}

#[test]
fn too_many_files() {
    let names: Vec<String> = (0..10_001).map(|i| format!("app/f{i}")).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("app/Chart.yaml", META)];
    files.extend(names.iter().map(|n| (n.as_str(), b"".as_slice())));
    assert!(matches!(read(archive(&files)), Err(ArchiveError::Files)));
}

#[test]
fn broken_archives() {
    let whole = chart("app", "1.0.0");
    for bytes in [Vec::new(), b"not gzip".to_vec(), whole[..whole.len() / 2].to_vec()] {
        let got = read(bytes);
        assert!(matches!(got, Err(ArchiveError::Damaged(_) | ArchiveError::Missing(_))), "{got:?}");
    }
}

#[test]
fn charts_that_are_refused() {
    for (files, part) in [
        (vec![("a/Chart.yaml", META), ("b/x", b"".as_slice())], "several top-level folders: \"a\" and \"b\""),
        (vec![("app/values.yaml", b"a: 1".as_slice())], "Chart.yaml is missing"),
        (vec![("Chart.yaml", META)], "outside its folder"),
        (vec![("app/Chart.yaml", b"version: 1.0.0".as_slice())], "Chart.yaml cannot be read"),
        (vec![("app/Chart.yaml", b"name: ../x\nversion: 1.0.0".as_slice())], "is not valid"),
        (vec![("app/Chart.yaml", b"name: x\nversion: 1.0.0\ntype: library".as_slice())], "library charts are not installable"),
        (vec![("app/Chart.yaml", META), ("app/values.yaml", b"- 1".as_slice())], "values.yaml cannot be read: it is not a mapping"),
        (vec![("app/Chart.yaml", META), ("app/values.schema.json", b"{".as_slice())], "values.schema.json cannot be read"),
        (
            vec![("app/Chart.yaml", b"name: app\nversion: 1.0.0\ndependencies: [{name: db, version: 1}, {name: mq, version: 2.1}]".as_slice())],
            "found in Chart.yaml, but missing in charts/ directory: db, mq",
        ),
    ] {
        let e = read(archive(&files)).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn dependencies_that_are_there() {
    let meta =
        b"name: app\nversion: 1.0.0\ndependencies: [{name: db, version: 1.0.0}, {name: mq, version: 1.0.0}]"
            .as_slice();
    let packed = archive(&[("mq/Chart.yaml", b"name: mq\nversion: 1.0.0\n")]);
    let files = [
        ("app/Chart.yaml", meta),
        ("app/charts/database/Chart.yaml", b"name: db\nversion: 1.0.0\n".as_slice()),
        ("app/charts/mq-1.0.0.tgz", packed.as_slice()),
    ];
    assert_eq!(read(archive(&files)).unwrap().metadata.dependencies.len(), 2);
}
