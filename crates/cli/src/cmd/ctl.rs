//! `ctl`: commands for a running server.

mod add;
mod connection;
mod text;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rustix::process::geteuid;

use crate::CliError;
use crate::output::print;
use crate::serve::control::wire::{Nothing, Remove, Whose};
use crate::verb::{Group, Verb};
use add::ExportAddArgs;
use connection::ControlConnection;

pub const VERB: Verb = Verb {
    name: "ctl",
    group: Some(Group::Use),
    is_main: true,
    examples: "\
cryptline serve disk.img --key-file key --control /run/user/1000/c &
cryptline ctl /run/user/1000/c list
# asks for its passphrase here
cryptline ctl /run/user/1000/c add data.img --name data
cryptline ctl /run/user/1000/c flush data
cryptline ctl /run/user/1000/c remove data --force
cryptline resize disk.img 20G && cryptline ctl /run/user/1000/c resize ''
cryptline ctl /run/user/1000/c --json list",
    notes: "\
SOCKET is the argument of `cryptline serve --control SOCKET`. It speaks JSON lines, for other programs too: see
docs/control.md. Only the server's user and root may use it, and nothing is said to a server of another user than root and you;
`add` as root, which hands over a volume key, wants that user's name (--server-user).",
    exit: "0 success, 1 invalid parameters or an unknown export, 2 wrong passphrase, 3 out of memory, 4 no server, \
        an I/O error or a flush that failed, 5 a name or an image that is in use",
    ..Verb::EMPTY
};

/// Which server, and what it is to do.
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// The control socket of the server
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,

    /// Print what the server answers as JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Command to give.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The verbs of `ctl`.
#[derive(Subcommand, Debug)]
pub enum CtlCommand {
    /// List the exports
    List,
    /// Show what the exports did since the server started (see also `cryptline top`)
    Stats,
    /// Make everything that was written durable
    Flush(ExportNameArgs),
    /// Notice that files have grown; clients see it when they connect again
    Resize(ExportNameArgs),
    /// Read the certificates of TLS again, as SIGHUP does; clients that connect from then on are greeted with them
    Reload,
    /// Remove an export: new clients do not get it, and it is closed when its last client has left
    Remove(ExportRemoveArgs),
    /// Open a LUKS volume in a file and export it
    Add(Box<ExportAddArgs>),
}

/// One export, or all.
#[derive(Args, Debug)]
pub struct ExportNameArgs {
    /// Name of the export; '' is the default one [default: all]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Which export goes, and how.
#[derive(Args, Debug)]
pub struct ExportRemoveArgs {
    /// Name of the export; '' is the default one
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Make its clients leave: they get the answers to the requests that the server has taken, for up to 5 s
    #[arg(long)]
    pub force: bool,
}

/// Gives the command, and tells what came of it.
///
/// # Errors
/// Error of the server, with its exit code; exit code 4 where there is no server.
pub fn run(args: &CtlArgs) -> Result<(), CliError> {
    let mut server = ControlConnection::to(&args.socket)?;
    match &args.command {
        CtlCommand::Add(add) => server.check_user(add.server_user)?,
        // Root may ask anybody's server, and gives nothing away by that.
        _ if geteuid().is_root() => {}
        _ => server.check_user(None)?,
    }
    let answer = match &args.command {
        CtlCommand::List => server.ask("list", &Nothing {}, &[]),
        CtlCommand::Stats => server.ask("stats", &Nothing {}, &[]),
        CtlCommand::Flush(export) => server.ask("flush", &export.whose(), &[]),
        CtlCommand::Resize(export) => server.ask("resize", &export.whose(), &[]),
        CtlCommand::Reload => server.ask("reload", &Nothing {}, &[]),
        CtlCommand::Remove(remove) => server.ask("remove", &remove.request(), &[]),
        CtlCommand::Add(add) => add.run(&mut server),
    }?;
    let text = match &args.command {
        _ if args.json => format!("{answer}\n"),
        CtlCommand::List => text::list(&answer),
        CtlCommand::Stats => text::stats(&answer),
        CtlCommand::Flush(_) => text::flush(&answer),
        CtlCommand::Resize(_) => text::resize(&answer),
        CtlCommand::Reload => text::reload(&answer),
        CtlCommand::Remove(remove) => text::remove(&answer, &remove.name),
        CtlCommand::Add(_) => text::add(&answer),
    };
    print(&text)
}

impl ExportNameArgs {
    fn whose(&self) -> Whose {
        Whose { name: self.name.clone() }
    }
}

impl ExportRemoveArgs {
    fn request(&self) -> Remove {
        Remove { name: self.name.clone(), now: self.force }
    }
}
