//! The host's side of what a plugin imports: each file turns one WIT package into calls of one capability.

mod containers;
mod helm;
mod host;
mod http;
mod kubernetes;
mod logs;
mod weigh;

use wasmtime::component::{HasData, HasSelf, Linker};

pub(crate) use weigh::Weigh;

use crate::bindings::plugin::sutler;
use crate::sandbox::State;

/// The data of writing interfaces in the read-only linker: it can do nothing.
pub(crate) struct ReadOnly;

struct HasReadOnly;
impl HasData for HasReadOnly {
    type Data<'a> = ReadOnly;
}

/// Links everything that the world imports. Without `writing`, each writing function answers `read-only-call`
/// and has no way to the world.
pub(crate) fn link(linker: &mut Linker<State>, writing: bool) -> wasmtime::Result<()> {
    type Own = HasSelf<State>;
    sutler::provisioner::types::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::host::log::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::host::clock::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::host::random::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::host::config::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::kubernetes::types::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::kubernetes::read::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::helm::types::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::helm::charts::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::helm::releases::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::logs::read::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::http::outbound::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::containers::types::add_to_linker::<_, Own>(linker, |s| s)?;
    sutler::containers::read::add_to_linker::<_, Own>(linker, |s| s)?;
    if writing {
        sutler::kubernetes::write::add_to_linker::<_, Own>(linker, |s| s)?;
        sutler::helm::changes::add_to_linker::<_, Own>(linker, |s| s)?;
        sutler::containers::write::add_to_linker::<_, Own>(linker, |s| s)?;
    } else {
        sutler::kubernetes::write::add_to_linker::<_, HasReadOnly>(linker, |_| ReadOnly)?;
        sutler::helm::changes::add_to_linker::<_, HasReadOnly>(linker, |_| ReadOnly)?;
        sutler::containers::write::add_to_linker::<_, HasReadOnly>(linker, |_| ReadOnly)?;
    }
    Ok(())
}
