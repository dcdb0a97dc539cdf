//! `errseq_t`, as in Linux's lib/errseq.c: an error that is reported once to each open file.
//!
//! ```text
//! bits 0..12   the last error
//! bit  12      somebody has seen it
//! bits 13..    how often an error came after the last had been seen
//! ```

use rustix::io::Errno;

const MAX_ERRNO: u32 = 4095;
const SEEN: u32 = 1 << 12;
const COUNT: u32 = 1 << 13;

/// Record of a file's lost writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errseq(u32);

/// Losses that an open file has been told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since(u32);

impl Errseq {
    /// `errseq_set`.
    pub fn set(&mut self, error: Errno) {
        let errno = error.raw_os_error().unsigned_abs() & MAX_ERRNO;
        let seen = self.0 & SEEN != 0;
        self.0 = (self.0 & !(MAX_ERRNO | SEEN)) | errno;
        if seen {
            self.0 = self.0.wrapping_add(COUNT);
        }
    }

    /// `errseq_sample`, at open: an error that nobody has seen is still to be told.
    #[must_use]
    pub fn sample(self) -> Since {
        match self.0 & SEEN {
            0 => Since(0),
            _ => Since(self.0),
        }
    }

    /// `errseq_check_and_advance`, by `fsync` and its like.
    pub fn check_and_advance(&mut self, since: &mut Since) -> Result<(), Errno> {
        if self.0 == since.0 {
            return Ok(());
        }
        self.0 |= SEEN;
        *since = Since(self.0);
        let errno = i32::try_from(self.0 & MAX_ERRNO).unwrap_or_default();
        Err(Errno::from_raw_os_error(errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_is_told_once() {
        let mut errors = Errseq::default();
        let (mut one, mut two) = (errors.sample(), errors.sample());
        assert_eq!(errors.check_and_advance(&mut one), Ok(()));
        errors.set(Errno::IO);
        assert_eq!(errors.check_and_advance(&mut one), Err(Errno::IO));
        assert_eq!(errors.check_and_advance(&mut one), Ok(()));
        assert_eq!(errors.check_and_advance(&mut two), Err(Errno::IO));
        assert_eq!(errors.check_and_advance(&mut two), Ok(()));
    }

    #[test]
    fn who_opens_later_is_told_unless_somebody_was() {
        let mut errors = Errseq::default();
        let mut early = errors.sample();
        errors.set(Errno::NOSPC);
        let mut unseen = errors.sample();
        assert_eq!(errors.check_and_advance(&mut early), Err(Errno::NOSPC));
        let mut late = errors.sample();
        assert_eq!(errors.check_and_advance(&mut unseen), Err(Errno::NOSPC));
        assert_eq!(errors.check_and_advance(&mut late), Ok(()));
    }

    #[test]
    fn same_error_again_is_new_once_the_first_was_seen() {
        let mut errors = Errseq::default();
        let mut since = errors.sample();
        errors.set(Errno::IO);
        errors.set(Errno::IO);
        assert_eq!(errors.check_and_advance(&mut since), Err(Errno::IO));
        assert_eq!(errors.check_and_advance(&mut since), Ok(()));
        errors.set(Errno::IO);
        assert_eq!(errors.check_and_advance(&mut since), Err(Errno::IO));
    }
}
