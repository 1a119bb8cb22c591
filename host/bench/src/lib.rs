//! Benchmarks side by side with peers.
