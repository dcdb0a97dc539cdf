//! Clients that the memory limits of a container or a shell admit.
//!
//! A client that asks for much has all buffers of a lane at work. Where a limit leaves less than that for each, the kernel
//! would end the server, and every client with it.

use cryptline::luks::{Available, available_within_limits};

use super::sandbox::Needs;
use crate::CliError;
use crate::output::warn;

/// Buffers of a lane, its ring and its thread, in KiB.
const OF_CLIENT: u64 = 36 * 1024;
/// Memory that a server takes beside, in KiB.
const OF_SERVER: u64 = 6 * 1024;

/// As many of `wanted` clients as there is memory for, with a warning where those are fewer; `None` where there is
/// enough for all.
///
/// # Errors
/// Exit code 1 where there is too little for one, or for all where `needs` has no use for fewer.
pub fn clients(needs: &Needs<'_>) -> Result<Option<u64>, CliError> {
    let Some(available) = available_within_limits() else {
        return Ok(None);
    };
    let clients = clients_within(&available);
    if clients >= needs.clients {
        return Ok(None);
    }
    let (Available { kib, bound }, option) = (available, needs.clients_option);
    let mib = kib / 1024;
    if clients == 0 || !needs.serves_fewer {
        let least = if needs.serves_fewer { 1 } else { needs.clients };
        let wanted = (OF_SERVER + OF_CLIENT * least).div_ceil(1024);
        return Err(CliError::parameters(format!(
            "{bound} leaves {mib} MiB of memory, and {} can take {wanted} MiB; raise that limit or lower {option}",
            count_of(least)
        )));
    }
    warn(&[format!(
        "no more than {} at a time: {bound} leaves {mib} MiB of memory; raise that limit for more",
        count_of(clients)
    )]);
    Ok(Some(clients))
}

/// `1 client`, `2 clients`.
pub fn count_of(clients: u64) -> String {
    let s = if clients == 1 { "" } else { "s" };
    format!("{clients} client{s}")
}

/// Lanes that there is memory for, at least one.
pub fn lanes() -> usize {
    let most = available_within_limits().map(|available| clients_within(&available).max(1));
    most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

fn clients_within(available: &Available) -> u64 {
    available.kib.saturating_sub(OF_SERVER) / OF_CLIENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_all_buffers_at_work_within_the_limit() {
        for (mib, expected) in [(0, 0), (6, 0), (41, 0), (42, 1), (77, 1), (78, 2), (6 + 36 * 64, 64)] {
            let available = Available { kib: mib * 1024, bound: String::new() };
            assert_eq!(clients_within(&available), expected, "{mib} MiB");
        }
    }
}
