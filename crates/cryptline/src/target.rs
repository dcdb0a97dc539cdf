//! Place of a volume, as a user names it.
//!
//! ```text
//! PATH                                a file or block device
//! ram:SIZE                            memory, empty each time
//! pmem:PATH                           a file or DAX device, mapped
//! btt:PATH                            the same with a block translation table on it
//! zoned:PATH[,KEY=VALUE...]           emulated zones over a file, their state in PATH.zones
//! zoned:ram:SIZE,zone-size=SIZE,...   the same in memory
//! nbd://HOST[:PORT]/EXPORT            an export of an NBD server
//! nbd+unix:///EXPORT?socket=PATH      the same over a Unix socket
//! rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]   an image of a Ceph cluster; ?conf=PATH&id=NAME say which, and as whom
//! ...?partition=N|LABEL|UUID          a partition of any of them
//! ...?offset=SIZE&length=SIZE         a range of any of them
//! ...?key-file=PATH                   any of them, with the key file that opens it
//! ...?accept-cipher=SPEC              any of them, with a cipher that is accepted of its header
//! ```
//!
//! A file whose name begins like one of these is named by `./`. One whose name ends like a partition or range is
//! meant itself, where it exists.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cryptline_engine::base::{RbdName, ZoneOptions};
use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::UriError;

use crate::base::BaseSource;
use crate::bytes_name;
use crate::error::{Error, Problem};
use crate::keyed::{self, Keyed};
use crate::places::{self, Spot};
use crate::rbd_name;
use crate::remote;
use crate::size::{parse, parse_disk};
use crate::table::TableLine;
use crate::window::{self, Slice, Window};

const ZONE_KEYS: &str = "zone-size, zone-capacity, conventional, max-open, max-active, granularity";

/// Where a volume lies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Target {
    /// A regular file or a block device.
    Path(PathBuf),
    /// Memory of this many bytes.
    Ram(u64),
    /// A file or DAX device, mapped into memory.
    Pmem(PathBuf),
    /// The same with a block translation table on it.
    Btt(PathBuf),
    /// Emulated zones.
    Zoned(Zoned),
    /// An export of an NBD server.
    Nbd(Box<NbdUri>),
    /// An image of a Ceph cluster.
    Rbd(Box<Rbd>),
    /// A device-mapper table line, which names its device and has the key.
    Table(TableLine),
    /// A part of any other.
    Slice(Box<Slice>),
    /// Any other with what opens it, such as its key file unless another key is given.
    Keyed(Box<Keyed>),
}

/// An image of a Ceph cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rbd {
    /// Which.
    pub name: RbdName,
    /// All of it as it was written, for messages.
    text: String,
}

/// Emulated zones over a file or memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zoned {
    /// Storage below.
    pub place: ZoneBacking,
    /// How the zones lie. A device that exists already knows.
    pub options: ZoneOptions,
    /// All of it as it was written, for messages.
    text: String,
}

/// Storage below emulated zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneBacking {
    /// A regular file.
    File(PathBuf),
    /// Memory of this many bytes.
    Ram(u64),
}

impl Target {
    /// The target that `name` stands for. What does not begin with a known word is a path.
    ///
    /// # Errors
    /// A size or an option that makes no sense.
    pub fn parse(name: impl AsRef<OsStr>) -> Result<Self, Error> {
        let name = name.as_ref();
        match name.to_str() {
            Some(text) => text.parse(),
            None => bytes_name::parse(name),
        }
    }

