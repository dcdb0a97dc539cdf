//! Which requests are shared, how they are cut, and when helpers are called.
//!
//! Everything that is guessed elsewhere is measured here: how fast the cipher is ([`CipherPace`]), what a
//! hand-off costs ([`HelperThreads::thresholds`]), whether cores are idle ([`HelperThreads::available`]), and
//! whether the caller really submits several requests before it waits ([`Depth`]).
//!
//! A request is shared if its cipher time exceeds twice the hand-off. Many small ones in a row wake a helper once
//! together they are worth it. On a busy machine `auto` is inline, with a lag of up to 100 ms. On a medium that answers
//! at once, a caller with 32 requests looks like one with a single request, 32 times; so one answer in 256 is held back
//! to see whether others are submitted before the caller collects it, and only then are middle-sized requests shared.
//!
//! Large reads from a slow medium are cut into parts of 128 KiB, whose slots on the ring are in addition to the
//! caller's. A write is split only where nobody can see it: on a medium that answers at once, and under `queue`, whose
//! parts the kernel splits as well. Elsewhere its parts are encrypted separately and written as one request.

use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::job::SharedSlots;
use crate::dispatch::{CipherPace, Dispatch, DispatchMode, HelperThreads};
use crate::{Op, Request, Traits};

/// Pieces of one request at most.
pub(super) const PARTS_MAX: usize = 32;
/// Pieces are whole units of this many bytes: the largest cipher sector.
const UNIT: usize = 4096;
/// Parts under `queue`, in bytes: dm-crypt's `max_read_size` and `max_write_size`.
const QUEUE_PART: usize = 128 * 1024;
/// Reads of this many bytes from a medium that takes time are decrypted part by part as they come.
const OVERLAP_LEAST: usize = 256 * 1024;
const OVERLAP_PART: usize = 128 * 1024;
/// Cipher time of the smallest part worth moving to another core.
const PART_TIME: Duration = Duration::from_micros(3);
/// Parts for each thread, so that nobody waits long for the first one or the last.
const PARTS_EACH: usize = 16;
/// Bytes in a part of a request that is left in the slots: what stays in a core's cache.
const DEFER_PART: usize = 128 * 1024;
/// Reads and writes between two looks at the clock, for shorter ones.
const ASK_EVERY: u32 = 16;
/// How long to look out at most for a part that a helper still has, before waiting for it.
const PATIENCE_MAX: Duration = Duration::from_micros(200);

/// How a request is cut: `count` pieces of `part_len` bytes, the last one shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitCut {
    pub part_len: usize,
    pub count: usize,
}

impl SplitCut {
    /// One piece.
    pub fn whole(len: usize) -> Self {
        Self { part_len: len, count: 1 }
    }

    /// Pieces of about `part_len` bytes, but at most `most` of them.
    pub fn into_parts(len: usize, part_len: usize, most: usize) -> Self {
        let most = most.clamp(1, PARTS_MAX);
        let part_len = part_len.max(len.div_ceil(most)).next_multiple_of(UNIT);
        Self { part_len, count: len.div_ceil(part_len).max(1) }
    }
}

/// Treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The submitter does it alone, whole.
    Inline,
    /// Workers get its parts.
    Queue(SplitCut),
    /// The submitter and helpers do it together, now.
    Share(SplitCut),
    /// Left in the slots until the submitter has submitted what else it has.
    Defer(SplitCut),
    /// Left in the slots until a helper has time or the submitter has nothing else to do: a write of a zone, which most
    /// likely has to wait for others anyway.
    Ahead(SplitCut),
    /// Its parts are read one by one and decrypted as they come.
    Overlap(SplitCut),
}

pub(super) struct SharingPolicy {
    dispatch: Dispatch,
    help: Option<Help>,
    answers_at_once: bool,
    /// Large reads are cut so that they are decrypted as they come.
    overlaps: bool,
    /// Writes wait for each other below the cipher, and may be encrypted while they do.
    encrypts_ahead: bool,
    depth: Depth,
}

struct Help {
    helpers: HelperThreads,
    pace: CipherPace,
    /// Bytes worth sharing with a helper that is awake, and with one that must be woken.
    awake: usize,
    asleep: usize,
    /// Bytes in a part at least.
    part: usize,
    asked: u32,
    /// Bytes that a helper could have worked on had it been awake.
    missed: usize,
}

