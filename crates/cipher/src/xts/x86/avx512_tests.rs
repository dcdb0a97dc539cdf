//! Agreement of both ways to reduce.

use super::{products, shifts};
use crate::iv::{IvLayout, IvSequence};
use crate::xts::XtsKernel;

/// Of this machine's CPU one is chosen, but it runs both.
#[test]
fn both_ways_to_reduce_give_the_same_bytes() {
    for key_bytes in [32, 48, 64] {
        let key: Vec<u8> = (0..key_bytes).map(|at: u8| at.wrapping_mul(7)).collect();
        let (Some(one), Some(other)) = (shifts::Avx512Xts::new(&key), products::Avx512Xts::new(&key)) else {
            return crate::skip("the CPU has no AVX-512 or no VAES");
        };
        for sector_bytes in [512, 1024, 4096] {
            for sectors in [1, 2, 7, 8, 9, 33, 41] {
                are_alike(&one, &other, sector_bytes, sectors);
            }
        }
        for (before, len) in [(0, 16), (3, 496), (31, 512), (40, 1040), (1, 4080)] {
            let ivs = ivs(4096);
            let mut bytes = [noise(len), noise(len)];
            one.encrypt_slice(ivs.clone(), before, &mut bytes[0]);
            other.encrypt_slice(ivs.clone(), before, &mut bytes[1]);
            assert_eq!(bytes[0], bytes[1]);
            one.decrypt_slice(ivs.clone(), before, &mut bytes[0]);
            other.decrypt_slice(ivs, before, &mut bytes[1]);
            assert_eq!(bytes, [noise(len), noise(len)]);
        }
    }
}

fn are_alike(one: &dyn XtsKernel, other: &dyn XtsKernel, sector_bytes: usize, sectors: usize) {
    let clear = noise(sector_bytes * sectors);
    let mut bytes = [clear.clone(), clear.clone()];
    one.encrypt(ivs(sector_bytes), sector_bytes, &mut bytes[0]);
    other.encrypt(ivs(sector_bytes), sector_bytes, &mut bytes[1]);
    assert!(bytes[0] == bytes[1] && bytes[0] != clear, "{sectors} of {sector_bytes}");
    one.decrypt(ivs(sector_bytes), sector_bytes, &mut bytes[0]);
    other.decrypt(ivs(sector_bytes), sector_bytes, &mut bytes[1]);
    assert!(bytes.iter().all(|it| *it == clear), "{sectors} of {sector_bytes}");
}

fn ivs(sector_bytes: usize) -> IvSequence {
    IvSequence { layout: IvLayout::Plain64, next: 0xffff_ffff_ffff_fff0, step: sector_bytes as u64 / 512, shift: 0 }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
