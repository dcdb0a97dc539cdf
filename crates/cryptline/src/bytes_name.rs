//! A target whose name is no text. Names of files are bytes, and one that is not UTF-8 is as good as any other.
//!
//! Such a name is understood as one that is text: the words before a colon, and what follows the last `?`, are ASCII.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cryptline_nbd::NbdUri;
use percent_encoding::{CONTROLS, percent_encode};

use crate::error::{Error, Problem};
use crate::keyed;
use crate::rbd_name;
use crate::target::{Target, Zoned};
use crate::window::{self, Slice};

/// The target that `name` stands for.
pub(crate) fn parse(name: &OsStr) -> Result<Target, Error> {
    let shown = name.to_string_lossy();
    let wrong = |why: String| Error::from(Problem::Target(format!("{shown}: {why}")));
    if NbdUri::is_meant(&shown) || shown.starts_with(rbd_name::SCHEME) {
        return Err(wrong("it is not UTF-8; write other bytes of it in percent-encoding, such as %FF".to_owned()));
    }
    let bytes = name.as_bytes();
    let parts = bytes.iter().rposition(|&byte| byte == b'?').map(|at| (&bytes[..at], &bytes[at + 1..]));
    let Some((named, query)) = parts.filter(|_| !is_file(bytes)) else {
        return whole(bytes).map_err(wrong);
    };
    // Whatever it has is what its value is decoded to.
    let query = format!("?{}", percent_encode(query, CONTROLS));
    if let Some((rest, with)) = keyed::split(&query, false).map_err(wrong)? {
        let of = parse_any(&[named, rest.as_bytes()].concat())?;
        return Ok(with.of(of, shown.into_owned()));
    }
    match window::split(&query, false).map_err(wrong)? {
        Some((_, window)) => {
            let of = whole(named).map_err(wrong)?;
            Ok(Target::Slice(Box::new(Slice { of, window, text: shown.into_owned() })))
        }
        None => whole(bytes).map_err(wrong),
    }
}

fn parse_any(name: &[u8]) -> Result<Target, Error> {
    Target::parse(OsStr::from_bytes(name))
}

/// The target that `name` stands for as a whole.
fn whole(name: &[u8]) -> Result<Target, String> {
    let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
    let Some(colon) = name.iter().position(|&byte| byte == b':') else {
        return Ok(Target::Path(path(name)));
    };
    let rest = &name[colon + 1..];
    Ok(match &name[..colon] {
        b"pmem" => Target::Pmem(path(rest)),
        b"btt" => Target::Btt(path(rest)),
        b"zoned" => Target::Zoned(Zoned::parse_bytes(name, rest)?),
        b"ram" => return Err("that is not a size".to_owned()),
        _ => Target::Path(path(name)),
    })
}

/// Tells if `name` is the whole name of a file that exists, whatever follows its `?`.
fn is_file(name: &[u8]) -> bool {
    let path = name.strip_prefix(b"pmem:").or_else(|| name.strip_prefix(b"btt:")).unwrap_or(name);
    Path::new(OsStr::from_bytes(path)).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartitionName;
    use crate::window::Window;

    fn parsed(name: &[u8]) -> Target {
        parse_any(name).unwrap()
    }

    fn path(name: &[u8]) -> &Path {
        Path::new(OsStr::from_bytes(name))
    }

    #[test]
    fn name_that_is_no_text_is_understood_as_any() {
        let own = path(b"d/\xff.img");
        assert!(matches!(parsed(b"d/\xff.img"), Target::Path(found) if found == own));
        assert!(matches!(parsed(b"pmem:d/\xff.img"), Target::Pmem(found) if found == own));
        assert!(matches!(parsed(b"btt:d/\xff.img"), Target::Btt(found) if found == own));
        assert!(matches!(parsed(b"a:\xff"), Target::Path(found) if found == path(b"a:\xff")));
        let zoned = parsed(b"zoned:d/\xff.img,zone-size=4M");
        assert!(matches!(&zoned, Target::Zoned(zoned) if zoned.options.zone_size == Some(4 << 20)));
        assert_eq!(zoned.path(), Some(own));
        let Target::Slice(slice) = parsed(b"d/\xff.img?partition=2") else { panic!("no part") };
        assert!(matches!(&slice.of, Target::Path(found) if found == own));
        assert!(matches!(slice.window, Window::Partition(PartitionName::Number(2))));
        let Target::Keyed(keyed) = parsed(b"btt:d/\xff.img?offset=1M&key-file=k\xfe%26") else { panic!("no key") };
        assert_eq!(keyed.key_file.as_deref(), Some(path(b"k\xfe&")));
        assert!(matches!(&keyed.of, Target::Slice(slice) if matches!(&slice.of, Target::Btt(found) if found == own)));
        let Target::Keyed(keyed) = parsed(b"disk?key-file=\xfe") else { panic!("no key") };
        assert!(
            keyed.key_file.as_deref() == Some(path(b"\xfe"))
                && matches!(&keyed.of, Target::Path(found) if found == Path::new("disk"))
        );
        assert!(matches!(parsed(b"\xff?x"), Target::Path(found) if found == path(b"\xff?x")));
    }

    #[test]
    fn two_names_that_are_shown_alike_are_two_places() {
        for (one, other) in [
            (&b"\xff"[..], &b"\xfe"[..]),
            (b"pmem:\xff", b"pmem:\xfe"),
            (b"zoned:\xff,zone-size=4M", b"zoned:\xfe,zone-size=4M"),
            (b"\xff?offset=1M", b"\xfe?offset=1M"),
            (b"\xff?partition=1&key-file=k", b"\xfe?partition=1&key-file=k"),
        ] {
            let (one, other) = (parsed(one), parsed(other));
            assert_eq!(one.to_string(), other.to_string());
            assert!(!one.is_same_place(&other) && one.is_same_place(&one.clone()), "{one}");
        }
    }

    #[test]
    fn file_of_that_name_wins_over_a_window() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(path(b"\xff?partition=1"));
        std::fs::write(&file, "").unwrap();
        assert!(matches!(Target::parse(&file).unwrap(), Target::Path(found) if found == file));
        let other = folder.path().join(path(b"\xff?partition=2"));
        assert!(matches!(Target::parse(other).unwrap(), Target::Slice(_)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        for (name, what) in [
            (&b"nbd://host/\xff"[..], "percent-encoding"),
            (b"rbd:pool/\xff", "percent-encoding"),
            (b"ram:\xff", "not a size"),
            (b"zoned:,\xff", "names no file"),
            (b"zoned:disk,zone-size=\xff", "not UTF-8"),
            (b"zoned:\xff,zones=4", "the keys are"),
            (b"\xff?partition=\xff", "no text"),
            (b"\xff?offset=1", "512-byte sectors"),
            (b"\xff?key-file=", "names no file"),
        ] {
            let error = parse_any(name).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }
}
