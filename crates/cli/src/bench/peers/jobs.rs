//! The loads, and who makes them.

use std::fmt;

use clap::ValueEnum;

use crate::bench::report::{Direction, Pattern, Shape};

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Random reads of 4 KiB, 32 in flight
    #[value(name = "4k-randread-qd32")]
    RandRead,
    /// Random writes of 4 KiB, 32 in flight
    #[value(name = "4k-randwrite-qd32")]
    RandWrite,
    /// Reads of 1 MiB in order, 4 in flight
    #[value(name = "1m-read-qd4")]
    Read,
    /// Writes of 1 MiB in order, 4 in flight
    #[value(name = "1m-write-qd4")]
    Write,
    /// Random reads of 4 KiB, one at a time
    #[value(name = "4k-randread-qd1")]
    RandReadOne,
}

/// A load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generator {
    /// fio with its nbd engine, one connection
    Fio,
    /// The client of this program, one connection
    Lean,
    /// The same, with several connections, each with a thread and requests of its own
    LeanMany,
}

impl Load {
    /// Reads first: they find the images as they were made.
    pub const ALL: [Self; 5] = [
        Self::RandRead,
        Self::RandReadOne,
        Self::Read,
        Self::RandWrite,
        Self::Write,
    ];

    /// Its shape on each of `streams` connections.
    pub fn shape(self, streams: u32) -> Shape {
        let (direction, pattern, block, depth) = match self {
            Self::RandRead => (Direction::Read, Pattern::Random, 4096, 32),
            Self::RandWrite => (Direction::Write, Pattern::Random, 4096, 32),
            Self::Read => (Direction::Read, Pattern::Sequential, 1 << 20, 4),
            Self::Write => (Direction::Write, Pattern::Sequential, 1 << 20, 4),
            Self::RandReadOne => (Direction::Read, Pattern::Random, 4096, 1),
        };
        Shape {
            direction,
            pattern,
            block,
            depth,
            streams,
        }
    }

    /// For headings.
    pub fn title(self) -> &'static str {
        match self {
            Self::RandRead => "4 KiB random reads, 32 in flight",
            Self::RandWrite => "4 KiB random writes, 32 in flight",
            Self::Read => "1 MiB reads in order, 4 in flight",
            Self::Write => "1 MiB writes in order, 4 in flight",
            Self::RandReadOne => "4 KiB random reads, one at a time",
        }
    }

    /// fio's word for it.
    pub fn fio_rw(self) -> &'static str {
        match self {
            Self::RandRead | Self::RandReadOne => "randread",
            Self::RandWrite => "randwrite",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Generator {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fio, Self::Lean, Self::LeanMany];

    /// Connections that it makes.
    pub fn streams(self, many: u32) -> u32 {
        match self {
            Self::Fio | Self::Lean => 1,
            Self::LeanMany => many,
        }
    }
}

/// As on the command line.
fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&value_name(self))
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&value_name(self))
    }
}