    /// Tells if it is memory: new and empty each time it is opened.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        match self {
            Self::Ram(_) => true,
            Self::Zoned(zoned) => matches!(zoned.place, ZoneBacking::Ram(_)),
            Self::Slice(slice) => slice.of.is_memory(),
            Self::Keyed(keyed) => keyed.of.is_memory(),
            _ => false,
        }
    }

    /// Tells if it lies behind an NBD server.
    pub(crate) fn is_nbd(&self) -> bool {
        match self {
            Self::Nbd(_) => true,
            Self::Slice(slice) => slice.of.is_nbd(),
            Self::Keyed(keyed) => keyed.of.is_nbd(),
            _ => false,
        }
    }

    /// A part of it.
    #[must_use]
    pub fn slice(self, window: Window) -> Self {
        let which = match &window {
            Window::Partition(name) => format!("partition {name}"),
            Window::Range { offset, .. } => format!("from byte {offset} on"),
        };
        let text = format!("{self}, {which}");
        Self::Slice(Box::new(Slice { of: self, window, text }))
    }

    /// The file or device that it lies on; `None` for memory, and for a table, which may name either.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Pmem(path) | Self::Btt(path) => Some(path),
            Self::Zoned(zoned) => match &zoned.place {
                ZoneBacking::File(path) => Some(path),
                ZoneBacking::Ram(_) => None,
            },
            Self::Slice(slice) => slice.of.path(),
            Self::Keyed(keyed) => keyed.of.path(),
            Self::Ram(_) | Self::Nbd(_) | Self::Rbd(_) | Self::Table(_) => None,
        }
    }

    /// Tells if a copy of one would overwrite the other: both are all of the same file or block device, whatever its
    /// name, or one lies on the other (a loop device on its file, a partition on its disk), or both have bytes in
    /// common of one export of a server or one image of a cluster, as far as their names tell. Parts of a file or block
    /// device need not overlap; where they do, the lock of one keeps the other out.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        let whole = !matches!(self, Self::Slice(_));
        let same = self.path().filter(|_| whole);
        same.is_some_and(|path| other.is_on(path)) || remote::overlap(self, other) || self.is_called_as(other)
    }

    /// Tells if both have one name, though nothing may be there. Two that are no text may be shown alike.
    pub(crate) fn is_called_as(&self, other: &Self) -> bool {
        let shown = self.to_string();
        let is_text = !shown.contains(char::REPLACEMENT_CHARACTER);
        shown == other.to_string() && (is_text || self.path() == other.path())
    }

    /// Tells if a new file at `path` would replace what it lies on, or a part of it does, though it may not be there
    /// yet.
    pub(crate) fn is_replaced_by(&self, path: &Path) -> bool {
        self.path().is_some_and(|own| places::is_one_name(own, path))
    }

    /// Tells if a header that is made at `header` would overwrite it, or what it is a part of, though neither may be
    /// there yet.
    #[must_use]
    pub fn is_lost_to(&self, header: &Self) -> bool {
        let whole = header.path().filter(|_| !matches!(header, Self::Slice(_)));
        self.is_same_place(header) || whole.is_some_and(|path| self.is_replaced_by(path))
    }

    /// Tells if it is all of the file or block device at `path`, or that lies on it.
    pub(crate) fn is_on(&self, path: &Path) -> bool {
        let own = self.path().filter(|_| !matches!(self, Self::Slice(_)));
        own.is_some_and(|own| places::overlap(own, path))
    }

    /// Where its bytes lie on this machine, if they do: those of a part where that is known, else all of what it is a part of.
    pub(crate) fn spot(&self) -> Option<Spot> {
        let spot = Spot::of(self.path()?);
        let Self::Slice(slice) = self else {
            return Some(spot);
        };
        let place = match slice.of {
            Self::Path(_) => BaseSource::Target(self.clone()).look().ok(),
            // A table puts its sectors anywhere.
            _ => None,
        };
        Some(match place {
            Some(look) => spot.part(&(look.start..look.start.saturating_add(look.size))),
            None => spot,
        })
    }

    /// The target that `text` stands for as a whole.
    fn whole(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::from(Problem::Target(format!("{text}: {why}")));
        if text.is_empty() {
            return Err(Problem::Target("no target is named".to_owned()).into());
        }
        if NbdUri::is_meant(text) {
            let uri = text.parse().map_err(|error: UriError| wrong(error.to_string()))?;
            return Ok(Self::Nbd(Box::new(uri)));
        }
        if text.starts_with(rbd_name::SCHEME) {
            let name = rbd_name::parse(text).map_err(wrong)?;
            let text = text.to_owned();
            return Ok(Self::Rbd(Box::new(Rbd { name, text })));
        }
        Ok(match text.split_once(':') {
            Some(("ram", size)) => Self::Ram(parse_disk(size).map_err(wrong)?),
            Some(("pmem", path)) => Self::Pmem(path.into()),
            Some(("btt", path)) => Self::Btt(path.into()),
            Some(("zoned", rest)) => Self::Zoned(Zoned::parse(text, rest).map_err(wrong)?),
            _ => Self::Path(text.into()),
        })
    }
}

/// Tells if `text` is the whole name of a file that exists, whatever follows its `?`.
fn is_file(text: &str) -> bool {
    let path = match text.split_once(':') {
        Some(("pmem" | "btt", path)) => path,
        Some(("ram" | "zoned" | "rbd", _)) => return false,
        _ => text,
    };
    !NbdUri::is_meant(text) && Path::new(path).symlink_metadata().is_ok()
}

