//! The contents: random bytes, written once for those who read the medium as it is and once more
//! through the cipher; and what each subject reads of them.

use cryptline_engine::dispatch::Mode;
use cryptline_engine::{BackendChoice, Gate, Operation, Request, Ring, Submitted};
use cryptline_engine::{Buffer, Completion, GatedQueue};
use sha2::{Digest, Sha256};

use super::{BLOCK, Subject};
use crate::CliError;
use crate::bench::Progress;
use crate::bench::volume::NULL_CIPHER;

/// Writes the contents and checks that every subject reads them; `read` gives the SHA-256 of all that
/// one reads.
///
/// # Errors
/// Exit code 4 when one reads something else.
pub fn check(
    medium: &Gate,
    subjects: &mut [Subject],
    progress: &Progress,
    read: impl Fn(&Subject) -> Result<String, CliError>,
) -> Result<(), CliError> {
    let (clear, encrypted): (Vec<_>, Vec<_>) = subjects
        .iter_mut()
        .partition(|subject| reads_clear(subject));
    for group in [clear, encrypted] {
        let Some(writer) = group.iter().find(|subject| is_simplest(subject)) else {
            continue;
        };
        progress.now("writing random contents");
        let written = fill(&writer.gate)?;
        if !reads_clear(writer) && hash(medium, 1)? == hash(&writer.gate, 1)? {
            return Err(CliError::device(format!(
                "{} encrypts nothing: the medium holds the clear text; please report this",
                writer.name
            )));
        }
        for subject in group {
            progress.now(format!("checking what {} reads", subject.name));
            let sum = read(subject)?;
            compare(&subject.name, &written, &sum)?;
            subject.sha256 = Some(sum);
            progress.step();
        }
    }
    Ok(())
}

/// SHA-256 of all that a subject reads, by the library's calls.
///
/// # Errors
/// Exit code 4 when a read fails.
pub fn read_all(subject: &Subject) -> Result<String, CliError> {
    hash(
        &subject.gate,
        subject.gate.geometry().size / u64::from(BLOCK),
    )
}

/// Ends the bench where a subject read something else than was written.
fn compare(name: &str, written: &str, read: &str) -> Result<(), CliError> {
    if written == read {
        Ok(())
    } else {
        Err(CliError::device(format!(
            "{name} reads other bytes than were written (SHA-256 {read} instead of {written}); nothing was measured, please report this"
        )))
    }
}

fn reads_clear(subject: &Subject) -> bool {
    subject
        .cipher
        .as_deref()
        .is_none_or(|cipher| cipher == NULL_CIPHER)
}

/// Whether it may write for its group: without help of other threads.
fn is_simplest(subject: &Subject) -> bool {
    subject.mode.is_none_or(|mode| mode == Mode::Inline)
}

/// Writes random bytes to all of a volume; gives their SHA-256.
fn fill(gate: &Gate) -> Result<String, CliError> {
    let mut random = Random(0x2020_0619);
    let mut sum = Sha256::new();
    each_block(
        gate,
        gate.geometry().size / u64::from(BLOCK),
        |buffer| {
            random.fill(buffer);
            sum.update(&**buffer);
            true
        },
        |_| {},
    )?;
    Ok(hex(&sum.finalize()))
}

/// SHA-256 of the first `blocks` blocks, read one by one.
fn hash(gate: &Gate, blocks: u64) -> Result<String, CliError> {
    let mut sum = Sha256::new();
    each_block(gate, blocks, |_| false, |buffer| sum.update(buffer))?;
    Ok(hex(&sum.finalize()))
}

/// Goes through the first `blocks` blocks one by one: `before` fills the buffer and says whether to
/// write it, otherwise it is read and given to `after`.
fn each_block(
    gate: &Gate,
    blocks: u64,
    mut before: impl FnMut(&mut Buffer) -> bool,
    mut after: impl FnMut(&[u8]),
) -> Result<(), CliError> {
    let mut ring = Ring::new(BackendChoice::Auto, 64)
        .map_err(|error| CliError::device(format!("cannot set up I/O: {error}")))?;
    let mut queue = gate.open_queue(&mut ring)?;
    let len = usize::try_from(BLOCK).unwrap_or(0);
    let mut buffer = Buffer::alloc(len)
        .map_err(|error| CliError::memory(format!("no memory for a buffer: {error}")))?;
    let mut done = Vec::with_capacity(1);
    for block in 0..blocks {
        let offset = block * u64::from(BLOCK);
        let writes = before(&mut buffer);
        let request = if writes {
            Request::write(offset, buffer, false, 0)
        } else {
            Request::read(offset, buffer, 0)
        };
        let Completion { request, result } = one(&mut ring, &mut queue, &mut done, request)?;
        result.map_err(|fault| CliError::device(format!("block {block} failed: {fault}")))?;
        buffer = match request.operation {
            Operation::Read(buffer) | Operation::Write { data: buffer, .. } => buffer,
            _ => return Err(CliError::device("a transfer came back as something else")),
        };
        if !writes {
            after(&buffer);
        }
    }
    Ok(())
}

