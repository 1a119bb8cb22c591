//! The plugins of a folder, indexed by pair.
