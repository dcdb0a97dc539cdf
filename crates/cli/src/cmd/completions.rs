//! `completions`: a script that completes cryptline's command line in a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::CliError;

/// For which shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline completions bash > ~/.local/share/bash-completion/completions/cryptline
  cryptline completions zsh > /usr/local/share/zsh/site-functions/_cryptline
  cryptline completions fish > ~/.config/fish/completions/cryptline.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the script for the command line of `program`.
///
/// # Errors
/// When standard output takes no more.
pub fn run(args: &CompletionsArgs, program: Command) -> Result<(), CliError> {
    crate::output::print(&script(args.shell, program))
}

/// The script for `shell` and the command line of `program`.
pub fn script(shell: Shell, program: Command) -> String {
    // `help VERB` would have every verb a second time.
    let mut program = program.disable_help_subcommand(true);
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut program, "cryptline", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
