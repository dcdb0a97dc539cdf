//! Facts that a user should know about a volume that opens.

use std::fmt;
use std::path::PathBuf;

use cryptline_engine::btt::InfoBlockLost;
use cryptline_luks::Doubted;
use cryptline_sys::key_memory_is_locked;

const DISCARDS_NOT_ASKED: &str = "the header has the flag 'allow-discards', which anybody can have set who can write to it, \
    so discards are not passed down";

const FORMER_UUID: &str = "is bound to the former UUID, so its helper will refuse it; set that UUID again, or bind another token \
    and remove this one";

const STATE_UNCHANGED: &str = "may not know of the new seal, and then does not refuse the header from before";

/// Something that does not keep a volume from being opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Finding of the LUKS header's reader, such as a damaged copy.
    Header(String),
    /// The cipher that the header names may be somebody else's, so the volume is opened for reading only.
    Doubted(Doubted),
    /// The header asks for discards, and whoever opens it does not.
    DiscardsNotAsked,
    /// A flag of the header that is not known here.
    UnknownFlag(String),
    /// A token of the header was passed over, though it should have unlocked the volume.
    Token {
        /// Its number.
        id: u32,
        /// Description of what was wrong with it.
        why: String,
    },
    /// The helper of a token refuses it from now on, since it knows the volume by its former UUID.
    FormerUuid {
        /// The number of the token.
        token: u32,
    },
    /// A token that was made keeps fewer people out than one may think.
    WeakToken(String),
    /// The seal of the header does not hold for what the header has become.
    SealVoid,
    /// The counter of a new seal is not kept, though that was asked for.
    CounterNotNoted {
        /// The state file.
        path: PathBuf,
        /// Description of what kept it from being written.
        why: String,
    },
    /// Writes of a zoned device are encrypted inline, though the queue was asked for.
    ZonedQueue,
    /// Writes are encrypted inline, though the queue was asked for: the NBD server below takes one connection.
    OneConnection,
    /// A write that is under way when the connection to the NBD server below is lost is lost with it, though connections
    /// are made again: the server takes one.
    OnlyReadsAgain,
    /// The same, because the end of the server cannot be known.
    EndUnknown,
    /// The user may not raise the priority of threads, though that was asked for.
    NoPriority,
    /// Others use the target too, and the page cache may hide what they write.
    SharedPageCache,
    /// A crash can damage the neighbours of a small write.
    Neighbours {
        /// Bytes in a cipher sector.
        sector: u32,
    },
    /// A crash can tear cipher sectors, since those of the table are smaller.
    TornSectors {
        /// Bytes in a cipher sector.
        sector: u32,
        /// Bytes in a sector of the block translation table.
        btt: u32,
    },
    /// A block translation table is damaged, and can be repaired.
    Btt(InfoBlockLost),
    /// Finding in the state of emulated zones.
    Zones(String),
    /// A partition table is damaged, and could be used.
    PartitionTable(String),
    /// A Ceph image is too small for data to begin where Ceph's own encryption wants it.
    CephOffset {
        /// Where it wants it.
        wanted: u64,
    },
    /// A Ceph image was locked by a client that is gone, which the cluster had to notice first.
    CephLockLeft {
        /// The address of that client.
        owner: String,
    },
    /// More helpers were asked for than there are cores.
    FewerHelpers {
        /// Number that was asked for.
        wanted: usize,
        /// The cores that this program may use, and so the helpers that were started.
        cores: usize,
    },
    /// Keys may be written to swap space.
    KeysNotLocked,
}

impl Warning {
    /// Warns that keys may reach the swap space, if any has been where it could.
    pub(crate) fn of_key_memory() -> Option<Self> {
        (!key_memory_is_locked()).then_some(Self::KeysNotLocked)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(text) | Self::Zones(text) | Self::WeakToken(text) => f.write_str(text),
            Self::Doubted(doubted) => write!(f, "{doubted}, so it is opened for reading only"),
            Self::DiscardsNotAsked => f.write_str(DISCARDS_NOT_ASKED),
            Self::UnknownFlag(name) => write!(
                f,
                "the header's flag '{}' is not known here and changes nothing",
                name.escape_debug()
            ),
            Self::FormerUuid { token } => write!(f, "token {token} {FORMER_UUID}"),
            Self::Token { id, why } => write!(f, "skipping token {id}: {why}"),
            Self::SealVoid => f.write_str("the seal of the header does not hold any more, since the header has changed"),
            Self::CounterNotNoted { path, why } => write!(f, "the state file {path:?} {STATE_UNCHANGED} ({why})"),
            Self::OneConnection => f.write_str(
                "the NBD server takes one connection, so writes are encrypted inline",
            ),
            Self::OnlyReadsAgain => f.write_str(
                "the NBD server takes one connection (no NBD_FLAG_CAN_MULTI_CONN), so it cannot be known what became of a \
                 write under way when that is lost: reads and what comes later go to the next connection, but after such \
                 a write the volume has to be opened again",
            ),
            Self::EndUnknown => f.write_str(
                "it cannot be known when the NBD server has ended (it is reached over TCP, or the process that listened on \
                 its Unix socket is not the one that answers there), so neither what became of a write under way when the \
                 connection is lost: reads and what comes later go to the next connection, but after such a write the \
                 volume has to be opened again",
            ),
            Self::ZonedQueue => f.write_str(
                "a zoned device takes writes in order, so the thread that submits them encrypts them; \
                 only reads go through the queue",
            ),
            Self::NoPriority => f.write_str(
                "high_priority: this user may not raise the priority of threads, so the workers have the \
                 ordinary one",
            ),
            Self::SharedPageCache => f.write_str("the page cache may hide what others write to the target"),
            Self::Neighbours { sector } => write!(
                f,
                "a crash in the middle of a write smaller than {sector} bytes can damage its neighbours in the \
                 same cipher sector, unless the medium writes {sector} bytes at once; over btt: it cannot"
            ),
            Self::TornSectors { sector, btt } => write!(
                f,
                "cipher sectors of {sector} bytes lie over BTT sectors of {btt} and can be torn by a crash; a \
                 table of {sector}-byte sectors prevents that"
            ),
            Self::Btt(lost) => lost.fmt(f),
            Self::PartitionTable(why) => {
                write!(f, "the partition table is damaged ({why}); fdisk or gdisk repairs it")
            }
            Self::CephOffset { wanted } => write!(
                f,
                "the image is too small for data to begin at {wanted} bytes, so this program opens the volume, and \
                 Ceph's own encryption (rbd encryption) does not"
            ),
            Self::CephLockLeft { owner } => write!(
                f,
                "the image was locked by a client that is gone ({owner}), and has been taken over from it"
            ),
            Self::FewerHelpers { wanted, cores } => write!(
                f,
                "this program may use {cores} cores, and more helpers would only wait for each other: of \
                 {wanted} it starts {cores}"
            ),
            Self::KeysNotLocked => f.write_str(
                "keys may be written to swap space: the limit on locked memory (RLIMIT_MEMLOCK) has no room \
                 for them; raise it to 8 MiB, or encrypt the swap space",
            ),
        }
    }
}
