//! Policies: what the header of a volume may say, in a file of its operator's. docs/header-seal.md lists the members.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use cryptline_luks::LuksHeader;
use cryptline_luks::info::{HeaderInfo, SegmentInfo};
use cryptline_luks::seal::{Covers, SEAL_TOKEN, Seal, SealKind, SealSubject};
use serde::{Deserialize, Serialize};

use super::{RulesError, Signed, hash_of_len, hex, read_small};
use crate::Result;

/// A policy in its file.
pub(super) struct HeaderPolicy {
    path: PathBuf,
    says: PolicyMembers,
}

/// Members of a policy. What it does not have is not demanded.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct PolicyMembers {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    luks: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cipher: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_bits: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sector_size: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discards: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keyslots_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kdf: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measure: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    covers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_older_than: Option<String>,
}

impl HeaderPolicy {
    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_small(path, "header policy")?;
        let wrong = |why: String| RulesError::BadPolicy { path: path.into(), why };
        let says: PolicyMembers = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let policy = Self { path: path.to_owned(), says };
        policy.defect().map_or(Ok(policy), |why| Err(wrong(why).into()))
    }

    /// Why it makes no sense, if it does not.
    fn defect(&self) -> Option<String> {
        let says = &self.says;
        let is_number = |text: &String| text.parse::<u64>().is_ok_and(|number| number.to_string() == *text);
        let is_odd = |text: &Option<String>| text.as_ref().is_some_and(|text| !is_number(text));
        if says.version != 1 {
            return Some(format!("version {} is not known; 1 is", says.version));
        }
        if is_odd(&says.offset)
            || is_odd(&says.not_older_than)
            || says.size.as_ref().is_some_and(|size| size != "dynamic" && !is_number(size))
        {
            return Some(
                "offset, size and not_older_than are decimal numbers in quotation marks, size perhaps \"dynamic\""
                    .to_owned(),
            );
        }
        if says.signed.as_deref().is_some_and(|word| SealKind::by_word(word).is_none()) {
            return Some("signed is \"volume-key\" or \"file\"".to_owned());
        }
        let is_part = |name: &String| Covers::default().with(name).is_some();
        if !says.covers.iter().flatten().all(is_part) {
            return Some("covers has \"keyslots\" and \"tokens\" only".to_owned());
        }
        let is_hash = |hash: &String| hash.len().is_multiple_of(2) && hash_of_len(hash.len() / 2).is_some();
        if !says.measure.iter().flatten().all(is_hash) {
            return Some("a measure has the hexadecimal digits of a SHA-256, SHA-384 or SHA-512 hash".to_owned());
        }
        None
    }

    /// Checks all but the seal.
    pub fn check_header(&self, header: &LuksHeader, subject: &SealSubject) -> Result<()> {
        let (says, info) = (&self.says, header.info());
        self.one_of("luks", says.luks.as_deref(), [info.version])?;
        let segments = &info.segments;
        let only = |segment: &SegmentInfo| segment.cipher.clone().unwrap_or_else(|| segment.kind.clone());
        self.one_of("cipher", says.cipher.as_deref(), segments.iter().map(only))?;
        self.one_of(
            "key_bits",
            says.key_bits.as_deref(),
            segments.iter().map(|segment| segment.key_bits.unwrap_or(0)),
        )?;
        let sectors = segments.iter().map(|segment| segment.sector_size.unwrap_or(512));
        self.one_of("sector_size", says.sector_size.as_deref(), sectors)?;
        self.same("segments", says.segments.as_ref(), segments.len())?;
        // Where the data is, is said of one segment only.
        let one = |of: &dyn Fn(&SegmentInfo) -> String| match segments.as_slice() {
            [segment] => of(segment),
            _ => format!("{} segments", segments.len()),
        };
        self.same("offset", says.offset.as_ref(), one(&|segment| segment.offset.to_string()))?;
        self.same("size", says.size.as_ref(), one(&size_of))?;
        // That they are not there is no danger.
        let discards = info.flags.iter().any(|flag| flag == "allow-discards");
        self.same("discards", says.discards.as_ref().filter(|allowed| !**allowed), discards)?;
        let tokens = info.tokens.iter().map(|token| token.kind.clone()).filter(|kind| kind != SEAL_TOKEN);
        self.one_of("tokens", says.tokens.as_deref(), tokens)?;
        if let Some(most) = says.keyslots_max.filter(|most| *most < info.keyslots.len()) {
            return Err(self.broken("keyslots_max", &info.keyslots.len(), &most).into());
        }
        self.one_of("kdf", says.kdf.as_deref(), kdfs(&info))?;
        self.same("uuid", says.uuid.as_ref(), info.uuid.clone())?;
        if let Some(measures) = &says.measure {
            let measured = |wanted: &String| hash_of_len(wanted.len() / 2).map(|hash| hex(&subject.measure(hash)));
            if !measures.iter().any(|wanted| measured(wanted).is_some_and(|found| found.eq_ignore_ascii_case(wanted))) {
                let found = measures.iter().filter_map(measured).collect::<Vec<_>>();
                return Err(self.broken("measure", &found, measures).into());
            }
        }
        Ok(())
    }

    /// Checks what it says of the seal.
    pub fn check_seal(&self, seal: &Seal) -> Result<()> {
        self.same("key_id", self.says.key_id.as_ref(), seal.key_id.clone())?;
        match &self.says.covers {
            Some(wanted) if !wanted.iter().all(|part| seal.covers.names().contains(&part.as_str())) => {
                Err(self.broken("covers", &seal.covers.names(), wanted).into())
            }
            _ => Ok(()),
        }
    }

    /// The seals that it wants.
    pub fn signed(&self) -> Option<Signed> {
        let says = &self.says;
        let wants_any = says.key_id.is_some() || says.covers.is_some() || says.not_older_than.is_some();
        says.signed.as_deref().and_then(Signed::by_word).or(wants_any.then_some(Signed::Any))
    }

    /// The least counter of a seal.
    pub fn not_older_than(&self) -> Option<u64> {
        self.says.not_older_than.as_ref()?.parse().ok()
    }

    fn one_of<T: PartialEq + Debug>(
        &self,
        member: &'static str,
        wanted: Option<&[T]>,
        found: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let Some(wanted) = wanted else { return Ok(()) };
        match found.into_iter().find(|found| !wanted.contains(found)) {
            Some(other) => Err(self.broken(member, &other, &wanted).into()),
            None => Ok(()),
        }
    }

    fn same<T: PartialEq + Debug>(&self, member: &'static str, wanted: Option<&T>, found: T) -> Result<()> {
        match wanted {
            Some(wanted) if *wanted != found => Err(self.broken(member, &found, wanted).into()),
            _ => Ok(()),
        }
    }

    fn broken(&self, member: &'static str, found: &dyn Debug, wanted: &dyn Debug) -> RulesError {
        RulesError::Policy {
            path: self.path.clone(),
            member,
            found: format!("{found:?}"),
            wanted: format!("{wanted:?}"),
        }
    }
}

