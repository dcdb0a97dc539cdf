//! Units of sizes, the same wherever a person writes one: those of cryptsetup.

/// Bytes in `unit`: `K` and `KiB` are powers of 1024, `KB` is one of 1000, none is a byte.
#[must_use]
pub fn bytes_in(unit: &str) -> Option<u64> {
    Some(match unit {
        "" | "b" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "m" | "M" | "MiB" => 1 << 20,
        "g" | "G" | "GiB" => 1 << 30,
        "t" | "T" | "TiB" => 1 << 40,
        "p" | "P" | "PiB" => 1 << 50,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "PB" => 1_000_000_000_000_000,
        _ => return None,
    })
}
