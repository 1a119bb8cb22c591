//! What tests share: emulators and hostile guests. Never used by the host.
