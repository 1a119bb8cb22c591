//! Archives.

use super::Kind::Registry;
use super::{Case, all_refused};
use crate::archive::{META, special};
use crate::support::{archive, chart};

fn with(name: &str, data: &[u8]) -> Vec<u8> {
    archive(&[("app/Chart.yaml", META), (name, data)])
}

fn meta(text: &str) -> Vec<u8> {
    archive(&[("app/Chart.yaml", text.as_bytes())])
}

fn zeros() -> Vec<u8> {
    vec![0; 60 << 20]
}

/// A header that claims 8 GiB.
fn lying_header() -> Vec<u8> {
    use std::io::Write as _;
    let mut header = tar::Header::new_gnu();
    header.set_path("app/Chart.yaml").unwrap();
    header.set_size(8 << 30);
    header.set_cksum();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(header.as_bytes()).unwrap();
    gzip.write_all(META).unwrap();
    gzip.finish().unwrap()
}

fn nested() -> Vec<u8> {
    let mut inner = archive(&[("sub/Chart.yaml", b"name: sub\nversion: 1.0.0\n")]);
    for _ in 0..10 {
        inner = archive(&[("sub/Chart.yaml", b"name: sub\nversion: 1.0.0\n"), ("sub/charts/s.tgz", &inner)]);
    }
    with("app/charts/s.tgz", &inner)
}

fn many_files() -> Vec<u8> {
    let names: Vec<String> = (0..10_001).map(|i| format!("app/f{i}")).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("app/Chart.yaml", META)];
    files.extend(names.iter().map(|n| (n.as_str(), b"".as_slice())));
    archive(&files)
}

#[tokio::test]
async fn paths_and_kinds_of_entries() {
    use tar::EntryType;
    const OUTSIDE: &str = "an entry outside its folder";
    const SPECIAL: &str = "a link or a device";
    let cases: &[Case] = &[
        ("a path upwards", Registry, OUTSIDE, |p| p.archive(with("../x", b"x"))),
        ("a path down and up", Registry, OUTSIDE, |p| p.archive(with("app/a/../../../x", b"x"))),
        ("an absolute path", Registry, OUTSIDE, |p| p.archive(with("/etc/cron.d/x", b"x"))),
        ("a path of Windows", Registry, OUTSIDE, |p| p.archive(with("app\\..\\..\\x", b"x"))),
        ("a drive", Registry, OUTSIDE, |p| p.archive(with("c:/x", b"x"))),
        ("an empty part", Registry, OUTSIDE, |p| p.archive(with("app//x", b"x"))),
        ("a file beside the folder", Registry, OUTSIDE, |p| p.archive(with("app", b"x"))),
        ("two folders", Registry, "several top-level folders", |p| p.archive(with("b/x", b"x"))),
        ("a symbolic link", Registry, SPECIAL, |p| p.archive(special(EntryType::Symlink))),
        ("a hard link", Registry, SPECIAL, |p| p.archive(special(EntryType::Link))),
        ("a character device", Registry, SPECIAL, |p| p.archive(special(EntryType::Char))),
        ("a block device", Registry, SPECIAL, |p| p.archive(special(EntryType::Block))),
        ("a pipe", Registry, SPECIAL, |p| p.archive(special(EntryType::Fifo))),
    ];
    all_refused(cases).await;
}

#[tokio::test]
async fn sizes() {
    let cases: &[Case] = &[
        ("a bomb", Registry, "unpacks to more than", |p| {
            p.archive(archive(&[("app/Chart.yaml", META), ("app/a", &zeros()), ("app/b", &zeros())]));
        }),
        ("a bomb in a subchart", Registry, "unpacks to more than", |p| {
            let inner = archive(&[("sub/Chart.yaml", b"name: sub\nversion: 1.0.0\n"), ("sub/a", &zeros())]);
            let files = [("app/charts/a.tgz", inner.as_slice()), ("app/charts/b.tgz", &inner)];
            p.archive(archive(&[[("app/Chart.yaml", META)].as_slice(), &files].concat()));
        }),
        ("a header that lies", Registry, "cannot be read", |p| p.archive(lying_header())),
        ("too many files", Registry, "more than 10000 files", |p| p.archive(many_files())),
        ("archives in archives", Registry, "nested more than 8 deep", |p| p.archive(nested())),
    ];
    all_refused(cases).await;
}

#[tokio::test]
async fn contents() {
    let cases: &[Case] = &[
        ("nothing", Registry, "cannot be read", |p| p.archive(Vec::new())),
        ("no gzip", Registry, "cannot be read", |p| p.archive(b"PK\x03\x04 a zip".to_vec())),
        ("half an archive", Registry, "cannot be read", |p| {
            let all = chart("app", "1.0.0");
            p.archive(all[..all.len() / 2].to_vec());
        }),
        ("no Chart.yaml", Registry, "Chart.yaml is missing", |p| p.archive(archive(&[("app/x", b"")]))),
        ("no YAML", Registry, "Chart.yaml cannot be read", |p| p.archive(meta("{{"))),
        ("no name", Registry, "Chart.yaml cannot be read", |p| p.archive(meta("version: 1.0.0"))),
        ("no version", Registry, "Chart.yaml cannot be read", |p| p.archive(meta("name: app"))),
        ("a name upwards", Registry, "is not valid", |p| p.archive(meta("name: ../x\nversion: 1.0.0"))),
        ("a name with a folder", Registry, "is not valid", |p| p.archive(meta("name: a/b\nversion: 1.0.0"))),
        ("a version of words", Registry, "\"abc\" is not a semantic version", |p| {
            p.archive(meta("name: app\nversion: abc"));
        }),
        ("a version of four", Registry, "is not a semantic version", |p| {
            p.archive(meta("name: app\nversion: 1.2.3.4"));
        }),
        ("a library", Registry, "library charts are not installable", |p| {
            p.archive(meta("name: app\nversion: 1.0.0\ntype: library"));
        }),
        ("values that are a list", Registry, "values.yaml cannot be read", |p| {
            p.archive(with("app/values.yaml", b"- 1"));
        }),
        ("values that are no text", Registry, "values.yaml cannot be read", |p| {
            p.archive(with("app/values.yaml", b"\xff\xfe"));
        }),
        ("a schema that is none", Registry, "values.schema.json cannot be read", |p| {
            p.archive(with("app/values.schema.json", b"{"));
        }),
        ("a dependency that is not there", Registry, "missing in charts/ directory: db", |p| {
            p.archive(meta("name: app\nversion: 1.0.0\ndependencies: [{name: db, version: 1.0.0}]"));
        }),
    ];
    all_refused(cases).await;
}
