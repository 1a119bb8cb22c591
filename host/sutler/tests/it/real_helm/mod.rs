//! Releases on a real Kubernetes, with the helm binary as the judge: what it renders, what it makes of our releases, and
//! what we make of its.

mod charts;
mod lifecycle;
mod render;
mod rig;
mod sequences;
mod state;
