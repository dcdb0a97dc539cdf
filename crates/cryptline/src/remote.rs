//! Comparison of targets behind a network that may have bytes in common, however they are written.
//!
//! Facts that only a server knows stays unknown: that two names are one host, or two exports one file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use cryptline_engine::base::RbdName;
use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::Address;

use crate::Result;
use crate::base::BaseSource;
use crate::places;
use crate::target::Target;
use crate::window::Window;

/// Where Ceph looks for its configuration, unless it is told.
const CEPH_CONF: &str = "/etc/ceph/ceph.conf";

/// A target without what does not say where it lies: its key file, and as whom it is opened.
#[derive(Clone, Copy)]
enum Remote<'a> {
    Nbd(&'a NbdUri),
    Rbd(&'a RbdName),
}

/// Tells if both lie behind a network and have bytes in common there, as far as their names tell: where a partition
/// lies is in its table.
pub(crate) fn overlap(one: &Target, other: &Target) -> bool {
    parts_of_one(one, other).is_some_and(|(first, second)| match (&first[..], &second[..]) {
        ([], _) | (_, []) => true,
        ([one], [other]) => one == other || ranges_overlap(one, other),
        (first, second) => first == second,
    })
}

/// The same, with a look at the tables where the names do not tell. Nobody keeps others out of a part there, as locks of
/// files do.
///
/// # Errors
/// Those of the look.
pub(crate) fn overlap_there(one: &Target, other: &Target) -> Result<bool> {
    if overlap(one, other) {
        return Ok(true);
    }
    let Some((first, second)) = parts_of_one(one, other) else {
        return Ok(false);
    };
    // The numbers of two ranges tell. Of anything else, such as a part of a part, only a look does.
    if let ([Window::Range { .. }], [Window::Range { .. }]) = (&first[..], &second[..]) {
        return Ok(false);
    }
    let place = |target: &Target| {
        let look = BaseSource::Target(target.clone()).look()?;
        Result::Ok(look.start..look.start + look.size)
    };
    Ok(meet(&place(one)?, &place(other)?))
}

fn ranges_overlap(one: &Window, other: &Window) -> bool {
    let range = |window: &Window| match *window {
        Window::Range { offset, length } => {
            let end = length.map_or(u64::MAX, |length| offset.saturating_add(length));
            Some(offset..end)
        }
        Window::Partition(_) => None,
    };
    range(one).zip(range(other)).is_some_and(|(one, other)| meet(&one, &other))
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The parts that both are of the same export or image, if they are.
fn parts_of_one<'a>(one: &'a Target, other: &'a Target) -> Option<(Vec<&'a Window>, Vec<&'a Window>)> {
    let ((one, first), (other, second)) = (remote(one)?, remote(other)?);
    let is_one = match (one, other) {
        (Remote::Nbd(one), Remote::Nbd(other)) => is_one_export(one, other),
        (Remote::Rbd(one), Remote::Rbd(other)) => is_one_image(one, other),
        _ => false,
    };
    is_one.then_some((first, second))
}

/// Returns what it is, and which parts of it from the inside out.
fn remote(target: &Target) -> Option<(Remote<'_>, Vec<&Window>)> {
    match target {
        Target::Nbd(uri) => Some((Remote::Nbd(uri), Vec::new())),
        Target::Rbd(rbd) => Some((Remote::Rbd(&rbd.name), Vec::new())),
        Target::Keyed(keyed) => remote(&keyed.of),
        Target::Slice(slice) => {
            let (of, mut windows) = remote(&slice.of)?;
            windows.push(&slice.window);
            Some((of, windows))
        }
        _ => None,
    }
}

fn is_one_export(one: &NbdUri, other: &NbdUri) -> bool {
    let is_one_place = match (&one.address, &other.address) {
        (Address::Unix(one), Address::Unix(other)) => places::is_one_name(one, other),
        (Address::Tcp { host, port }, Address::Tcp { host: other_host, port: other_port }) => {
            port == other_port && host.eq_ignore_ascii_case(other_host)
        }
        _ => false,
    };
    is_one_place && one.export == other.export
}

fn is_one_image(one: &RbdName, other: &RbdName) -> bool {
    let parts = |name: &RbdName| (name.spec(), name.snapshot.clone());
    let configurations = || {
        let of = |name: &RbdName| name.conf.clone().unwrap_or_else(configuration);
        (of(one), of(other))
    };
    parts(one) == parts(other) && {
        let (one, other) = configurations();
        places::is_one_name(&one, &other)
    }
}

/// The first that Ceph takes.
fn configuration() -> PathBuf {
    let set = std::env::var_os("CEPH_CONF");
    let set = set.as_deref().and_then(|set| {
        let first = set.to_str()?.split([',', ';', ' ']).next()?;
        (!first.is_empty()).then(|| PathBuf::from(first))
    });
    set.unwrap_or_else(|| Path::new(CEPH_CONF).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_numbers_of_two_ranges_do_not_tell_is_looked_at() {
        let whole: Target = "nbd+unix:///?socket=/nowhere/at/all".parse().unwrap();
        let from = |of: &Target, offset| of.clone().slice(Window::Range { offset, length: Some(1 << 20) });
        let (one, other) = (from(&whole, 0), from(&whole, 4 << 20));
        assert!(matches!(overlap_there(&one, &other), Ok(false)));
        // Nobody is there to be looked at.
        assert!(overlap_there(&from(&one, 4096), &other).is_err());
        assert!(overlap_there(&other, &from(&one, 4096)).is_err());
    }

    #[test]
    fn target_behind_a_network_is_known_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("ceph.conf");
        std::fs::write(&conf, "").unwrap();
        let link = folder.path().join("link.conf");
        std::os::unix::fs::symlink(&conf, &link).unwrap();
        let (conf, link) = (conf.display(), link.display());
        let is_one = |one: &str, other: &str| {
            let parse = |text: &str| text.parse::<Target>().unwrap();
            let (one, other) = (parse(one), parse(other));
            assert_eq!(one.is_same_place(&other), other.is_same_place(&one));
            one.is_same_place(&other)
        };
        for (one, other) in [
            ("rbd:a/b", "rbd:a/b?id=me"),
            ("rbd:a/b?id=me", "rbd:a/b?key-file=k"),
            ("rbd:a/n/b?id=client.me", "rbd:a/n/b?id=me"),
            ("rbd:a/b@s?id=me", "rbd:a/b@s"),
            ("rbd:a/b?partition=2&id=me", "rbd:a/b?partition=2"),
            (&format!("rbd:a/b?conf={conf}"), &format!("rbd:a/b?conf={link}")),
            ("nbd://host", "nbd://HOST:10809/"),
            ("nbd://host/e", "nbds://me@host/e"),
            ("nbd://host/e?offset=1M", "nbd://host/e?offset=1024K"),
            ("nbd+unix:///e?socket=/s", "nbd+unix:///e?socket=//s"),
            // Bytes in common are enough.
            ("rbd:a/b?partition=1", "rbd:a/b"),
            ("nbd://host/e?offset=1M", "nbd://host/e?length=2M"),
            ("nbd://host/e?offset=1M&length=1M", "nbd://host/e"),
        ] {
            assert!(is_one(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("rbd:a/b", "rbd:a/c"),
            ("rbd:a/b", "rbd:a/n/b"),
            // A snapshot stays as it is.
            ("rbd:a/b@s", "rbd:a/b"),
            ("rbd:a/b", &format!("rbd:a/b?conf={conf}")),
            ("rbd:a/b?partition=1", "rbd:a/b?partition=2"),
            ("nbd://host/e?offset=1M", "nbd://host/e?length=1M"),
            ("nbd://host/e", "nbd://host/f"),
            ("nbd://host/e", "nbd://host:1/e"),
            ("nbd://host/e", "nbd+unix:///e?socket=host"),
        ] {
            assert!(!is_one(one, other), "{one} {other}");
        }
    }
}
