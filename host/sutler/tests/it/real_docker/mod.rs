//! KSML applications on a real Docker daemon, with Docker's own command line as judge.

mod life;
mod logs;
mod site;
mod trouble;
