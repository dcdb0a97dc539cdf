//! A medium for tests that records what is stored and when it is persistent, and shows every state
//! in which a crash can leave it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::BttMedium;
use crate::Fault;

const PAGE: usize = 4096;

/// Event on the medium.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were stored at an offset.
    Store(u64, Vec<u8>),
    /// A persistence point.
    Persist,
}

/// A picture of the medium, shared, and what was stored since.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<State>>);

struct State {
    base: Arc<Vec<u8>>,
    /// Pages that differ from it.
    pages: BTreeMap<usize, Box<[u8]>>,
    events: Vec<Event>,
}

impl Recorder {
    pub fn new(size: usize) -> Self {
        Self::over(Arc::new(vec![0; size]))
    }

    fn over(base: Arc<Vec<u8>>) -> Self {
        Self(Arc::new(Mutex::new(State { base, pages: BTreeMap::new(), events: Vec::new() })))
    }

    /// Forgets the events so far and makes all of it the picture that crashes start from.
    pub fn settle(&self) {
        let mut state = self.0.lock().unwrap();
        let mut bytes = state.base.as_ref().clone();
        for (page, content) in std::mem::take(&mut state.pages) {
            bytes[page * PAGE..][..content.len()].copy_from_slice(&content);
        }
        state.base = Arc::new(bytes);
        state.events.clear();
    }

    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().events.clone()
    }

    /// As if there had been no persistence point.
    pub fn forget_persistence(&self) {
        let mut state = self.0.lock().unwrap();
        state.events.retain(|event| matches!(event, Event::Store(..)));
    }

    /// The medium as some of the events leave it.
    fn after<'a>(&self, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let crashed = Self::over(Arc::clone(&self.0.lock().unwrap().base));
        for event in events {
            if let Event::Store(offset, bytes) = event {
                crashed.store(*offset, bytes).unwrap();
            }
        }
        crashed.0.lock().unwrap().events.clear();
        crashed
    }

    /// Every state that a crash can leave: all that was stored before the last persistence
    /// point, and any part of what was stored after it, in units of eight bytes. A long store is
    /// torn in the middle and in every other word. Where that is more than `most` states at one
    /// point, so many are drawn.
    pub fn crashes(&self, most: u64) -> Vec<Self> {
        let events = self.events();
        let mut states = Vec::new();
        let mut persistent = 0;
        for end in 0..=events.len() {
            if end > 0 && matches!(events[end - 1], Event::Persist) {
                persistent = end;
            }
            // Longer windows contain the choices of shorter ones.
            let is_full = end == events.len() || matches!(events[end], Event::Persist);
            if !is_full {
                continue;
            }
            let loose: Vec<Event> = events[persistent..end].iter().flat_map(torn).collect();
            for pick in 0..most.min(1 << loose.len().min(63)) {
                let is_all = 1 << loose.len().min(63) <= most;
                let arrives = |part: usize| {
                    if is_all { pick >> part & 1 != 0 } else { arrives_by_chance(pick, part, loose.len()) }
                };
                let chosen = loose.iter().enumerate();
                let chosen = chosen.filter(|(part, _)| arrives(*part));
                let chosen = chosen.map(|(_, event)| event);
                states.push(self.after(events[..persistent].iter().chain(chosen)));
            }
        }
        states
    }
}

/// The pages of a range: which, what of it, and how much comes before.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let (mut at, mut done) = (usize::try_from(offset).unwrap(), 0);
    std::iter::from_fn(move || {
        let inside = at % PAGE..(at % PAGE + len - done).min(PAGE);
        let piece = (at / PAGE, inside.clone(), done);
        at += inside.len();
        done += inside.len();
        (!inside.is_empty()).then_some(piece)
    })
}

/// Tells if a part arrives in draw `pick`: none or all at first, then prefixes, then at random with one of three
/// densities.
fn arrives_by_chance(pick: u64, part: usize, parts: usize) -> bool {
    match pick {
        0 => false,
        1 => true,
        _ if pick.is_multiple_of(4) => (part as u64) < pick * 131 % parts as u64,
        _ => {
            let mut word = pick << 32 ^ part as u64;
            for _ in 0..3 {
                word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            }
            (word >> 40) % 4 < pick % 4
        }
    }
}

/// The parts of a store that can arrive without the others.
fn torn(event: &Event) -> Vec<Event> {
    let Event::Store(offset, bytes) = event else {
        return Vec::new();
    };
    let word = |(index, word): (usize, &[u8])| Event::Store(offset + index as u64 * 8, word.into());
    let words: Vec<Event> = bytes.chunks(8).enumerate().map(word).collect();
    if words.len() <= 4 {
        return words;
    }
    let half = bytes.len() / 16 * 8;
    let mut parts =
        vec![Event::Store(*offset, bytes[..half].into()), Event::Store(offset + half as u64, bytes[half..].into())];
    parts.extend(words.into_iter().step_by(2).take(3));
    parts
}

impl BttMedium for Recorder {
    fn size(&self) -> u64 {
        self.0.lock().unwrap().base.len() as u64
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let state = self.0.lock().unwrap();
        for (page, inside, done) in pieces(offset, target.len()) {
            let source = match state.pages.get(&page) {
                Some(content) => &content[inside.clone()],
                None => &state.base[page * PAGE..][inside.clone()],
            };
            target[done..][..source.len()].copy_from_slice(source);
        }
        Ok(())
    }

    fn load32(&self, offset: u64) -> Result<u32, Fault> {
        let mut word = [0; 4];
        self.read(offset, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn store(&self, offset: u64, source: &[u8]) -> Result<(), Fault> {
        let mut guard = self.0.lock().unwrap();
        let state = &mut *guard;
        for (page, inside, done) in pieces(offset, source.len()) {
            let content = state.pages.entry(page).or_insert_with(|| {
                let end = (page * PAGE + PAGE).min(state.base.len());
                state.base[page * PAGE..end].into()
            });
            let len = inside.len();
            content[inside].copy_from_slice(&source[done..][..len]);
        }
        state.events.push(Event::Store(offset, source.into()));
        Ok(())
    }

    fn store32(&self, offset: u64, word: u32) -> Result<(), Fault> {
        assert!(offset.is_multiple_of(4));
        self.store(offset, &word.to_le_bytes())
    }

    fn store64(&self, offset: u64, word: u64) -> Result<(), Fault> {
        assert!(offset.is_multiple_of(8));
        self.store(offset, &word.to_le_bytes())
    }

    fn persist(&self) -> Result<(), Fault> {
        self.0.lock().unwrap().events.push(Event::Persist);
        Ok(())
    }

    fn clear(&self, offset: u64, len: u64) -> Result<(), Fault> {
        self.store(offset, &vec![0; usize::try_from(len).unwrap()])
    }

    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}
