//! Every back end of this CPU compared with `xts-mode` and with the portable one: requests, slices,
//! alignment, and the bytes around the buffer.

use super::*;
use crate::cpu::CPU_VARIABLE;

/// Room on both sides of a buffer that nobody may touch.
const MARGIN: usize = 192;
const CANARY: u8 = 0xc7;

/// A copy of `data` at `shift` bytes from a cache line, with canaries around.
struct Guarded {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Guarded {
    fn new(data: &[u8], shift: usize) -> Guarded {
        let mut bytes = vec![CANARY; data.len() + 2 * MARGIN];
        let start = bytes.as_ptr().align_offset(64) + 64 + shift;
        bytes[start..start + data.len()].copy_from_slice(data);
        let len = data.len();
        Guarded { bytes, start, len }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// The data, if nothing around it changed.
    fn checked(&self) -> Result<&[u8], TestCaseError> {
        let (before, rest) = self.bytes.split_at(self.start);
        let (data, after) = rest.split_at(self.len);
        let around = before.iter().chain(after);
        prop_assert!(around.copied().all(|byte| byte == CANARY), "wrote outside");
        Ok(data)
    }
}

fn on(backend: XtsBackend, case: &Case) -> SectorCipher {
    let spec = CipherSpec::parse(&format!("aes-xts-{}", case.mode)).unwrap();
    SectorCipher::with_backend(&spec, &case.key, case.options, backend).unwrap()
}

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn every_back_end_gives_what_one_block_at_a_time_gives(
        case in cases(),
        shift in 0..64_usize,
    ) {
        let (encrypted, decrypted) = (expected(&case, true), expected(&case, false));
        for backend in XtsBackend::available() {
            let cipher = on(backend, &case);
            let mut data = Guarded::new(&case.data, shift);
            cipher.encrypt_in_place(case.sector, data.get());
            prop_assert!(data.checked()? == encrypted, "{backend} encrypt");
            cipher.decrypt_in_place(case.sector, data.get());
            prop_assert!(data.checked()? == case.data, "{backend} there and back");
            cipher.decrypt_in_place(case.sector, data.get());
            prop_assert!(data.checked()? == decrypted, "{backend} decrypt");
        }
    }

    #[test]
    fn a_slice_is_that_part_of_the_whole_sector(
        case in cases(),
        start in any::<prop::sample::Index>(),
        len in any::<prop::sample::Index>(),
        shift in 0..64_usize,
    ) {
        let size = usize::try_from(case.options.sector_size).unwrap();
        let (encrypted, decrypted) = (expected(&case, true), expected(&case, false));
        let start = start.index(size / 16 + 1) * 16;
        let part = start..start + len.index((size - start) / 16 + 1) * 16;
        let plain = &case.data[part.clone()];
        for backend in XtsBackend::available() {
            let cipher = on(backend, &case);
            let mut data = Guarded::new(plain, shift);
            cipher.encrypt_slice(case.sector, start, data.get());
            prop_assert!(data.checked()? == &encrypted[part.clone()], "{backend} encrypt");
            cipher.decrypt_slice(case.sector, start, data.get());
            prop_assert!(data.checked()? == plain, "{backend} there and back");
            cipher.decrypt_slice(case.sector, start, data.get());
            prop_assert!(data.checked()? == &decrypted[part.clone()], "{backend} decrypt");
        }
    }
}

#[test]
fn every_back_end_of_this_cpu_says_its_own_name() {
    let names = XtsBackend::available().into_iter().map(|backend| {
        let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
        let cipher = SectorCipher::with_backend(&spec, &[1; 64], PLAIN, backend).unwrap();
        (backend, cipher.backend_name())
    });
    for (backend, name) in names {
        match backend {
            XtsBackend::Avx512 => assert_eq!(name, "aes-xts (vaes, avx512)"),
            XtsBackend::Avx2 => assert_eq!(name, "aes-xts (vaes, avx2)"),
            XtsBackend::AesNi => assert_eq!(name, "aes-xts (aesni)"),
            XtsBackend::Armv8 => assert_eq!(name, "aes-xts (armv8)"),
            XtsBackend::Portable => assert!(name.starts_with("rustcrypto-aes"), "{name}"),
        }
    }
}

#[test]
fn a_cipher_made_without_a_word_runs_on_the_selected_back_end() {
    let selected = XtsBackend::selected();
    let made = cipher("aes-xts-plain64", &[1; 64], PLAIN);
    match (selected, made) {
        (Ok(backend), Ok(made)) => {
            let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
            let same = SectorCipher::with_backend(&spec, &[1; 64], PLAIN, backend).unwrap();
            assert_eq!(made.backend_name(), same.backend_name());
        }
        (Err(error), Err(CipherError::Backend(told))) => {
            assert_eq!(error, told);
            assert!(told.to_string().starts_with(CPU_VARIABLE));
        }
        (selected, made) => panic!("{selected:?}, but made: {}", made.is_ok()),
    }
}

#[test]
fn a_back_end_that_is_not_here_is_refused() {
    let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
    for backend in XtsBackend::ALL {
        let made = SectorCipher::with_backend(&spec, &[1; 32], PLAIN, backend);
        assert_eq!(made.is_ok(), XtsBackend::available().contains(&backend));
    }
}

fn range_of_4096(offset: u64, len: usize) {
    let options = SectorOptions { sector_size: 4096, ..PLAIN };
    let cipher = cipher("aes-xts-plain64", &[1; 32], options).unwrap();
    cipher.encrypt_range_in_place(offset, &mut vec![0; len]);
}

#[test]
#[should_panic(expected = "not whole parts of 16")]
fn a_range_from_inside_a_block_is_the_callers_error() {
    range_of_4096(4096 + 8, 16);
}

#[test]
#[should_panic(expected = "not whole parts of 16")]
fn a_range_that_ends_inside_a_block_is_the_callers_error() {
    range_of_4096(4096 + 16, 24);
}
