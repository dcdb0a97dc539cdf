//! The promises of a device, one function each; the name says the promise.

mod concurrent;
mod content;
mod extents;
mod refusals;

pub use concurrent::{
    deep_queue_completes_each_request_once, dropping_a_queue_with_requests_in_flight_harms_nobody,
    neighbouring_blocks_written_by_two_threads_at_once_all_arrive,
    queues_of_two_threads_see_each_others_completed_writes,
};
pub use content::{
    discarded_range_leaves_its_neighbours_alone, durable_write_is_read_back, flush_succeeds_with_and_without_writes,
    hint_ends_well_and_changes_nothing, last_block_is_written_and_nothing_after_it,
    what_is_written_is_read_back_at_every_alignment_and_size,
    zeroed_range_reads_as_zeros_and_leaves_its_neighbours_alone,
};
pub use extents::extents_cover_the_device_and_hide_no_data;
pub use refusals::{
    empty_request_is_refused, it_offers_what_is_listed_and_refuses_the_rest, misaligned_request_is_refused,
    offset_that_overflows_is_refused, range_past_the_end_is_refused, read_only_device_refuses_every_change,
    refused_request_changes_nothing_and_latches_nothing,
};
