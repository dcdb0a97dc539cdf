//! Costs, and the time they take.

use super::*;
use crate::ErrorKind;

fn pbkdf2(hash: &str, iterations: u32) -> Kdf {
    Kdf::Pbkdf2 { hash: hash.into(), iterations, salt: vec![2; SALT_LEN] }
}

fn argon2(time: u32, memory_kib: u32, cpus: u32) -> Kdf {
    Kdf::Argon2 { variant: Argon2Variant::Argon2i, time, memory_kib, cpus, salt: vec![2; SALT_LEN] }
}

fn budget() -> Budget {
    Budget::new(KdfLimits::default())
}

#[test]
fn ordinary_slots_are_within_the_default_limit() {
    for kdf in [pbkdf2("sha256", 2_000_000), pbkdf2("sha512", 1_000_000), argon2(4, 1 << 20, 4)] {
        budget().spend(&kdf, 64).unwrap();
    }
}

/// No machine applies a hash two billion times in five minutes and none writes 32 PiB.
#[test]
fn hours_of_work_are_refused_whatever_the_hash() {
    for kdf in [
        pbkdf2("sha1", u32::MAX),
        pbkdf2("sha256", u32::MAX),
        pbkdf2("whirlpool", u32::MAX),
        pbkdf2("stribog512", u32::MAX),
        argon2(u32::MAX, 1 << 22, 4),
        argon2(u32::MAX, 32, 4),
    ] {
        let error = budget().spend(&kdf, 64).unwrap_err();
        let Error::CostLimit { needed, .. } = &error else {
            panic!("{error}");
        };
        assert!(*needed > Duration::from_secs(300), "{needed:?}");
        assert_eq!(error.kind(), ErrorKind::Device);
    }
}

/// The same count is another time for another hash: the reason for measuring.
#[test]
fn slow_hash_takes_longer_than_a_fast_one() {
    let time = |hash| estimate(&pbkdf2(hash, 1 << 30), 1).unwrap();
    assert!(time("stribog512") > time("sha1"));
    assert!(time("whirlpool") > time("sha1"));
}

#[test]
fn time_grows_with_the_costs() {
    let time = |kdf: &Kdf, len| estimate(kdf, len).unwrap();
    let once = time(&pbkdf2("sha256", 1 << 28), 32);
    let doubled = time(&pbkdf2("sha256", 1 << 29), 32);
    assert!(once > Duration::ZERO);
    assert_eq!(doubled.as_nanos() / 2, once.as_nanos());
    // Two blocks of output are two derivations.
    assert_eq!(time(&pbkdf2("sha256", 1 << 28), 33), doubled);
    assert_eq!(time(&argon2(8, 1 << 22, 1), 32).as_nanos() / 2, time(&argon2(4, 1 << 22, 1), 32).as_nanos());
}

#[test]
fn slots_share_one_budget() {
    let kdf = pbkdf2("sha256", 1 << 28);
    let each = estimate(&kdf, 32).unwrap();
    let mut budget = Budget::new(KdfLimits { time: each * 2 });
    budget.spend(&kdf, 32).unwrap();
    budget.spend(&kdf, 32).unwrap();
    assert_eq!(budget.spent(), each * 2);
    let error = budget.spend(&kdf, 32).unwrap_err();
    assert!(matches!(error, Error::CostLimit { limit, .. } if limit == each * 2));
    // What is next to nothing is always allowed.
    budget.spend(&pbkdf2("sha256", 1000), 32).unwrap();
}

#[test]
fn refusal_names_the_costs_the_time_and_the_limit() {
    let kdf = pbkdf2("whirlpool", u32::MAX);
    let message = budget().spend(&kdf, 64).unwrap_err().to_string();
    assert!(message.contains("4294967295 iterations of PBKDF2 with 'whirlpool' would take about"), "{message}");
    assert!(message.contains("the limit is 300 seconds"), "{message}");
}

#[test]
fn without_limits_nothing_is_refused() {
    let mut budget = Budget::new(KdfLimits::NONE);
    budget.spend(&argon2(u32::MAX, 1 << 22, 1), 64).unwrap();
    budget.spend(&pbkdf2("sha256", u32::MAX), 512).unwrap();
}