/// Tells if parameters of its own may follow its `?`.
fn is_uri(text: &str) -> bool {
    NbdUri::is_meant(text) || text.starts_with(rbd_name::SCHEME)
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::from(Problem::Target(format!("{text}: {why}")));
        match keyed::split(text, is_uri(text)) {
            Ok(None) => {}
            _ if is_file(text) => return Self::whole(text),
            Err(why) => return Err(wrong(why)),
            Ok(Some((of, with))) => return Ok(with.of(of.parse()?, text.to_owned())),
        }
        match window::split(text, is_uri(text)) {
            Ok(None) => Self::whole(text),
            _ if is_file(text) => Self::whole(text),
            Err(why) => Err(wrong(why)),
            Ok(Some((of, window))) => {
                Ok(Self::Slice(Box::new(Slice { of: Self::whole(&of)?, window, text: text.to_owned() })))
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Ram(bytes) => write!(f, "ram:{}", short(*bytes)),
            Self::Pmem(path) => write!(f, "pmem:{}", path.display()),
            Self::Btt(path) => write!(f, "btt:{}", path.display()),
            Self::Zoned(zoned) => f.write_str(&zoned.text),
            Self::Nbd(uri) => write!(f, "{uri}"),
            Self::Rbd(rbd) => f.write_str(&rbd.text),
            Self::Table(line) => write!(f, "{line}"),
            Self::Slice(slice) => slice.fmt(f),
            Self::Keyed(keyed) => keyed.fmt(f),
        }
    }
}

impl Zoned {
    fn parse(text: &str, rest: &str) -> Result<Self, String> {
        Self::parse_bytes(text.as_bytes(), rest.as_bytes())
    }

    /// The name and what follows its first colon, of which the file's may be any bytes.
    pub(crate) fn parse_bytes(name: &[u8], rest: &[u8]) -> Result<Self, String> {
        let mut parts = rest.splitn(2, |&byte| byte == b',');
        let (place, options) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let place = match str::from_utf8(place).ok().and_then(|place| place.strip_prefix("ram:")) {
            Some(size) => ZoneBacking::Ram(parse_disk(size)?),
            None if place.is_empty() => {
                return Err("names no file; use zoned:PATH,zone-size=SIZE or zoned:ram:SIZE,zone-size=SIZE".into());
            }
            None => ZoneBacking::File(OsStr::from_bytes(place).into()),
        };
        let options = str::from_utf8(options).map_err(|_| "its options are not UTF-8".to_owned())?;
        let text = String::from_utf8_lossy(name).into_owned();
        Ok(Self { place, options: zone_options(options)?, text })
    }
}

fn zone_options(text: &str) -> Result<ZoneOptions, String> {
    let mut options = ZoneOptions::default();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (key, value) =
            word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE; the keys are {ZONE_KEYS}"))?;
        let count = || value.parse::<u32>().map_err(|_| format!("{key}={value} is not a count"));
        let is_new = match key {
            "zone-size" => options.zone_size.replace(parse(value)?).is_none(),
            "zone-capacity" => options.capacity.replace(parse(value)?).is_none(),
            "conventional" => options.conventional.replace(count()?).is_none(),
            "max-open" => options.max_open.replace(count()?).is_none(),
            "max-active" => options.max_active.replace(count()?).is_none(),
            "granularity" => {
                let bytes = u32::try_from(parse(value)?).map_err(|_| format!("granularity={value} is too large"))?;
                options.write_granularity.replace(bytes).is_none()
            }
            _ => return Err(format!("unknown '{key}'; the keys are {ZONE_KEYS}")),
        };
        if !is_new {
            return Err(format!("{key} is given twice; use it once"));
        }
    }
    Ok(options)
}

