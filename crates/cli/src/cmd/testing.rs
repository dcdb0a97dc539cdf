//! `testing`: a page of help about the options that every verb that opens a volume has, and that nobody needs to use one.

use clap::{Args, Command};

use crate::CliError;
use crate::verb::{Group, Verb};

pub const VERB: Verb = Verb {
    name: "testing",
    group: Some(Group::Topics),
    examples: "\
cryptline serve --fault read:nth=3 --fault write:after=10:error=ENOSPC
# an SSD
cryptline serve --delay read=100us,write=20us..40us,flush=1ms,parallel=32
# a hard disk
cryptline serve --delay seek=2ms..12ms,rate=150M,parallel=1
cryptline mount disk.img --fault flush:after=2 /mnt",
    notes: "\
`serve`, `vhost-user`, `mount`, `attach` and every other verb that opens a volume for others takes these two
options. They act on the device below, under the cipher.

`--fault RULE` makes requests fail; it may be repeated. RULE is an operation (read, write, flush, discard or zone)
and, separated by colons:

  nth=N           only the Nth
  every=N         each Nth
  after=N         all after the Nth
  offset=BYTE     those that touch this byte
  error=NAME      EIO, ENOSPC or EOPNOTSUPP [default: EIO]
  late            fail when the request comes back, as on a real medium
  delay=MS        take so many milliseconds longer; fail only with error=NAME

`--delay SPEC` makes the device as slow as another medium. SPEC is, separated by commas:

  read=TIME       how long a read takes; likewise write, flush and discard
  seek=TIME       how much longer elsewhere than where the last transfer ended
  rate=SIZE       bytes per second
  parallel=N      requests at a time; others wait
  seed=N          another sequence of random times

TIME is 100us, 20us..40us (uniform; of seek, by distance) or 1ms~200us (normal: mean and deviation), in ns, us, ms or s.",
    see: "cryptline-serve(1), cryptline-benchmark(1)",
    keyless: true,
    ..Verb::EMPTY
};

/// Nothing but the page.
#[derive(Args, Debug)]
pub struct TestingArgs {}

/// Prints the page.
///
/// # Errors
/// When standard output takes no more.
pub fn run(_: &TestingArgs, mut program: Command) -> Result<(), CliError> {
    program.build();
    if let Some(page) = program.find_subcommand_mut("testing") {
        crate::output::print(&page.render_long_help().to_string())?;
    }
    Ok(())
}
