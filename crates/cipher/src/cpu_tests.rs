//! Which back end is chosen, and the error for one that is not available.

use super::*;

fn select(word: &str) -> Result<XtsBackend, String> {
    XtsBackend::select(Some(OsStr::new(word))).map_err(|error| error.to_string())
}

#[test]
fn the_variable_chooses_among_those_that_are_here() {
    for backend in XtsBackend::ALL {
        match select(backend.as_str()) {
            Ok(chosen) => assert_eq!(chosen, backend),
            Err(message) => {
                assert!(!XtsBackend::available().contains(&backend));
                let start = format!("CRYPTLINE_CPU={backend} needs CPU features that are not here");
                assert!(message.starts_with(&start), "{message}");
            }
        }
    }
    assert_eq!(select("portable"), Ok(XtsBackend::Portable));
}

#[test]
fn another_word_is_refused_with_all_that_are_possible() {
    for (word, shown) in [("", ""), ("AVX2", "AVX2"), ("sse\n2", "sse\\n2")] {
        let message = format!(
            "CRYPTLINE_CPU={shown} is no back end: unset it, or set one of avx512, avx2, aesni, armv8, portable"
        );
        assert_eq!(select(word), Err(message));
    }
}

#[test]
fn without_the_variable_a_back_end_of_this_cpu_is_chosen() {
    let fastest = XtsBackend::select(None).expect("there is always one");
    assert!(XtsBackend::available().contains(&fastest));
    assert!(XtsBackend::available().contains(&XtsBackend::Portable));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn ice_lake_and_before_prefer_256_bits_and_sapphire_rapids_does_not() {
    let slowed = |eax| detection::is_slowed_model(std::arch::x86_64::CpuidResult { eax, ebx: 0, ecx: 0, edx: 0 });
    // Signatures: Skylake-X, Ice Lake server and client, Tiger Lake.
    for eax in [0x0005_0654, 0x0006_06a6, 0x0007_06e5, 0x0008_06c1] {
        assert!(slowed(eax), "{eax:#x}");
    }
    // Rocket Lake, Sapphire Rapids, Emerald Rapids, Alder Lake.
    for eax in [0x000a_0671, 0x0008_06f8, 0x000c_06f2, 0x0009_0672] {
        assert!(!slowed(eax), "{eax:#x}");
    }
}