/// Key derivation functions of the key slots, by the names that the header has for them.
fn kdfs(info: &HeaderInfo) -> impl Iterator<Item = String> {
    info.keyslots.iter().filter_map(|slot| Some(slot.kdf.as_ref()?.kind.clone()))
}

fn size_of(segment: &SegmentInfo) -> String {
    segment.size.map_or_else(|| "dynamic".to_owned(), |size| size.to_string())
}

fn sorted<T: Ord>(found: impl Iterator<Item = T>) -> Vec<T> {
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A policy that just such a header follows, as JSON.
pub(super) fn of_header(header: &LuksHeader, seal: Option<&Seal>) -> Result<String> {
    let info = header.info();
    let segments = &info.segments;
    let single = (segments.len() == 1).then(|| &segments[0]);
    let says = PolicyMembers {
        version: 1,
        luks: Some(vec![info.version]),
        cipher: Some(sorted(segments.iter().filter_map(|segment| segment.cipher.clone()))),
        key_bits: Some(sorted(segments.iter().filter_map(|segment| segment.key_bits))),
        sector_size: Some(sorted(segments.iter().map(|segment| segment.sector_size.unwrap_or(512)))),
        segments: Some(segments.len()),
        offset: single.map(|segment| segment.offset.to_string()),
        size: single.map(size_of),
        discards: Some(info.flags.iter().any(|flag| flag == "allow-discards")),
        tokens: Some(sorted(info.tokens.iter().map(|token| token.kind.clone()).filter(|kind| kind != SEAL_TOKEN))),
        keyslots_max: Some(info.keyslots.len()),
        kdf: Some(sorted(kdfs(&info))),
        uuid: Some(info.uuid.clone()),
        key_id: seal.map(|seal| seal.key_id.clone()),
        measure: None,
        signed: seal.map(|seal| seal.kind.word().to_owned()),
        covers: seal.map(|seal| seal.covers.names().into_iter().map(str::to_owned).collect()),
        not_older_than: seal.map(|seal| seal.counter.to_string()),
    };
    Ok(serde_json::to_string_pretty(&says).expect("it has texts and numbers only") + "\n")
}
