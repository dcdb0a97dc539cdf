//! The XTS kernel at any cipher width, compared with the textbook's one block at a time.

use std::marker::PhantomData;

use aes::Aes128;
use cipher::KeySizeUser;
use cipher::array::ArraySize;
use cipher::consts::{U1, U8, U30, U64};
use cipher::inout::InOut;
use proptest::prelude::*;
use zeroize::ZeroizeOnDrop;

use super::*;
use crate::iv::IvLayout;

/// AES-128 that claims to work on `N` blocks at once, as the backends of other CPUs do.
struct Parallel<N>(Aes128, PhantomData<N>);

struct Backend<'a, N>(&'a Parallel<N>);

impl<N> KeySizeUser for Parallel<N> {
    type KeySize = U16;
}

impl<N> KeyInit for Parallel<N> {
    fn new(key: &cipher::Key<Self>) -> Self {
        Parallel(Aes128::new(key), PhantomData)
    }
}

impl<N> BlockSizeUser for Parallel<N> {
    type BlockSize = U16;
}

impl<N> ZeroizeOnDrop for Parallel<N> {}

impl<N: ArraySize> BlockCipherEncrypt for Parallel<N> {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U16>) {
        f.call(&Backend(self));
    }
}

impl<N: ArraySize> BlockCipherDecrypt for Parallel<N> {
    fn decrypt_with_backend(&self, f: impl BlockCipherDecClosure<BlockSize = U16>) {
        f.call(&Backend(self));
    }
}

impl<N> BlockSizeUser for Backend<'_, N> {
    type BlockSize = U16;
}

impl<N: ArraySize> ParBlocksSizeUser for Backend<'_, N> {
    type ParBlocksSize = N;
}

impl<N: ArraySize> BlockCipherEncBackend for Backend<'_, N> {
    fn encrypt_block(&self, block: InOut<'_, '_, Block>) {
        self.0.0.encrypt_block_inout(block);
    }
}

impl<N: ArraySize> BlockCipherDecBackend for Backend<'_, N> {
    fn decrypt_block(&self, block: InOut<'_, '_, Block>) {
        self.0.0.decrypt_block_inout(block);
    }
}

/// Encrypted and decrypted.
fn both_ways<C>(key: &[u8], sector_bytes: usize, data: &[u8]) -> [Vec<u8>; 2]
where
    BatchedXts<C>: XtsKernel,
    C: KeyInit,
{
    let kernel = BatchedXts::<C>::new(key);
    let ivs = IvSequence { layout: IvLayout::Plain64, next: 3, step: 1, shift: 0 };
    let (mut encrypted, mut decrypted) = (data.to_vec(), data.to_vec());
    kernel.encrypt(ivs.clone(), sector_bytes, &mut encrypted);
    kernel.decrypt(ivs, sector_bytes, &mut decrypted);
    [encrypted, decrypted]
}

proptest! {
    #![proptest_config(crate::cases(100))]

    #[test]
    fn the_backends_batch_size_does_not_change_the_bytes(
        key in prop::collection::vec(any::<u8>(), 32),
        log in 0..4_u32,
        count in prop_oneof![1..20_usize, 60..70_usize],
        seed in any::<u8>(),
    ) {
        let sector_bytes = 512 << log;
        let data: Vec<u8> = (seed..=255).cycle().take(count * sector_bytes).collect();
        let expected = both_ways::<Aes128>(&key, sector_bytes, &data);
        prop_assert!(both_ways::<Parallel<U1>>(&key, sector_bytes, &data) == expected, "1");
        prop_assert!(both_ways::<Parallel<U8>>(&key, sector_bytes, &data) == expected, "8");
        prop_assert!(both_ways::<Parallel<U30>>(&key, sector_bytes, &data) == expected, "30");
        prop_assert!(both_ways::<Parallel<U64>>(&key, sector_bytes, &data) == expected, "64");
    }
}

#[test]
fn the_last_tweaks_of_a_4096_byte_sector_are_x_to_their_number() {
    // Doubling one by one, as IEEE 1619-2007 writes it.
    let double = |tweak: u128| (tweak << 1) ^ if tweak >> 127 == 1 { 0x87 } else { 0 };
    let first = 0xf123_4567_89ab_cdef_0011_2233_4455_6677_u128;
    let sector = [Block::from(first.to_le_bytes())];
    let mut tweaks = [Tweak::default(); 256];
    PortableTweaks::new(&sector, 256).fill(&mut tweaks);
    let mut expected = first;
    for (number, tweak) in tweaks.iter().enumerate() {
        assert_eq!(u128::from(tweak[0]) | u128::from(tweak[1]) << 64, expected, "block {number}");
        expected = double(expected);
    }
}