impl SharingPolicy {
    /// The policy over a device with the traits `below`.
    pub fn over(below: &Traits, dispatch: Dispatch, helpers: Option<(HelperThreads, CipherPace)>) -> Self {
        let answers_at_once = below.geometry.answers_at_once;
        let help = helpers.map(|(helpers, pace)| {
            let (awake, asleep) = helpers.thresholds();
            Help {
                awake: pace.bytes_in(awake).max(2 * UNIT),
                asleep: pace.bytes_in(asleep).max(2 * UNIT),
                part: pace.bytes_in(PART_TIME).max(UNIT),
                helpers,
                pace,
                asked: 0,
                missed: 0,
            }
        });
        Self {
            dispatch,
            help,
            answers_at_once,
            // One that is a message to a server costs more cut than its decryption takes.
            overlaps: !answers_at_once && !below.sends_messages,
            // As those of a zone do.
            encrypts_ahead: !answers_at_once && below.geometry.zones.is_some(),
            depth: Depth::default(),
        }
    }

    /// Decides on a request that may use `most` operations on the medium. `under_way` is the number of other requests
    /// in flight.
    pub fn plan(&mut self, request: &Request, most: usize, under_way: usize) -> Treatment {
        let (len, mode, is_read) = match (request.op, &request.data) {
            (Op::Read, Some(buffer)) => (buffer.len(), self.dispatch.read, true),
            (Op::Write | Op::WriteFua, Some(data)) => (data.len(), self.dispatch.write, false),
            _ => return Treatment::Inline,
        };
        match mode {
            DispatchMode::Inline => Treatment::Inline,
            DispatchMode::Queue => Treatment::Queue(SplitCut::into_parts(len, QUEUE_PART, most)),
            DispatchMode::Auto if is_read && !self.answers_at_once => {
                if self.overlaps && len >= OVERLAP_LEAST && most > 1 {
                    Treatment::Overlap(SplitCut::into_parts(len, OVERLAP_PART, most))
                } else {
                    Treatment::Inline
                }
            }
            DispatchMode::Auto if self.encrypts_ahead && under_way >= DEEP as usize => self.ahead(len),
            DispatchMode::Auto => self.share(len),
        }
    }

    /// Tells if finished reads may be shared.
    pub fn may_share_reads(&self) -> bool {
        self.dispatch.read == DispatchMode::Auto && self.help.is_some()
    }

    /// Tells if finished reads of `bytes` bytes in all are worth sharing.
    pub fn is_worth_sharing(&mut self, bytes: usize) -> bool {
        let reads_auto = self.dispatch.read == DispatchMode::Auto;
        let Some(help) = self.help.as_mut().filter(|_| reads_auto) else {
            return false;
        };
        bytes >= help.awake && help.available() > 0 && help.is_worth_calling(bytes)
    }

    /// Tells if a helper is to be called for `bytes` more that are left in the slots.
    pub fn is_worth_calling(&mut self, bytes: usize) -> bool {
        self.help.as_mut().is_some_and(|help| help.is_worth_calling(bytes))
    }

    /// Wakes helpers for the `jobs` jobs in `slots`.
    pub fn call(&self, slots: &Arc<SharedSlots>, jobs: usize) {
        if let Some(help) = &self.help {
            help.helpers.call(slots, help.helpers.available().min(jobs));
        }
    }

    /// Tells if writes are encrypted ahead.
    pub fn encrypts_ahead(&self) -> bool {
        self.encrypts_ahead
    }

    /// Tells if reads, or writes, go through workers.
    pub fn uses_workers(&self, reads: bool) -> bool {
        let Dispatch { read, write, .. } = self.dispatch;
        let mode = if reads { read } else { write };
        mode == DispatchMode::Queue
    }

    /// Parts that may have been read and wait in the slots before the submitter decrypts one itself.
    pub fn lead(&self) -> usize {
        let helpers = self.help.as_ref().map_or(0, |help| help.helpers.count());
        2 * helpers + 2
    }

    /// How long to look out for parts of `len` bytes that helpers have.
    pub fn patience(&self, len: usize) -> Duration {
        let time = self.help.as_ref().map(|help| 2 * help.pace.time_of(len));
        time.unwrap_or_default().min(PATIENCE_MAX)
    }

    /// Notes that the caller has come for what is finished.
    pub fn polled(&mut self) {
        self.depth.polled();
    }

    fn ahead(&mut self, len: usize) -> Treatment {
        let help = self.help.as_mut().filter(|help| len >= help.part);
        match help.map(Help::available) {
            None | Some(0) => Treatment::Inline,
            Some(_) => Treatment::Ahead(SplitCut::into_parts(len, DEFER_PART, usize::MAX)),
        }
    }

