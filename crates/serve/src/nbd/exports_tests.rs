//! Exports that come and go.

use std::sync::atomic::{AtomicUsize, Ordering};

use cryptline_engine::Gate;
use cryptline_engine::base::RamDevice;

use super::*;
use crate::stats::ExportStats;

fn export(name: &str) -> Export {
    Export {
        name: name.to_owned(),
        description: String::new(),
        gate: Gate::new(RamDevice::new(1 << 20).unwrap()),
        minimum_block: 512,
        stats: ExportStats::new(false),
    }
}

fn exports(names: &[&str]) -> Arc<Exports> {
    let exports = names.iter().map(|name| export(name)).collect();
    Exports::new(exports, TlsMode::Off).unwrap()
}

fn find(exports: &Exports, name: &str) -> Option<ExportId> {
    let offered = exports.offered();
    offered.offer.find(name.as_bytes()).and_then(|place| offered.id(place))
}

#[test]
fn an_export_leaves_with_its_last_client_and_keeps_its_name_until_then() {
    let exports = exports(&["a", "b"]);
    let closed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&closed);
    exports.on_closed(move |export, flushed| {
        assert_eq!((export.name.as_str(), flushed), ("b", &Ok(())));
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let id = find(&exports, "b").unwrap();
    let visits = [exports.enter(id).unwrap(), exports.enter(id).unwrap()];
    assert!(matches!(exports.retire("b", false), Ok(Retired::Leaving(2))));
    assert_eq!(find(&exports, "b"), None);
    assert!(exports.enter(id).is_none(), "whoever was told of it before");
    assert_eq!(exports.add(export("b")), Err(OfferError::DuplicateName("b".to_owned())));
    for visit in visits {
        assert!(exports.left(id).is_none());
        drop(visit);
    }
    let closing = exports.left(id).unwrap();
    assert!(exports.left(id).is_none(), "one thread closes it");
    assert_eq!(exports.retire("b", true).err(), Some(RemoveError::Closing("b".to_owned())));
    exports.forget(closing, &Ok(()));
    assert_eq!(closed.load(Ordering::Relaxed), 1);
    assert_eq!(exports.status().len(), 1);
    exports.add(export("b")).unwrap();
    assert_ne!(find(&exports, "b"), Some(id));
}

#[test]
fn nobody_gets_another_disk_than_the_one_that_an_empty_name_meant() {
    let exports = exports(&["a", "b"]);
    assert_eq!(find(&exports, ""), find(&exports, "a"));
    assert!(matches!(exports.retire("b", false), Ok(Retired::Closing(_))));
    assert_eq!(find(&exports, ""), find(&exports, "a"));
    exports.add(export("c")).unwrap();
    assert_eq!(exports.add(export("")), Err(OfferError::DuplicateName(String::new())));
    assert_eq!(exports.default_name().as_deref(), Some("a"));
    assert_eq!(exports.retire("x", true).err(), Some(RemoveError::Unknown("x".to_owned())));
    assert!(matches!(exports.retire("a", true), Ok(Retired::Closing(_))));
    assert_eq!((find(&exports, ""), exports.default_name()), (None, None));
    exports.add(export("")).unwrap();
    assert!(find(&exports, "").is_some() && find(&exports, "c").is_some());
}
