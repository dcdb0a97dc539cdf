//! The promises, one function each.

mod content;
mod durability;
mod ending;
mod failures;
mod random;
mod refusals;

use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_engine::dispatch::Dispatch;
use cryptline_testkit::suite::Fresh;

use crate::common::{BACKENDS, stack};
use crate::front::client::{Front, How, Server};

pub use content::{
    largest_requests_pass_with_small_ones_between_them, more_requests_than_are_served_at_a_time_are_all_answered,
    what_is_written_is_read_back_at_every_alignment_and_size, zeroed_range_reads_as_zeros_with_and_without_a_hole,
    zeroing_is_fast_only_where_zeros_need_not_be_written,
};
pub use durability::{
    durable_requests_are_durable_when_they_are_answered, flush_covers_what_was_answered_to_all_clients,
    zeroing_that_the_device_gives_up_half_way_is_durable_as_a_whole,
};
pub use ending::{
    server_stops_at_the_next_chunk_of_whatever_was_asked, server_stops_in_time_over_a_medium_that_never_answers,
    server_stops_in_time_over_a_slow_medium, short_request_waits_for_no_more_than_a_turn_of_a_long_one,
    work_for_a_client_that_is_gone_ends_soon,
};
pub use failures::{
    discard_that_the_medium_cannot_do_is_no_error, failed_discard_zeroing_and_durable_write_are_told,
    failed_flush_is_told_and_no_later_one_lies, failed_read_is_the_only_one_that_fails,
    failed_write_fails_every_flush_until_the_volume_is_reopened, fast_zeroing_that_is_refused_has_changed_nothing,
    full_disk_is_told_and_does_not_fail_later_flushes, large_read_fails_whole,
    large_write_fails_whole_and_the_next_one_does_not, parts_that_fail_differently_are_told_as_the_worse,
    refused_flush_behind_a_durable_request_is_a_failure_like_any_other,
    refused_flush_is_told_as_a_failure_and_not_as_a_refusal, request_behind_a_failed_large_one_is_not_taken_for_it,
    zeroing_that_the_medium_cannot_do_is_written_unless_it_must_be_fast,
};
pub use random::{
    many_requests_agree_with_the_model, requests_over_a_slow_medium_agree_with_the_model,
    requests_that_are_sent_together_agree_with_the_model,
};
pub use refusals::{read_only_disk_refuses_every_change, request_that_leaves_the_disk_or_its_blocks_is_refused};

/// Requests that a lane serves at a time.
const JOBS_MAX: usize = cryptline_serve::lane::JOBS_MAX;

const GRACE: Duration = Duration::from_millis(500);

/// Whoever sets it in the environment has checks do less: in an emulated machine they take many times as long.
pub const SPARING: &str = "CRYPTLINE_SPARING";

fn is_sparing() -> bool {
    std::env::var_os(SPARING).is_some()
}

/// How lanes do their I/O.
pub fn backends() -> impl Iterator<Item = BackendChoice> {
    let count = if is_sparing() { 1 } else { BACKENDS.len() };
    BACKENDS.into_iter().take(count)
}

/// Returns the choices of who runs the cipher.
fn dispatches() -> impl Iterator<Item = Dispatch> {
    // The first and the last one: the thread that has the request, and whoever is free.
    let step = if is_sparing() { stack::DISPATCHES.len() - 1 } else { 1 };
    stack::DISPATCHES.into_iter().step_by(step)
}

fn backends_and_dispatches() -> impl Iterator<Item = (BackendChoice, Dispatch)> {
    backends().flat_map(|backend| dispatches().map(move |dispatch| (backend, dispatch)))
}

/// Runs `check` over each backend, on a fresh device each; the server must end well.
fn on_each_backend(front: Front, over: impl Fn() -> Fresh, check: impl Fn(&dyn Server)) {
    for backend in backends() {
        println!("over {backend:?}");
        let grace = GRACE;
        let server = front(over(), How { backend, grace });
        check(&*server);
        assert_eq!(server.end(), Ok(()));
    }
}

/// The same, whoever runs the cipher.
fn on_each_dispatch(front: Front, over: impl Fn(Dispatch) -> Fresh, check: impl Fn(&dyn Server)) {
    for dispatch in dispatches() {
        println!("{dispatch:?}");
        on_each_backend(front, || over(dispatch), &check);
    }
}
