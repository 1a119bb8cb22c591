//! Bytes of a log as lines with time stamps.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// Longer lines come in pieces. A byte that is no UTF-8 becomes three.
pub(crate) const MAX_LINE: usize = 256 << 10;
/// Nanoseconds.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// A line, or a piece of one that is over [`MAX_LINE`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    /// The line begins here, with its time stamp.
    pub(crate) first: bool,
    /// The line ends here.
    pub(crate) last: bool,
}

/// Cuts a stream of bytes at newlines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: BytesMut,
    /// `rest` continues a line whose beginning is out already.
    inside: bool,
    /// No newline in `rest` before this.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.rest.extend_from_slice(chunk);
    }

    pub(crate) fn next(&mut self) -> Option<Piece> {
        let newline =
            self.rest.get(self.searched..)?.iter().position(|b| *b == b'\n').map(|i| i + self.searched);
        let (bytes, last) = match newline {
            Some(at) if at <= MAX_LINE => {
                let line = self.rest.split_to(at + 1);
                (line.freeze().slice(..at), true)
            }
            _ if self.rest.len() > MAX_LINE => (self.rest.split_to(MAX_LINE).freeze(), false),
            _ => {
                self.searched = self.rest.len();
                return None;
            }
        };
        self.searched = 0;
        let first = !self.inside;
        self.inside = !last;
        Some(Piece { bytes, first, last })
    }

    /// What is left without a newline at the end.
    pub(crate) fn finish(&mut self) -> Option<Piece> {
        let bytes = self.rest.split().freeze();
        self.searched = 0;
        let first = !self.inside;
        self.inside = false;
        (!bytes.is_empty()).then_some(Piece { bytes, first, last: true })
    }
}

/// A time stamp as the kubelet wrote it, and as nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) text: Arc<str>,
    pub(crate) nanos: i64,
}

/// `2026-01-02T03:04:05.678901234Z text`: the time stamp and the text after one space.
pub(crate) fn stamped(line: &[u8]) -> Option<(Stamp, &[u8])> {
    let end = line.iter().take(64).position(|b| *b == b' ');
    // An empty line may come without its space.
    let (stamp, text) = match end {
        Some(at) => (line.get(..at)?, line.get(at + 1..)?),
        None => (line, &[][..]),
    };
    let text_of = std::str::from_utf8(stamp).ok()?;
    let nanos = chrono::DateTime::parse_from_rfc3339(text_of).ok()?.timestamp_nanos_opt()?;
    Some((Stamp { text: text_of.into(), nanos }, text))
}

/// What a kubelet or its runtime says in the body, with status 200, instead of the log (kubernetes#98236).
pub(crate) fn is_refusal(line: &[u8]) -> bool {
    const WORDS: [&[u8]; 3] = [
        b"unable to retrieve container logs",
        b"failed to try resolving symlinks in path",
        b"failed to create fsnotify watcher",
    ];
    WORDS.iter().any(|w| line.starts_with(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(chunks: &[&[u8]]) -> (Vec<(String, bool, bool)>, Option<String>) {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        for chunk in chunks {
            lines.push(chunk);
            while let Some(p) = lines.next() {
                out.push((text(&p.bytes), p.first, p.last));
            }
        }
        (out, lines.finish().map(|p| text(&p.bytes)))
    }

    #[test]
    fn lines_over_chunks() {
        let whole = |s: &str| (s.to_owned(), true, true);
        assert_eq!(
            all(&[b"a\nb", b"c\n\n", b"d"]),
            (vec![whole("a"), whole("bc"), whole("")], Some("d".into()))
        );
        assert_eq!(all(&[b"a\n"]), (vec![whole("a")], None));
        assert_eq!(all(&[b"", b"\n"]), (vec![whole("")], None));
    }

    #[test]
    fn long_lines_come_in_pieces() {
        let mut input = vec![b'x'; 2 * MAX_LINE + 5];
        input.push(b'\n');
        input.extend_from_slice(b"after\n");
        let (pieces, rest) = all(&[&input[..100], &input[100..]]);
        let shape: Vec<_> = pieces.iter().map(|(t, f, l)| (t.len(), *f, *l)).collect();
        assert_eq!(
            shape,
            vec![(MAX_LINE, true, false), (MAX_LINE, false, false), (5, false, true), (5, true, true)]
        );
        assert_eq!(rest, None);
    }

    #[test]
    fn stamps() {
        for (line, want) in [
            ("2026-01-02T03:04:05.678901234Z hello world", Some((1_767_323_045_678_901_234, "hello world"))),
            ("2026-01-02T05:04:05.678901234+02:00 x", Some((1_767_323_045_678_901_234, "x"))),
            ("2026-01-02T03:04:05Z ", Some((1_767_323_045_000_000_000, ""))),
            ("2026-01-02T03:04:05Z", Some((1_767_323_045_000_000_000, ""))),
            ("2026-01-02T03:04:05Z  two spaces", Some((1_767_323_045_000_000_000, " two spaces"))),
            ("unable to retrieve container logs for containerd://1", None),
            ("2026-01-02T03:0", None),
            ("", None),
        ] {
            let got =
                stamped(line.as_bytes()).map(|(s, t)| (s.nanos, std::str::from_utf8(t).unwrap().to_owned()));
            assert_eq!(got, want.map(|(n, t)| (n, t.to_owned())), "{line}");
        }
    }
}
