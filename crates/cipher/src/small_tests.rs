//! Small requests on every back end of this CPU, fixed instead of random: what Miri has time for.
//!
//! Miri reports accesses outside a buffer, pointers used after their borrow has ended and reads of
//! uninitialized memory, even where the bytes come out right. It takes a tenth of a second for each
//! call of an AES in software, so the portable back end does less there.

use super::*;

fn on_all(key_bytes: u8, sector_size: u32) -> Vec<(XtsBackend, SectorCipher)> {
    let key: Vec<u8> = (0..key_bytes).collect();
    let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
    let options = SectorOptions { sector_size, ..PLAIN };
    let mut backends = XtsBackend::available();
    if cfg!(miri) && key_bytes > 32 {
        backends.retain(|&backend| backend != XtsBackend::Portable);
    }
    let ciphers = backends.into_iter().map(|backend| {
        let cipher = SectorCipher::with_backend(&spec, &key, options, backend);
        (backend, cipher.unwrap())
    });
    ciphers.collect()
}

fn text(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

#[test]
fn small_requests_are_the_same_on_all_with_every_key_size() {
    for key_bytes in [32, 48, 64] {
        let ciphers = on_all(key_bytes, 512);
        let clear = text(512);
        let mut expected = clear.clone();
        ciphers[0].1.encrypt_in_place(7, &mut expected);
        for (backend, cipher) in ciphers {
            let mut data = clear.clone();
            cipher.encrypt_in_place(7, &mut data);
            assert!(data == expected, "{backend} {key_bytes}");
            cipher.decrypt_in_place(7, &mut data);
            assert!(data == clear, "{backend} {key_bytes} and back");
        }
    }
}

/// After the first 8 sectors the IVs of 8, 16 or 32 come at a time, or of 8 again where no more
/// are needed.
#[test]
fn small_requests_around_each_group_of_ivs_are_their_sectors() {
    for (backend, cipher) in on_all(32, 512) {
        let counts = match backend {
            XtsBackend::Portable if cfg!(miri) => &[][..],
            _ if cfg!(miri) => &[17],
            _ => &[8, 9, 17, 25, 41],
        };
        for &count in counts {
            let clear = text(count * 512);
            let mut encrypted = clear.clone();
            cipher.encrypt_in_place(3, &mut encrypted);
            let sectors = clear.chunks(512).zip(encrypted.chunks(512));
            let every = if cfg!(miri) { 8 } else { 1 };
            for (number, (clear, encrypted)) in (3..).zip(sectors).step_by(every) {
                let mut alone = clear.to_vec();
                cipher.encrypt_in_place(number, &mut alone);
                assert!(alone == encrypted, "{backend} {number} of {count}");
            }
            cipher.decrypt_in_place(3, &mut encrypted);
            assert!(encrypted == clear, "{backend} {count} and back");
        }
    }
}

#[test]
fn small_slices_are_parts_of_the_sector() {
    let ciphers = on_all(32, 1024);
    let clear = text(1024);
    let mut encrypted = clear.clone();
    ciphers[0].1.encrypt_in_place(2, &mut encrypted);
    for (backend, cipher) in ciphers {
        for part in [0..16, 16..400, 1008..1024, 48..48] {
            let mut data = clear[part.clone()].to_vec();
            cipher.encrypt_slice(2, part.start, &mut data);
            assert!(data == encrypted[part.clone()], "{backend} {part:?}");
            cipher.decrypt_slice(2, part.start, &mut data);
            assert!(data == clear[part.clone()], "{backend} {part:?} and back");
        }
    }
}
