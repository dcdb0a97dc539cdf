//! Promises that the device has made, sector by sector, and whether a disk keeps them.
//!
//! A write is promised once a flush that was submitted after its end succeeds, or when it ends, where
//! it is durable. From then on its sectors hold it, or a write that was not over before it began.

use cryptline_testkit::suite::noise;

pub const SECTOR: usize = 512;
/// The write that filled the disk before the history began.
pub const FILL: usize = 0;

/// A moment; later ones are larger.
type Tick = u64;

/// Content that a write leaves in its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// [`pattern`] of its number.
    Pattern,
    Zeros,
    /// Whatever: it was discarded.
    Unknown,
}

/// How a write has ended, as whoever submitted it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    Done,
    /// Failed, or nobody knows: each of its sectors may hold it or not.
    MayHaveHappened,
    /// Nothing has changed.
    Refused,
}

#[derive(Clone)]
struct Write {
    content: Content,
    submitted: Tick,
    /// `None` while it may still take effect.
    ended: Option<Tick>,
    acknowledged: bool,
    /// Since when.
    promised: Option<Tick>,
}

/// All writes of a history, and where they went.
#[derive(Clone)]
pub struct Promises {
    writes: Vec<Write>,
    /// The writes of each sector, by number.
    sectors: Vec<Vec<usize>>,
    now: Tick,
    /// When each flush that has not ended was submitted.
    flushes: Vec<(u64, Tick)>,
    /// How many writes flushes have promised.
    pub kept: usize,
}

impl Promises {
    /// A disk that [`FILL`] has filled.
    pub fn new(sectors: usize) -> Self {
        let fill =
            Write { content: Content::Pattern, submitted: 0, ended: Some(0), acknowledged: true, promised: Some(0) };
        Self { writes: vec![fill], sectors: vec![vec![FILL]; sectors], now: 1, flushes: Vec::new(), kept: 0 }
    }

    /// A write is about to be submitted; its number.
    pub fn begin_write(&mut self, first: usize, count: usize, content: Content) -> usize {
        let number = self.writes.len();
        let submitted = self.tick();
        self.writes.push(Write { content, submitted, ended: None, acknowledged: false, promised: None });
        for sector in &mut self.sectors[first..first + count] {
            sector.push(number);
        }
        number
    }

    /// A write has ended.
    pub fn end_write(&mut self, number: usize, end: WriteEnd, durable: bool) {
        let now = self.tick();
        let acknowledged = end == WriteEnd::Done;
        if end == WriteEnd::Refused {
            self.sectors.iter_mut().for_each(|writes| writes.retain(|of| *of != number));
        }
        let write = &mut self.writes[number];
        write.ended = Some(now);
        write.acknowledged = acknowledged;
        write.promised = (acknowledged && durable).then_some(now);
        self.kept += usize::from(write.promised.is_some());
    }

    pub fn begin_flush(&mut self, token: u64) {
        let now = self.tick();
        self.flushes.push((token, now));
    }

    pub fn end_flush(&mut self, token: u64, is_ok: bool) {
        let place = self.flushes.iter().position(|flush| flush.0 == token);
        let (_, submitted) = self.flushes.swap_remove(place.expect("a flush ends once"));
        let now = self.tick();
        if !is_ok {
            return;
        }
        for write in &mut self.writes {
            if write.acknowledged && write.ended.is_some_and(|ended| ended < submitted) {
                self.kept += usize::from(write.promised.is_none());
                write.promised.get_or_insert(now);
            }
        }
    }

    /// Now.
    pub fn tick(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// Judges what was read from `first` on, at the end. The error names the first sector that is wrong.
    pub fn check(&self, first: usize, bytes: &[u8]) -> Result<(), String> {
        self.judge(first, bytes, |write| write.promised.is_some())
    }

    /// Judges what a read that was submitted at `since` found. As long as no write was `lost`, what
    /// has ended counts as what is promised.
    pub fn check_read(&self, first: usize, bytes: &[u8], since: Tick, lost: bool) -> Result<(), String> {
        let before = |moment: Option<Tick>| moment.is_some_and(|moment| moment < since);
        self.judge(first, bytes, |write| before(write.promised) || !lost && write.acknowledged && before(write.ended))
    }

    fn judge(&self, first: usize, bytes: &[u8], is_promised: impl Fn(&Write) -> bool) -> Result<(), String> {
        for (index, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
            let sector = first + index;
            let numbers = &self.sectors[sector];
            let is_over = |write: &Write| {
                let superseded = |by: &Write| is_promised(by) && write.ended.is_some_and(|ended| ended < by.submitted);
                numbers.iter().any(|&by| superseded(&self.writes[by]))
            };
            let fits = |number: &&usize| {
                let write = &self.writes[**number];
                !is_over(write)
                    && match write.content {
                        Content::Pattern => holds(bytes, **number, sector),
                        Content::Zeros => bytes.iter().all(|&byte| byte == 0),
                        Content::Unknown => true,
                    }
            };
            if numbers.iter().find(fits).is_some() {
                continue;
            }
            let promised = numbers.iter().rev().find(|&&number| is_promised(&self.writes[number]));
            let there = numbers.iter().find(|&&number| holds(bytes, number, sector));
            return Err(format!(
                "sector {sector} was promised to hold {} and holds {}",
                promised.map_or("something".to_owned(), name),
                there.map_or("noise".to_owned(), name),
            ));
        }
        Ok(())
    }
}

fn name(number: &usize) -> String {
    match *number {
        FILL => "what it held at first".to_owned(),
        number => format!("write #{number}"),
    }
}

/// Fills `bytes`, which begin with sector `first`, with the pattern of write `number`.
pub fn fill(bytes: &mut [u8], number: usize, first: usize) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let words = words(number, first + index);
        for (bytes, word) in sector.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Tells if a sector holds the pattern of write `number`.
pub fn holds(bytes: &[u8], number: usize, sector: usize) -> bool {
    let words = words(number, sector);
    let mut pairs = bytes.chunks_exact(8).zip(words);
    pairs.all(|(bytes, word)| bytes == word.to_le_bytes())
}

/// The words of write `number` in a sector, all different.
fn words(number: usize, sector: usize) -> impl Iterator<Item = u64> {
    let first = noise((number as u64) << 32 | sector as u64);
    (0..64).map(move |word| first.wrapping_add(word << 56 | word))
}
