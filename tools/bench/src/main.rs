//! Comparisons of cryptline with other programs and of its own ways with each other, and one report of each.
//!
//! ```text
//! inline    the script of the 2020 dm-devel thread  ─┐  rows and a turn             ┌─ text
//! sweep     every size, depth and dispatch mode      │                              │
//! subblock  writes of parts of cipher sectors        ├─► Plan ─► Report ─► figures ─┼─ --json (docs/bench-json.md)
//! media     what a request costs beside a copy       │                              │
//! zoned     sequential writes to encrypted zones     │                              └─ --html (page.html draws the JSON)
//! rbd       images of a Ceph cluster                ─┤
//! peers     other people's servers, over NBD         │    servers   rows of tables: started, checked, loaded
//! busy      the same, beside busy processes          │    setting   images, processors, other programs
//! doors     every front of the server                │    fio       load on sockets and mounts
//! images    whole images, encrypted and decrypted    │    load      load on media of this process, and virtqueues
//! scale     one server, more and more of everything ─┘    bare      the cipher alone, for the models
//! ```
//!
//! A report exists only when everything was measured: a plan that fails ends with one line, and writes no file.

#![forbid(unsafe_code)]

mod bare;
mod busy;
mod contents;
mod doors;
mod error;
mod figures;
mod fio;
mod guest;
mod images;
mod inline;
mod load;
mod machine;
mod media;
mod output;
mod peers;
mod plan;
mod process;
mod programs;
mod rbd;
mod report;
mod scale;
mod servers;
mod setting;
mod subblock;
mod sweep;
mod text;
mod volume;
mod whole;
mod zoned;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::OutputArgs;
use plan::RunArgs;

/// Compares cryptline with other programs, and its ways of encrypting, serving and storing with each other.
#[derive(Parser, Debug)]
#[command(name = "cryptline-bench", version, disable_help_subcommand = true)]
#[command(after_help = "\
Says what came out in sentences and a table, and can write JSON (--json) and a page that draws it (--html). What is \
compared is measured in turns, several times. Reports say whether other programs kept the machine busy. \
docs/bench-json.md describes the JSON and every figure. `cryptline benchmark` measures ciphers and key derivation.")]
struct BenchArgs {
    #[command(subcommand)]
    plan: Chosen,

    #[command(flatten)]
    runs: RunArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Subcommand, Debug)]
enum Chosen {
    /// Compare inline encryption with our imitation of dm-crypt's queues, as in the 2020 dm-devel thread
    Inline(inline::InlineArgs),
    /// Measure every block size, queue depth and dispatch mode
    Sweep(sweep::SweepArgs),
    /// Compare concurrent and exclusive writes of partial cipher sectors
    Subblock(subblock::SubBlockArgs),
    /// Compare cryptline with other servers of encrypted disks, over NBD
    Peers(peers::PeersArgs),
    /// Measure latency beside busy processes, by dispatch mode and beside nbdkit and qemu-nbd
    Busy(busy::BusyArgs),
    /// Compare the fronts with each other and with those of qemu-storage-daemon
    Doors(doors::DoorsArgs),
    /// Measure the overhead of a request on RAM, persistent memory and BTT
    Media(media::MediaArgs),
    /// Measure ordered writes to encrypted zones
    Zoned(zoned::ZonedArgs),
    /// Compare the encrypting and decrypting of whole images with other programs
    Images(whole::ImagesArgs),
    /// Compare encryption of Ceph images with librbd's own
    Rbd(rbd::RbdArgs),
    /// Measure how a server grows with exports, clients and size, and what it costs idle
    Scale(scale::ScaleArgs),
    /// Be one of the busy processes of `busy`
    #[command(hide = true)]
    Hog(busy::hogs::HogArgs),
}

fn main() -> ExitCode {
    let BenchArgs { plan, runs, output } = BenchArgs::parse();
    let measured = output.of(|| match &plan {
        Chosen::Inline(args) => inline::measure(args, runs),
        Chosen::Sweep(args) => sweep::measure(args, runs),
        Chosen::Subblock(args) => subblock::measure(args, runs),
        Chosen::Peers(args) => peers::measure(args, runs),
        Chosen::Busy(args) => busy::measure(args, runs),
        Chosen::Doors(args) => doors::measure(args, runs),
        Chosen::Media(args) => media::measure(args, runs),
        Chosen::Zoned(args) => zoned::measure(args, runs),
        Chosen::Images(args) => whole::measure(args, runs),
        Chosen::Rbd(args) => rbd::measure(args, runs),
        Chosen::Scale(args) => scale::measure(args, runs),
        Chosen::Hog(args) => args.run(),
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cryptline-bench: {}", error::on_one_line(&error.0));
            ExitCode::FAILURE
        }
    }
}
