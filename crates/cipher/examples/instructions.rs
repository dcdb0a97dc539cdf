//! One call into a cipher, for a program that counts its instructions.
//!
//! `CRYPTLINE_CPU=aesni valgrind --tool=callgrind --toggle-collect='*measured*' instructions encrypt 4096 512`
//!
//! The words: direction, bytes of the request, bytes of a cipher sector. AES-256-XTS in place.
//! `cargo xtask counts` runs it in every shape and compares with `crates/cipher/instructions.txt`.

use std::error::Error;
use std::hint::black_box;

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [direction, len, sector_size] = &arguments[..] else {
        return Err("usage: instructions encrypt|decrypt BYTES SECTOR".into());
    };
    let options = SectorOptions { sector_size: sector_size.parse()?, iv_offset: 0, iv_large_sectors: false };
    let key: Vec<u8> = (0..64).collect();
    let cipher = SectorCipher::new(&CipherSpec::parse("aes-xts-plain64")?, &key, options)?;
    let mut data = vec![0x5a; len.parse()?];
    // The first call finds out what the CPU can do, in libraries that remember it.
    cipher.encrypt_in_place(0, &mut data);
    match direction.as_str() {
        "encrypt" => measured_encryption(&cipher, &mut data),
        "decrypt" => measured_decryption(&cipher, &mut data),
        other => return Err(format!("{other} is neither encrypt nor decrypt").into()),
    }
    Ok(())
}

#[inline(never)]
fn measured_encryption(cipher: &SectorCipher, data: &mut [u8]) {
    cipher.encrypt_in_place(black_box(8), black_box(data));
}

#[inline(never)]
fn measured_decryption(cipher: &SectorCipher, data: &mut [u8]) {
    cipher.decrypt_in_place(black_box(8), black_box(data));
}
