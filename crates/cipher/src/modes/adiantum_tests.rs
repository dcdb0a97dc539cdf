//! Adiantum by its authors' vectors. Volumes of the kernel are in `src/tests/kernel_golden.rs`.

use super::*;

/// Origin and licence are in the file's head.
const VECTORS: &str = include_str!("../../tests/data/adiantum.txt");

#[test]
fn both_streams_match_the_vectors_of_the_authors() {
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    let words: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let mut seen = 0;
    for vector in words.chunks(5) {
        let [("cipher", cipher), ("key", key), ("tweak", tweak), ("plain", plain), ("sealed", sealed)] = vector else {
            panic!("not a vector: {vector:?}");
        };
        let spec = CipherSpec::parse(&format!("{cipher}-adiantum-plain64")).expect("a cipher");
        let adiantum = Adiantum::new(&spec, blocks(key).as_flattened(), XtsBackend::Portable).expect("32 bytes");
        let [start, end] = blocks(tweak)[..] else {
            panic!("a tweak of 32 bytes");
        };
        let run = |text: &str, way| {
            let mut text: Vec<Block> = blocks(text).into_iter().map(Block::from).collect();
            let tweak = |_| [start.into(), end.into()];
            adiantum.run(1, tweak, &mut text, way);
            text
        };
        assert_eq!(run(plain, AdiantumWay::Encrypt), blocks(sealed), "{key}");
        assert_eq!(run(sealed, AdiantumWay::Decrypt), blocks(plain), "{key}");
        seen += 1;
    }
    assert_eq!(seen, 10);
}

/// Property of a wide cipher.
#[test]
fn one_bit_of_a_sector_changes_all_its_blocks() {
    let spec = CipherSpec::parse("xchacha12,aes-adiantum-plain64").expect("a cipher");
    let adiantum = Adiantum::new(&spec, &[7; 32], XtsBackend::Portable).expect("32 bytes");
    let encrypted = |bit: u8| {
        let mut sectors = vec![Block::default(); 2 * 256];
        sectors[300][5] = bit;
        let mut result = sectors.clone();
        adiantum.encrypt(&[[0; 16].into(), [1; 16].into()], &mut result);
        adiantum.decrypt(&[[0; 16].into(), [1; 16].into()], &mut sectors);
        (result, sectors)
    };
    let (zeros, ones) = (encrypted(0), encrypted(1));
    for (zeros, ones) in [(zeros.0, ones.0), (zeros.1, ones.1)] {
        let (same, changed) = zeros.split_at(256);
        assert_eq!(same, &ones[..256]);
        let equal = changed.iter().zip(&ones[256..]).filter(|(a, b)| a == b);
        assert_eq!(equal.count(), 0);
    }
}

fn blocks(hex: &str) -> Vec<[u8; 16]> {
    crate::unhex(hex).as_chunks().0.to_vec()
}
