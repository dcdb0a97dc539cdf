//! A disk in memory that remembers what was not flushed, and fails for good after so many writes and flushes.

use std::io;
use std::sync::{Mutex, MutexGuard};

/// The disk. [`volatile_medium!`](crate::volatile_medium) makes it a medium of the library.
pub struct VolatileDisk(Mutex<Contents>);

struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
    loose: Vec<(usize, Vec<u8>)>,
    /// Writes and flushes that still work.
    left: usize,
}

impl VolatileDisk {
    /// A disk with these bytes that takes `left` writes and flushes.
    #[must_use]
    pub fn new(bytes: &[u8], left: usize) -> Self {
        let (now, durable) = (bytes.to_vec(), bytes.to_vec());
        Self(Mutex::new(Contents { now, durable, loose: Vec::new(), left }))
    }

    /// Returns what a power cut may leave: nothing of what was not flushed, all of it, each write alone, all but each.
    #[must_use]
    pub fn survivors(&self) -> Vec<Vec<u8>> {
        let contents = self.contents();
        let with = |number: usize, alone: bool| {
            let mut bytes = contents.durable.clone();
            let some = contents.loose.iter().enumerate().filter(|(other, _)| (*other == number) == alone);
            some.for_each(|(_, (at, written))| bytes[*at..at + written.len()].copy_from_slice(written));
            bytes
        };
        let each = (0..contents.loose.len()).flat_map(|number| [with(number, true), with(number, false)]);
        [contents.durable.clone(), contents.now.clone()].into_iter().chain(each).collect()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.contents().now.len() as u64
    }

    /// Fills `target` from `offset`.
    pub fn read(&self, offset: u64, target: &mut [u8]) {
        let at = usize::try_from(offset).unwrap();
        target.copy_from_slice(&self.contents().now[at..at + target.len()]);
    }

    /// Writes `source` at `offset`.
    ///
    /// # Errors
    /// Once no more writes and flushes are left.
    pub fn write(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let mut contents = self.step()?;
        contents.now[at..at + source.len()].copy_from_slice(source);
        contents.loose.push((at, source.to_vec()));
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&self) -> io::Result<()> {
        let mut contents = self.step()?;
        contents.durable = contents.now.clone();
        contents.loose.clear();
        Ok(())
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    fn step(&self) -> io::Result<MutexGuard<'_, Contents>> {
        let mut contents = self.contents();
        contents.left = contents.left.checked_sub(1).ok_or_else(|| io::Error::other("cut off"))?;
        Ok(contents)
    }
}

/// Defines a medium over a [`VolatileDisk`](crate::volatile::VolatileDisk) by the trait `$medium`: that of the library's own
/// unit tests is another one than everybody else's.
#[macro_export]
macro_rules! volatile_medium {
    ($name:ident, $medium:path) => {
        struct $name($crate::volatile::VolatileDisk);

        impl $name {
            fn new(bytes: &[u8], left: usize) -> std::sync::Arc<Self> {
                std::sync::Arc::new(Self($crate::volatile::VolatileDisk::new(bytes, left)))
            }
        }

        impl $medium for $name {
            fn size(&self) -> u64 {
                self.0.size()
            }

            fn read_at(&self, offset: u64, target: &mut [u8]) -> std::io::Result<()> {
                self.0.read(offset, target);
                Ok(())
            }

            fn write_at(&self, offset: u64, source: &[u8]) -> std::io::Result<()> {
                self.0.write(offset, source)
            }

            fn flush(&self) -> std::io::Result<()> {
                self.0.flush()
            }
        }
    };
}