fn one(
    ring: &mut Ring,
    queue: &mut GatedQueue,
    done: &mut Vec<Completion>,
    request: Request,
) -> Result<Completion, CliError> {
    if let Submitted::Done(completion) = queue.submit(ring, request) {
        return Ok(completion);
    }
    loop {
        ring.wait()
            .map_err(|error| CliError::device(format!("cannot wait for I/O: {error}")))?;
        queue.poll(ring, done);
        if let Some(completion) = done.pop() {
            return Ok(completion);
        }
    }
}

/// Steele, Lea and Flood's SplitMix64, "Fast Splittable Pseudorandom Number Generators" (2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fill(&mut self, target: &mut [u8]) {
        for word in target.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }
}

/// In lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use cryptline_engine::base::RamDevice;
    use cryptline_engine::blocking::Blocking;

    use super::*;
    use crate::bench::volume::{Cipher, Settings};

    const SIZE: u64 = 64 * 1024;

    fn subject(name: &str, cipher: Option<&Cipher>, gate: Gate) -> Subject {
        Subject {
            name: name.into(),
            cipher: cipher.map(|cipher| cipher.word().into()),
            mode: cipher.map(|_| Mode::Inline),
            gate,
            sha256: None,
            samples: Vec::new(),
        }
    }

    fn ram() -> Gate {
        Gate::new(RamDevice::new(SIZE).expect("memory"))
    }

    #[test]
    fn all_ways_read_the_same_bytes() {
        let medium = ram();
        let (null, aes) = (
            Cipher::new(NULL_CIPHER).expect("null"),
            Cipher::new("aes-xts-plain64").expect("aes"),
        );
        let mut subjects = vec![
            subject("plain", None, medium.clone()),
            subject(
                "null",
                Some(&null),
                null.over(&medium, Mode::Inline, &Settings::default())
                    .expect("fits"),
            ),
            subject(
                "aes",
                Some(&aes),
                aes.over(&medium, Mode::Inline, &Settings::default())
                    .expect("fits"),
            ),
        ];
        check(&medium, &mut subjects, &Progress::new(3), read_all).expect("all is right");
        let first = subjects[0].sha256.clone().expect("hashed");
        assert!(
            subjects
                .iter()
                .all(|subject| subject.sha256.as_ref() == Some(&first))
        );
    }

    #[test]
    fn one_wrong_bit_ends_the_bench() {
        let (medium, other) = (ram(), ram());
        let null = Cipher::new(NULL_CIPHER).expect("null");
        let written = fill(&other).expect("RAM takes it");
        fill(&medium).expect("RAM takes it");
        let mut flip = Blocking::new(&medium, BackendChoice::Syscalls).expect("a queue");
        let mut block = vec![0; 4096];
        flip.read_at(SIZE - 4096, &mut block).expect("RAM reads");
        block[4095] ^= 1;
        flip.write_at(SIZE - 4096, &block, false)
            .expect("RAM writes");
        let gate = null
            .over(&medium, Mode::Inline, &Settings::default())
            .expect("fits");
        let read = hash(&gate, SIZE / 4096).expect("RAM reads");
        let error = compare("null", &written, &read).expect_err("one bit differs");
        assert_eq!(error.exit_code(), 4);
        assert!(error.to_string().contains("other bytes"), "{error}");
    }

    #[test]
    fn a_way_with_a_medium_of_its_own_is_found_out() {
        let null = Cipher::new(NULL_CIPHER).expect("null");
        let (medium, elsewhere) = (ram(), ram());
        let mut subjects = vec![
            subject("plain", None, medium.clone()),
            subject(
                "null",
                Some(&null),
                null.over(&elsewhere, Mode::Inline, &Settings::default())
                    .expect("fits"),
            ),
        ];
        let error =
            check(&medium, &mut subjects, &Progress::new(2), read_all).expect_err("zeros are read");
        assert!(
            error.to_string().starts_with("null reads other bytes"),
            "{error}"
        );
    }

    #[test]
    fn contents_are_random_and_the_same_each_time() {
        let mut first = vec![0; 4096];
        Random(1).fill(&mut first);
        let mut again = vec![0; 4096];
        Random(1).fill(&mut again);
        assert_eq!(first, again);
        let kinds: std::collections::BTreeSet<u8> = first.iter().copied().collect();
        assert_eq!(kinds.len(), 256);
    }
}