/// A size as it can be parsed again.
fn short(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let unit = units.into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_before_a_colon_choose_and_everything_else_is_a_path() {
        for (text, shown) in [
            ("disk.img", "disk.img"),
            ("./ram:1G", "./ram:1G"),
            ("a:b", "a:b"),
            ("ram:1048576", "ram:1M"),
            ("ram:512", "ram:512"),
            ("pmem:/dev/pmem0", "pmem:/dev/pmem0"),
            ("btt:disk", "btt:disk"),
            ("zoned:disk,zone-size=4M", "zoned:disk,zone-size=4M"),
            ("nbd://host", "nbd://host/"),
            ("NBD://host:10809/disk", "nbd://host/disk"),
            ("nbd+unix:///disk?socket=/s", "nbd+unix:///disk?socket=/s"),
            ("./nbd://host", "./nbd://host"),
            ("nbd:disk", "nbd:disk"),
            ("rbd:pool/ns/disk@s?id=a", "rbd:pool/ns/disk@s?id=a"),
            ("rbd:pool/disk?id=a&partition=1", "rbd:pool/disk?id=a&partition=1"),
            ("./rbd:pool/disk", "./rbd:pool/disk"),
            ("disk.img?partition=2", "disk.img?partition=2"),
            ("ram:1G?offset=1M", "ram:1G?offset=1M"),
            ("disk?x=2", "disk?x=2"),
            ("disk?key-file=k", "disk?key-file=k"),
            ("btt:disk?partition=1&key-file=k", "btt:disk?partition=1&key-file=k"),
            ("nbd+unix:///disk?socket=/s&partition=root", "nbd+unix:///disk?socket=/s&partition=root"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse::<Target>().unwrap().to_string(), shown);
        }
        assert!(Target::parse("ram:1G").unwrap().is_memory());
        let zoned = Target::parse("zoned:ram:1G,zone-size=4M").unwrap();
        assert!(zoned.is_memory() && zoned.path().is_none());
        assert!(!Target::parse("btt:disk").unwrap().is_memory());
        assert!(Target::parse("ram:1G?offset=1M").unwrap().is_memory());
    }

    #[test]
    fn file_of_that_name_wins_over_a_window() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["disk?partition=1", "disk?offset=1&x=2"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            let text = path.to_str().unwrap();
            assert!(matches!(Target::parse(text).unwrap(), Target::Path(found) if found == path));
            let btt = Target::parse(format!("btt:{text}")).unwrap();
            assert!(matches!(btt, Target::Btt(found) if found == path));
        }
        let other = folder.path().join("disk?partition=2");
        assert!(matches!(Target::parse(other).unwrap(), Target::Slice(_)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        for (text, what) in [
            ("", "no target"),
            ("ram:", "not a size"),
            ("ram:0", "holds nothing"),
            ("zoned:", "names no file"),
            ("zoned:,zone-size=4M", "names no file"),
            ("zoned:ram:x,zone-size=4M", "not a size"),
            ("zoned:disk,zone-size", "KEY=VALUE"),
            ("zoned:disk,zone-size=x", "not a size"),
            ("zoned:disk,conventional=-1", "not a count"),
            ("zoned:disk,max-open=99999999999", "not a count"),
            ("zoned:disk,granularity=8G", "too large"),
            ("zoned:disk,zones=4", "the keys are"),
            ("zoned:disk,max-open=1,max-open=2", "given twice"),
            ("nbd://", "names no host"),
            ("nbd+unix:///disk", "names no socket"),
            ("nbd://host:0/", "port"),
            ("nbd+vsock://2:10809/disk", "VSOCK-CONNECT:CID:PORT"),
            ("nbds+ssh://host/disk?partition=1", "ssh -N -L"),
            ("nbds://host/disk?tls-psk-file=keys", "tls-certificates=DIR"),
            ("nbd+http://host/disk", "must start with"),
            ("rbd:disk", "names no image"),
            ("rbd:pool/disk?user=me", "unknown 'user'"),
            ("?partition=1", "no target"),
            ("disk?partition=", "no partition"),
            ("disk?offset=1", "512-byte sectors"),
            ("disk?offset=1&key-file=k", "512-byte sectors"),
            ("disk?key-file=", "names no file"),
            ("?key-file=k", "no target"),
            ("nbd://host/?partition=1&x=2", "not understood"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(what) && !text.contains('\n'), "{text}");
            assert_eq!(error.kind(), crate::ErrorKind::Parameters);
        }
    }

    #[test]
    fn every_zone_option_is_taken() {
        let options =
            zone_options("zone-size=64M,zone-capacity=48M,conventional=2,max-open=3,max-active=4,granularity=512");
        let expected = ZoneOptions {
            zone_size: Some(64 << 20),
            capacity: Some(48 << 20),
            conventional: Some(2),
            max_open: Some(3),
            max_active: Some(4),
            write_granularity: Some(512),
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(zone_options(""), Ok(ZoneOptions::default()));
    }
}