    fn share(&mut self, len: usize) -> Treatment {
        let Some(help) = self.help.as_mut().filter(|help| len >= help.part) else {
            return Treatment::Inline;
        };
        if help.available() == 0 {
            return Treatment::Inline;
        }
        let pieces = || SplitCut::into_parts(len, DEFER_PART, usize::MAX);
        match self.depth.note() {
            Seen::Probe => Treatment::Defer(pieces()),
            Seen::Deep if help.is_worth_calling(len) => Treatment::Defer(pieces()),
            Seen::Flat if len >= help.awake && help.is_worth_calling(len) => {
                let threads = help.available() + 1;
                let part = help.part.max(len / (threads * PARTS_EACH)).min(len / 2);
                Treatment::Share(SplitCut::into_parts(len, part, usize::MAX))
            }
            Seen::Deep | Seen::Flat => Treatment::Inline,
        }
    }
}

impl Help {
    fn available(&mut self) -> usize {
        self.asked = self.asked.wrapping_add(1);
        if self.asked.is_multiple_of(ASK_EVERY) {
            self.helpers.refresh();
        }
        self.helpers.available()
    }

    /// Tells if one is awake; or if so much has been done without that waking one now, for this request and those that
    /// follow, costs little beside.
    fn is_worth_calling(&mut self, bytes: usize) -> bool {
        if self.helpers.is_awake() {
            return true;
        }
        self.missed = self.missed.saturating_add(bytes);
        let worth = self.missed >= self.asleep;
        if worth {
            self.missed = 0;
        }
        worth
    }
}

/// Detector of depth: of a caller that submits several requests before it comes for their ends.
///
/// Where a medium answers at once that can not be seen unless an answer is held back. So now and then
/// one is: if others are submitted before the caller comes for it, it has depth.
struct Depth {
    deep: bool,
    probing: bool,
    /// Requests since the last time the caller came, or since the probe.
    since: u32,
    /// Requests until the next probe.
    pause: u32,
}

/// Observation of a caller at one of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The caller waits for each request.
    Flat,
    /// The caller has several requests under way.
    Deep,
    /// To be found out with this request.
    Probe,
}

/// Requests at a time that are depth.
const DEEP: u32 = 3;
/// Requests between two probes of a caller without depth.
const PROBE_EVERY: u32 = 256;

impl Default for Depth {
    fn default() -> Self {
        Self { deep: false, probing: false, since: 0, pause: 1 }
    }
}

impl Depth {
    /// Notes a request that could be held back.
    fn note(&mut self) -> Seen {
        self.since = self.since.saturating_add(1);
        if self.deep {
            return Seen::Deep;
        }
        self.pause = self.pause.saturating_sub(1);
        if self.probing || self.pause > 0 {
            return Seen::Flat;
        }
        (self.probing, self.since, self.pause) = (true, 1, PROBE_EVERY);
        Seen::Probe
    }

