//! Notes that a layer needs on a request when it comes back from the device below.
//!
//! ```text
//! down   request (token)  ─► enter, with a note ─► request (its place here as its token)
//! up     request (token)  ◄─ leave, with the note ◄─ request (that place)
//! ```
//!
//! The table grows to as many requests as were ever in flight, and has a bound.

use crate::Request;
use crate::slab::Slab;

/// The requests that one queue has passed down, each with a note.
pub struct InFlight<T>(Slab<(u64, T)>);

impl<T> InFlight<T> {
    /// A table for `depth` requests.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self(Slab::new(depth))
    }

    /// Notes a request that is about to be passed down. Gives the note back where the table is full.
    pub fn enter(&mut self, request: &mut Request, note: T) -> Result<(), T> {
        let place = self.0.insert((request.token, note));
        request.token = place.map_err(|(_, note)| note)? as u64;
        Ok(())
    }

    /// Takes the note of a request that has come back, which gets its own token again.
    ///
    /// # Panics
    /// Where the request was not entered. The gate below lets no such one back.
    pub fn leave(&mut self, request: &mut Request) -> T {
        let place = usize::try_from(request.token).ok();
        let entry = place.and_then(|place| self.0.remove(place));
        let (token, note) = entry.expect("what comes back was passed down");
        request.token = token;
        note
    }

    /// The notes of all that is below.
    pub fn notes(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, note)| note)
    }

    /// Tells if nothing is below.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many more requests fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.capacity() - self.0.len()
    }

    /// Tells if no more requests fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_gets_its_own_note_and_token_back_in_any_order() {
        let mut table = InFlight::new(2);
        let mut requests = [Request::flush(7), Request::flush(7)];
        for (request, note) in requests.iter_mut().zip(['a', 'b']) {
            assert_eq!(table.enter(request, note), Ok(()));
        }
        assert_ne!(requests[0].token, requests[1].token);
        let mut third = Request::flush(9);
        assert_eq!(table.enter(&mut third, 'c'), Err('c'));
        assert!(table.is_full() && third.token == 9);
        for (request, note) in requests.iter_mut().zip(['a', 'b']).rev() {
            assert_eq!(table.leave(request), note);
            assert_eq!(request.token, 7);
        }
        assert!(table.is_empty());
    }
}
