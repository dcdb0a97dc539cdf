//! The images, and each way to them.

use cryptline::luks::format::LuksVersion;
use cryptline::{Create, Open};
use cryptline_engine::base::RbdDevice;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};

use super::cluster::BenchCluster;
use super::{Encrypter, WAYS};
use crate::contents::{TestPattern, sha256_of};
use crate::error::{Error, Of as _, Result, fail};
use crate::images::PASSPHRASE;
use crate::process::StopFlag;
use crate::report::word;
use crate::volume::cheap;

/// Where the data of an image with objects of 4 MiB begins.
const HEADER: u64 = 16 << 20;
/// Bytes of a transfer, and of a discard.
const PIECE: usize = 4 << 20;
/// The part of a disk that is still used after the discards.
const LIVE: u64 = 4;
const SEED: u64 = 0x6365_7068;

/// An image for each way, which go with the value.
pub struct RbdImages<'a> {
    cluster: &'a BenchCluster,
    size: u64,
    /// Space that each takes without any data.
    empty: [u64; 3],
}

impl<'a> RbdImages<'a> {
    /// Makes them, each with a clear disk of `size` bytes.
    pub fn make(cluster: &'a BenchCluster, size: u64) -> Result<Self> {
        let mut images = Self { cluster, size, empty: [0; 3] };
        for (at, way) in WAYS.into_iter().enumerate() {
            let header = if way == Encrypter::Plain { 0 } else { HEADER };
            let size = format!("{}B", size + header);
            let spec = cluster.spec(&name(way));
            // Always with objects of 4 MiB, and with what `rbd du` is quick by.
            let features = "exclusive-lock,object-map,fast-diff";
            let new = ["create", "--size", &size, "--object-size", "4M"];
            let words = [&new[..], &["--image-feature", features, &spec]].concat();
            cluster.rbd(&words)?;
            if way != Encrypter::Plain {
                images.encrypt(way)?;
            }
            images.empty[at] = images.used(way)?;
        }
        Ok(images)
    }

    /// One and the same format for both.
    fn encrypt(&self, way: Encrypter) -> Result<()> {
        let create = Create::new(self.target(way)).format(cheap(LuksVersion::Luks2));
        let made = create.passphrase(PASSPHRASE).create()?;
        if made.data_size != self.size {
            let (header, all) = (self.size + HEADER - made.data_size, self.size + HEADER);
            fail!("the header of {} takes {header} bytes of {all}, where librbd cannot read it", self.target(way));
        }
        Ok(())
    }

    /// Fills all images, and compares what was written with what is read: what one of the two has encrypted, the other
    /// decrypts. The SHA-256 of the clear disk.
    pub fn check(&self, stop: &StopFlag) -> Result<String> {
        let contents = TestPattern::new(SEED);
        let mut expected = String::new();
        for (image, writer, reader) in [
            (Encrypter::Plain, Encrypter::Plain, Encrypter::Plain),
            (Encrypter::Librbd, Encrypter::Librbd, Encrypter::Ours),
            (Encrypter::Ours, Encrypter::Ours, Encrypter::Librbd),
        ] {
            stop.check()?;
            expected = contents.write_to(&self.open(image, writer)?, PIECE)?;
            stop.check()?;
            if sha256_of(&self.open(image, reader)?, PIECE)? != expected {
                fail!("{} reads other bytes than {} has written; nothing was measured", word(&reader), word(&writer));
            }
        }
        Ok(expected)
    }

    /// Each image by its own way, in the order of [`WAYS`].
    pub fn open_all(&self) -> Result<[Gate; 3]> {
        let [plain, librbd, ours] = WAYS.map(|way| self.open(way, way));
        Ok([plain?, librbd?, ours?])
    }

    fn open(&self, image: Encrypter, way: Encrypter) -> Result<Gate> {
        let of = self.cluster.name(&name(image));
        Ok(match way {
            Encrypter::Plain => Gate::new(RbdDevice::open(&of, false)?),
            Encrypter::Librbd => Gate::new(RbdDevice::open_decrypted(&of, PASSPHRASE.as_bytes())?),
            Encrypter::Ours => {
                let open = Open::new(self.target(image)).discards(true);
                open.passphrase(PASSPHRASE).open()?.gate().clone()
            }
        })
    }

    /// Discards all but a part of each disk, as a file system does that was filled and emptied. What its image then
    /// takes beside the header, over that part.
    pub fn used_after_discards(&self, gates: &[Gate; 3]) -> Result<[f64; 3]> {
        let mut used = [0.0; 3];
        let live = self.size / LIVE;
        for (at, way) in WAYS.into_iter().enumerate() {
            let gate = &gates[at];
            let mut disk = Blocking::new(gate, BackendChoice::Auto)?;
            for from in (live..self.size).step_by(PIECE) {
                let len = (self.size - from).min(PIECE as u64);
                disk.discard(from, len).of(format_args!("{}: cannot discard", word(&way)))?;
            }
            #[expect(clippy::cast_precision_loss, reason = "sizes, for a ratio")]
            let over_live = self.used(way)?.saturating_sub(self.empty[at]) as f64 / live as f64;
            used[at] = over_live;
        }
        Ok(used)
    }

    /// Bytes that the cluster has allocated for an image.
    fn used(&self, way: Encrypter) -> Result<u64> {
        let spec = self.cluster.spec(&name(way));
        let said = self.cluster.rbd(&["du", "--format", "json", &spec])?;
        let said: Option<serde_json::Value> = serde_json::from_str(&said).ok();
        let used = said.and_then(|said| said["images"][0]["used_size"].as_u64());
        used.ok_or_else(|| Error("`rbd du` does not say what the image takes".into()))
    }

    fn target(&self, image: Encrypter) -> String {
        let spec = self.cluster.spec(&name(image));
        format!("rbd:{spec}?conf={}", self.cluster.encoded_conf())
    }
}

impl Drop for RbdImages<'_> {
    fn drop(&mut self) {
        if self.cluster.is_own() {
            return;
        }
        for way in WAYS {
            // One that was not made yet is not there.
            let _ = self.cluster.rbd(&["rm", "--no-progress", &self.cluster.spec(&name(way))]);
        }
    }
}

/// Not that of anybody else.
fn name(way: Encrypter) -> String {
    let image = match way {
        Encrypter::Plain => "plain",
        Encrypter::Librbd => "theirs",
        Encrypter::Ours => "ours",
    };
    format!("cryptline-bench-{}-{image}", std::process::id())
}