    /// Notes that the caller has come for what has ended.
    fn polled(&mut self) {
        if self.deep || self.probing {
            self.deep = self.since >= DEEP;
            self.probing = false;
        }
        self.since = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;
    use crate::layer::crypt::any_cipher;
    use crate::zone::ZoneLayout;

    #[test]
    fn pieces_are_whole_units_and_never_too_many() {
        let cut = SplitCut::into_parts(1 << 20, 100_000, 64);
        assert_eq!((cut.part_len, cut.count), (102_400, 11));
        let cut = SplitCut::into_parts(1 << 22, UNIT, 64);
        assert_eq!((cut.part_len, cut.count), ((1 << 22) / PARTS_MAX, PARTS_MAX));
        assert_eq!(SplitCut::into_parts(512, UNIT, 64).count, 1);
        assert_eq!(SplitCut::into_parts(1 << 20, UNIT, 1).count, 1);
        assert_eq!(SplitCut::into_parts(1 << 20, UNIT, 0).count, 1);
        assert_eq!(SplitCut::into_parts(0, UNIT, 64).count, 1);
    }

    /// Traits of a medium below.
    fn medium(answers_at_once: bool) -> Traits {
        Traits::base(Geometry { answers_at_once, ..Geometry::plain(1 << 30, 512) })
    }

    fn zones(answers_at_once: bool) -> Traits {
        let mut zones = medium(answers_at_once);
        zones.geometry.zones = Some(ZoneLayout::new(1 << 30, 1 << 20).unwrap().model());
        zones
    }

    #[test]
    fn caller_that_waits_for_each_request_is_rarely_probed() {
        let mut depth = Depth::default();
        let mut probes = 0;
        for _ in 0..10_000 {
            match depth.note() {
                Seen::Flat => {}
                Seen::Probe => {
                    probes += 1;
                    depth.polled();
                }
                Seen::Deep => panic!("one request at a time is not depth"),
            }
        }
        assert!((39..=41).contains(&probes), "{probes}");
    }

    #[test]
    fn caller_with_depth_is_known_after_one_probe_and_forgotten_when_it_stops() {
        let mut depth = Depth::default();
        let seen = (0..32).map(|_| depth.note()).collect::<Vec<_>>();
        assert_eq!(seen[..2], [Seen::Probe, Seen::Flat]);
        for _ in 0..100 {
            depth.polled();
            assert!((0..32).all(|_| depth.note() == Seen::Deep));
        }
        depth.polled();
        assert_eq!(depth.note(), Seen::Deep);
        depth.polled();
        assert_eq!(depth.note(), Seen::Flat);
    }

    #[test]
    fn without_helpers_auto_is_inline_and_queue_is_cut_as_the_kernel_cuts() {
        let plan = |mode, len| {
            let mut policy = SharingPolicy::over(&medium(true), Dispatch::both(mode), None);
            let buffer = cryptline_sys::Buffer::alloc(len).unwrap();
            policy.plan(&Request::read(0, buffer, 0), usize::MAX, 0)
        };
        assert_eq!(plan(DispatchMode::Auto, 1 << 20), Treatment::Inline);
        assert_eq!(plan(DispatchMode::Inline, 1 << 20), Treatment::Inline);
        assert_eq!(plan(DispatchMode::Queue, 1 << 20), Treatment::Queue(SplitCut { part_len: QUEUE_PART, count: 8 }));
        assert_eq!(plan(DispatchMode::Queue, 4096), Treatment::Queue(SplitCut { part_len: QUEUE_PART, count: 1 }));
    }

    #[test]
    fn medium_that_answers_at_once_never_has_a_helper_below_the_crossover() {
        let pace = CipherPace::of(&any_cipher());
        // As willing as helpers can be: every core is idle and a hand-off costs nothing.
        let helpers = HelperThreads::always(2).unwrap();
        let mut policy = SharingPolicy::over(&medium(true), Dispatch::both(DispatchMode::Auto), Some((helpers, pace)));
        let crossover = policy.help.as_ref().unwrap().part;
        let mut plan = |len, is_read| {
            let buffer = cryptline_sys::Buffer::alloc(len).unwrap();
            policy.plan(
                &if is_read { Request::read(0, buffer, 0) } else { Request::write(0, buffer, false, 0) },
                usize::MAX,
                0,
            )
        };
        for is_read in [true, false] {
            for len in [512, UNIT, crossover - 1] {
                assert!((0..600).all(|_| plan(len.min(crossover - 1), is_read) == Treatment::Inline));
            }
            assert!((0..600).any(|_| plan(2 * crossover, is_read) != Treatment::Inline));
        }
    }

    #[test]
    fn only_large_writes_of_zones_that_take_time_are_encrypted_ahead_and_only_behind_others() {
        let pace = CipherPace::of(&any_cipher());
        let policy = |below: Traits| {
            let helpers = HelperThreads::always(2).unwrap();
            let dispatch = Dispatch::both(DispatchMode::Auto);
            SharingPolicy::over(&below, dispatch, Some((helpers, pace)))
        };
        let is_ahead = |policy: &mut SharingPolicy, len, under_way| {
            let buffer = cryptline_sys::Buffer::alloc(len).unwrap();
            let request = Request::write(0, buffer, false, 0);
            matches!(policy.plan(&request, usize::MAX, under_way), Treatment::Ahead(_))
        };
        let mut slow = policy(zones(false));
        assert!(is_ahead(&mut slow, 1 << 20, 3) && is_ahead(&mut slow, 1 << 20, 15));
        assert!(!is_ahead(&mut slow, 1 << 20, 2) && !is_ahead(&mut slow, 512, 15));
        assert!(!is_ahead(&mut policy(medium(false)), 1 << 20, 15));
        assert!(!is_ahead(&mut policy(zones(true)), 1 << 20, 15));
    }

    #[test]
    fn large_read_of_a_slow_medium_overlaps_with_its_decryption() {
        let mut policy = SharingPolicy::over(&medium(false), Dispatch::default(), None);
        let mut plan = |len, most| {
            let buffer = cryptline_sys::Buffer::alloc(len).unwrap();
            policy.plan(&Request::read(0, buffer, 0), most, 0)
        };
        assert_eq!(plan(1 << 20, 64), Treatment::Overlap(SplitCut { part_len: OVERLAP_PART, count: 8 }));
        assert_eq!(plan(1 << 20, 1), Treatment::Inline);
        assert_eq!(plan(64 << 10, 64), Treatment::Inline);
    }

    #[test]
    fn large_read_that_is_one_message_stays_one() {
        let server = Traits { sends_messages: true, ..medium(false) };
        let mut policy = SharingPolicy::over(&server, Dispatch::default(), None);
        let buffer = cryptline_sys::Buffer::alloc(1 << 20).unwrap();
        assert_eq!(policy.plan(&Request::read(0, buffer, 0), 64, 0), Treatment::Inline);
    }
}
