//! `completions`: a script that completes cryptline's command line in a shell.

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell as Generator;

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

/// Shells of Linux, for which packages have a place for completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// fish
    Fish,
    /// Z shell
    Zsh,
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
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Fish => Generator::Fish,
        Shell::Zsh => Generator::Zsh,
    };
    let mut bytes = Vec::new();
    clap_complete::generate(generator, &mut program, "cryptline", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
