//! How many bytes an answer of a capability brings into a sandbox.

/// Bytes of text and data, without the frame around them.
pub(crate) trait Weigh {
    fn weigh(&self) -> usize;
}

impl Weigh for () {
    fn weigh(&self) -> usize {
        0
    }
}
impl Weigh for bool {
    fn weigh(&self) -> usize {
        1
    }
}
impl Weigh for String {
    fn weigh(&self) -> usize {
        self.len()
    }
}
impl Weigh for serde_json::Value {
    fn weigh(&self) -> usize {
        match self {
            Self::String(s) => s.len(),
            Self::Array(a) => a.iter().map(Weigh::weigh).sum(),
            Self::Object(m) => m.iter().map(|(k, v)| k.len() + v.weigh()).sum(),
            _ => 8,
        }
    }
}
impl<T: Weigh> Weigh for Option<T> {
    fn weigh(&self) -> usize {
        self.as_ref().map_or(0, Weigh::weigh)
    }
}
impl<T: Weigh> Weigh for Vec<T> {
    fn weigh(&self) -> usize {
        self.iter().map(Weigh::weigh).sum()
    }
}
