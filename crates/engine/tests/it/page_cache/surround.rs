//! Actions of the kernel and another program on the files of a stack.

use std::ops::Range;

use cryptline_testkit::cache::{FileOf, Foreign};

use super::history::{Place, Step};
use super::promises::SECTOR;
use super::stack::Stack;

/// The files of a stack, and what has them open besides.
pub struct Surroundings<'a> {
    stack: &'a Stack,
    /// One, or two.
    files: Vec<FileOf>,
    foreign: Vec<Foreign>,
    /// Bytes in a block.
    block: usize,
}

impl<'a> Surroundings<'a> {
    pub fn new(stack: &'a Stack, files: Vec<FileOf>, block: usize) -> Self {
        Self { stack, files, foreign: Vec::new(), block }
    }

    /// A step that no client makes.
    pub fn take(&mut self, step: &Step, log: &mut Vec<String>) {
        let machine = self.stack.bed.machine;
        match *step {
            Step::WriteBack(place, fault) => {
                let (file, bytes, span) = self.in_file(place);
                let count = machine.write_back(file, bytes, fault);
                let how = match fault.filter(|_| count > 0) {
                    Some(error) => format!("fails: {error}"),
                    None => format!("writes {count}"),
                };
                log.push(format!("writeback of {span} {how}"));
            }
            Step::Evict(place) => {
                let (file, bytes, span) = self.in_file(place);
                machine.evict(file, bytes);
                log.push(format!("clean pages of {span} are evicted"));
            }
            Step::ForeignOpen => {
                if self.foreign.len() < 3 {
                    let file = self.files[self.foreign.len() % self.files.len()];
                    self.foreign.push(machine.foreign_open(file));
                    log.push("another program opens the file".to_owned());
                }
            }
            Step::ForeignSync => {
                if let Some(foreign) = self.foreign.last_mut() {
                    let told = machine.foreign_sync(foreign);
                    log.push(format!("another program's fsync: {told:?}"));
                }
            }
            Step::ForeignRead(place) => {
                let (_, bytes, span) = self.in_file(place);
                if let Some(foreign) = self.foreign.last() {
                    machine.foreign_read(foreign, bytes);
                    log.push(format!("another program reads {span}"));
                }
            }
            _ => {
                if self.foreign.pop().is_some() {
                    log.push("another program closes the file".to_owned());
                }
            }
        }
    }

    /// From now on the cache shows what the medium has.
    pub fn evict_all(&self) {
        for file in &self.files {
            self.stack.bed.machine.evict(*file, 0..usize::MAX);
        }
    }

    pub fn has_lost(&self) -> bool {
        let machine = self.stack.bed.machine;
        self.files.iter().any(|file| machine.has_lost(*file))
    }

    /// First sector of a place, and how many it has.
    pub fn sectors(&self, place: Place) -> (usize, usize) {
        let each = self.block / SECTOR;
        (place.at * each, place.blocks * each)
    }

    /// A place in a file: what lies before the data is not written. Where there are two files, places are
    /// not those of the same numbers on the device, and there are as many of them.
    fn in_file(&self, place: Place) -> (FileOf, Range<usize>, String) {
        let (first, count) = self.sectors(place);
        let file = self.files[place.blocks % self.files.len()];
        if place.at == 0 {
            return (file, 0..usize::MAX, "everything".to_owned());
        }
        let start = self.stack.image.len().saturating_sub(self.stack.size);
        let from = start + first * SECTOR / self.files.len();
        let to = from + count * SECTOR;
        (file, from..to, span(first, count))
    }
}

pub fn span(first: usize, count: usize) -> String {
    format!("sectors {first}..{}", first + count)
}
