//! The command line.

mod audit;
mod check;
mod columns;
mod config;
mod doctor;
mod job;
mod ledger;
mod progress;
mod rbac;
mod run;
mod serve;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::Config;

/// A provisioner for platform control planes: it answers plan, apply and inspect over HTTP, and each
/// (kind, type) pair is handled by a sandboxed WebAssembly plugin from a folder.
#[derive(Debug, Parser)]
#[command(
    name = "sutler",
    version,
    after_help = "\
A first look:
  sutler plugin check plugins/namespace.wasm      what it imports, handles and needs
  sutler config check --config sutler.toml        every mistake with its place
  sutler doctor --config sutler.toml              clusters, rights, registries, ledger, releases
  sutler serve --config sutler.toml               listens on 127.0.0.1:8080; operators on 127.0.0.1:8081
  curl -s localhost:8080/handles                  the pairs that are served, with their schemas
  sutler job list --config sutler.toml            what was applied, and how far it is

Every key of sutler.toml can be set by the environment: SUTLER__SERVER__LISTEN=127.0.0.1:9000"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the provisioner API until SIGTERM or SIGINT
    #[command(after_help = "SIGTERM and SIGINT stop it: no new connections, what runs may finish \
([api] shutdown-grace-seconds), what could not is named in the log. Without a caller token in [access] \
it listens on loopback only.")]
    Serve(serve::Serve),
    /// Look at a plugin, or call it without a server
    #[command(subcommand)]
    Plugin(Plugin),
    /// Check sutler.toml, or print its reference
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at everything that this host stands on, and say what is wrong and what to do
    #[command(after_help = doctor::HELP)]
    Doctor(doctor::Doctor),
    /// What the host's account needs in a cluster for the grants of sutler.toml
    #[command(subcommand)]
    Rbac(Rbac),
    /// The ledger that jobs are kept in: check, move, new keys
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Jobs: list, show, watch, retry, cancel
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Which changes were asked for, and by whom
    #[command(after_help = audit::HELP)]
    Audit(audit::AuditCommand),
    /// Make a token for a caller or an operator
    #[command(subcommand)]
    Token(Token),
    /// Print the completion script of a shell: sutler completions bash > /etc/bash_completion.d/sutler
    Completions { shell: clap_complete::Shell },
}

#[derive(Debug, Subcommand)]
enum Plugin {
    /// Imports, pairs, schemas, size and compile time of a component, and the grants it would need
    Check(check::Check),
    /// One plan, apply or inspect of a component, as the server would do it
    Run(run::Run),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Read the file and the environment, and name every mistake; exits with 1 where there is one
    Check(ConfigFile),
    /// Every key with its type, default and meaning, as Markdown
    Reference,
}

#[derive(Debug, Subcommand)]
enum Rbac {
    /// Print the least roles and their bindings as YAML, for kubectl apply -f -
    #[command(after_help = rbac::HELP)]
    Print(rbac::Print),
}

#[derive(Debug, Subcommand)]
enum Token {
    /// A new random token and its hash: the token goes to the caller, the hash into [access]
    New,
    /// The hash of a token read from stdin
    Hash,
}

/// Where the configuration is.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigFile {
    /// Path of sutler.toml; without it ./sutler.toml where there is one, else the defaults
    #[arg(long, short, env = "SUTLER_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn path(&self) -> Option<PathBuf> {
        let here = PathBuf::from("sutler.toml");
        self.config.clone().or_else(|| here.is_file().then_some(here))
    }
    pub(crate) fn load(&self) -> anyhow::Result<Config> {
        Config::load(self.path().as_deref())
    }
}

/// Prints a line; a reader that went away (`| head`) is no error.
pub(crate) fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(s) => s.run(),
        Command::Plugin(Plugin::Check(c)) => c.run(),
        Command::Plugin(Plugin::Run(r)) => r.run(),
        Command::Config(ConfigCommand::Check(c)) => config::check(&c),
        Command::Config(ConfigCommand::Reference) => {
            let _ = write!(std::io::stdout(), "{}", crate::reference::markdown());
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor(d) => d.run(),
        Command::Rbac(Rbac::Print(p)) => p.run(),
        Command::Ledger(l) => l.run(),
        Command::Job(j) => j.run(),
        Command::Audit(a) => a.run(),
        Command::Token(t) => token(&t),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sutler", &mut script);
            let _ = std::io::stdout().write_all(&script);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn token(t: &Token) -> anyhow::Result<ExitCode> {
    let text = match t {
        Token::New => sutler_access::new_token()?,
        Token::Hash => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            sutler_model::Secret::new(line.trim_end())
        }
    };
    if matches!(t, Token::New) {
        say(format!("token       {}", text.expose()));
    }
    say(format!("token-hash  {}", sutler_access::hash_token(text.expose())));
    Ok(ExitCode::SUCCESS)
}
