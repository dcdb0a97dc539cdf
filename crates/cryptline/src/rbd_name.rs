//! How an image of a Ceph cluster is named: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP][?conf=PATH&id=NAME]`.
//!
//! Bytes that would end a value behind the `?` are percent-encoded, as in any URI.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cryptline_engine::base::RbdName;
use percent_encoding::percent_decode_str;

pub(crate) const SCHEME: &str = "rbd:";

/// The name that `text` is, with its scheme.
pub(crate) fn parse(text: &str) -> Result<RbdName, String> {
    let rest = text.strip_prefix(SCHEME).unwrap_or(text);
    let (spec, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (path, snapshot) = match spec.split_once('@') {
        Some((path, snapshot)) => (path, Some(snapshot)),
        None => (spec, None),
    };
    let words: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match words.as_slice() {
        [pool, image] => (*pool, None, *image),
        [pool, namespace, image] => (*pool, Some(*namespace), *image),
        _ => return Err("names no image; use rbd:POOL/IMAGE or rbd:POOL/NAMESPACE/IMAGE".into()),
    };
    for (what, word) in [("pool", Some(pool)), ("namespace", namespace), ("image", Some(image)), ("snapshot", snapshot)]
    {
        if word.is_some_and(str::is_empty) {
            return Err(format!("names no {what}; use rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]"));
        }
    }
    let mut name = RbdName {
        pool: pool.to_owned(),
        namespace: namespace.map(str::to_owned),
        image: image.to_owned(),
        snapshot: snapshot.map(str::to_owned),
        conf: None,
        id: None,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value: Vec<u8> = percent_decode_str(value).collect();
        if value.is_empty() && ["conf", "id"].contains(&key) {
            return Err(format!("{key} says nothing; use {key}=VALUE"));
        }
        let is_new = match key {
            "conf" => {
                let path = OsString::from_vec(value).into();
                name.conf.replace(path).is_none()
            }
            "id" => {
                let id = String::from_utf8(value).map_err(|_| "id is no text".to_owned())?;
                // Both ways to write it are used.
                let id = id.strip_prefix("client.").unwrap_or(&id).to_owned();
                name.id.replace(id).is_none()
            }
            _ => {
                return Err(format!(
                    "unknown '{key}'; of an image there are conf=PATH and id=NAME, partition, offset, length and key-file"
                ));
            }
        };
        if !is_new {
            return Err(format!("{key} is given twice; use it once"));
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_pool_namespace_image_snapshot_and_cluster() {
        let name = parse("rbd:a/b/c@d?conf=/x%26y&id=client.me").unwrap();
        assert_eq!(
            name,
            RbdName {
                pool: "a".into(),
                namespace: Some("b".into()),
                image: "c".into(),
                snapshot: Some("d".into()),
                conf: Some("/x&y".into()),
                id: Some("me".into()),
            }
        );
        let name = parse("rbd:pool/image").unwrap();
        assert_eq!((name.spec().as_str(), name.conf), ("pool/image", None));
    }

    #[test]
    fn what_names_no_image_is_refused() {
        for (text, what) in [
            ("rbd:", "names no image"),
            ("rbd:image", "names no image"),
            ("rbd:a/b/c/d", "names no image"),
            ("rbd:/image", "names no pool"),
            ("rbd:pool/", "names no image"),
            ("rbd:pool//image", "names no namespace"),
            ("rbd:pool/image@", "names no snapshot"),
            ("rbd:pool/image?conf=", "conf says nothing"),
            ("rbd:pool/image?id=a&id=b", "twice"),
            ("rbd:pool/image?user=a", "unknown 'user'"),
            ("rbd:pool/image?id=%ff", "no text"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
