//! [`ByteWords`] by the GFNI of x86-64.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    _mm256_blendv_epi8, _mm256_gf2p8affine_epi64_epi8, _mm256_gf2p8affineinv_epi64_epi8, _mm256_set_epi32,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_shuffle_epi8, _mm512_gf2p8affine_epi64_epi8,
    _mm512_gf2p8affineinv_epi64_epi8, _mm512_mask_blend_epi8, _mm512_set1_epi64, _mm512_set4_epi32,
    _mm512_shuffle_epi8,
};

use cryptline_sys::SecretBox;

use super::{Words256, Words512};
use crate::cpu::{XtsBackend, detection};
use crate::modes::blocks::BlockCipher;
use crate::modes::bytes::{ByteWords, Compiled, Sliced};
use crate::modes::lanes::{CipherRounds, ProvenWidth, filled_up, groups};

/// `$swap` and `$blend` are functions over the vector, `$blend` for a place in each word.
macro_rules! bytes {
    ($words:ident, $cpu:ty, $features:literal, $splat:ident, $affine:ident, $inverse:ident,
     $vector:ident => $swap:expr, ($this:ident, $other:ident, $place:ident) => $blend:expr) => {
        // Every operation is on registers only, so all it asks for are the features.
        impl ByteWords for $words {
            type Gfni = detection::Gfni;

            #[inline(always)]
            fn swapped(self) -> $words {
                let $vector = self.0;
                // SAFETY: there are values of this type, so the CPU has the features.
                $words(unsafe { $swap })
            }

            #[inline(always)]
            fn affine<const PLUS: i32>(self, _: detection::Gfni, matrix: u64) -> $words {
                // SAFETY: there are values of this type, and the proof given says that the CPU has
                // GFNI.
                $words(unsafe { $affine::<PLUS>(self.0, $splat(matrix.cast_signed())) })
            }

            #[inline(always)]
            fn affine_inverse<const PLUS: i32>(self, _: detection::Gfni, matrix: u64) -> $words {
                // SAFETY: as above.
                $words(unsafe { $inverse::<PLUS>(self.0, $splat(matrix.cast_signed())) })
            }

            #[inline(always)]
            fn with_byte<const PLACE: i32>(self, other: $words) -> $words {
                let ($this, $other, $place) = (self.0, other.0, PLACE);
                // SAFETY: there are values of this type, so the CPU has the features.
                $words(unsafe { $blend })
            }
        }

        impl Compiled for $words {
            fn crypt<C, const ENCRYPT: bool>(cpu: $cpu, gfni: detection::Gfni, cipher: &C, blocks: &mut [[u8; 16]])
            where
                C: CipherRounds<$words, More = detection::Gfni> + CipherRounds<[$words; 2], More = detection::Gfni>,
            {
                #[target_feature(enable = $features)]
                fn compiled<C, const ENCRYPT: bool>(
                    cpu: $cpu,
                    gfni: detection::Gfni,
                    cipher: &C,
                    blocks: &mut [[u8; 16]],
                ) where
                    C: CipherRounds<$words, More = detection::Gfni> + CipherRounds<[$words; 2], More = detection::Gfni>,
                {
                    let rest = groups::<[$words; 2], C, ENCRYPT>(cpu, gfni, cipher, blocks);
                    let rest = groups::<$words, C, ENCRYPT>(cpu, gfni, cipher, rest);
                    filled_up::<$words, C, ENCRYPT>(cpu, gfni, cipher, rest);
                }
                // SAFETY: the proofs say that the CPU has all that the function is compiled for.
                unsafe { compiled::<C, ENCRYPT>(cpu, gfni, cipher, blocks) }
            }
        }
    };
}

bytes! {
    Words512, detection::Avx512, "avx512f,avx512bw,gfni", _mm512_set1_epi64,
    _mm512_gf2p8affine_epi64_epi8, _mm512_gf2p8affineinv_epi64_epi8,
    vector => _mm512_shuffle_epi8(
        vector,
        _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203),
    ),
    (this, other, place) => _mm512_mask_blend_epi8(0x1111_1111_1111_1111 << place, this, other)
}

bytes! {
    Words256, detection::Words256, "avx2,gfni", _mm256_set1_epi64x,
    _mm256_gf2p8affine_epi64_epi8, _mm256_gf2p8affineinv_epi64_epi8,
    vector => _mm256_shuffle_epi8(
        vector,
        _mm256_set_epi32(
            0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203,
            0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203,
        ),
    ),
    (this, other, place) => _mm256_blendv_epi8(this, other, _mm256_set1_epi32(0xff << (8 * place)))
}

/// The cipher of these keys at the width of `backend`, if the CPU has GFNI.
pub(in crate::modes) fn sliced<K>(keys: SecretBox<K>, backend: XtsBackend) -> Option<Box<dyn BlockCipher>>
where
    K: CipherRounds<Words256, More = detection::Gfni>
        + CipherRounds<[Words256; 2], More = detection::Gfni>
        + CipherRounds<Words512, More = detection::Gfni>
        + CipherRounds<[Words512; 2], More = detection::Gfni>
        + Send
        + Sync
        + 'static,
{
    let gfni = detection::Gfni::detect()?;
    match ProvenWidth::of(backend) {
        ProvenWidth::Words512(cpu) => Some(Box::new(Sliced::<Words512, K>::new(keys, cpu, gfni))),
        ProvenWidth::Words256(cpu) => Some(Box::new(Sliced::<Words256, K>::new(keys, cpu, gfni))),
        ProvenWidth::Portable => None,
    }
}

/// Which of `names`, of the wide one and the narrow one, [`sliced`] makes.
pub(in crate::modes) fn sliced_name(backend: XtsBackend, names: [&'static str; 2]) -> Option<&'static str> {
    detection::Gfni::detect()?;
    match ProvenWidth::of(backend) {
        ProvenWidth::Words512(_) => Some(names[0]),
        ProvenWidth::Words256(_) => Some(names[1]),
        ProvenWidth::Portable => None,
    }
}
