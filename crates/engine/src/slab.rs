//! A table of things in flight, with a bound. It grows to as many as were ever there at a time; from then on, taking and
//! freeing a place allocates nothing. Places that were never taken cost nothing: neither memory nor time when the table is
//! looked through.

/// Holds at most as many values as it was made for.
pub struct Slab<T> {
    capacity: usize,
    /// As many as were ever taken at a time.
    places: Vec<Option<T>>,
    /// Those of them that are empty.
    free: Vec<usize>,
}

impl<T> Slab<T> {
    /// A table of `capacity` places.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, places: Vec::new(), free: Vec::new() }
    }

    /// Puts a value into a free place; gives it back where there is none.
    pub fn insert(&mut self, value: T) -> Result<usize, T> {
        match self.free.pop() {
            Some(index) => {
                self.places[index] = Some(value);
                Ok(index)
            }
            None if self.places.len() < self.capacity => {
                self.places.push(Some(value));
                Ok(self.places.len() - 1)
            }
            None => Err(value),
        }
    }

    /// Takes a value out and frees its place.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.places.get_mut(index)?.take()?;
        self.free.push(index);
        Some(value)
    }

    /// The value at a place.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.places.get(index)?.as_ref()
    }

    /// The value at a place, to be changed.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.places.get_mut(index)?.as_mut()
    }

    /// The values in the table.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// How many values are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// How many values fit into it.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tells if the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells if there is no free place.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_never_more_than_made_for() {
        let mut slab = Slab::new(2);
        let (one, two) = (slab.insert('a').unwrap(), slab.insert('b').unwrap());
        assert_eq!(slab.insert('c'), Err('c'));
        assert_eq!(slab.remove(one), Some('a'));
        assert_eq!(slab.remove(one), None);
        assert!(slab.insert('c').is_ok());
        assert_eq!(slab.remove(two), Some('b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn places_that_were_never_taken_are_not_looked_through() {
        let mut slab = Slab::new(1 << 20);
        let one = slab.insert('a').unwrap();
        slab.remove(one);
        slab.insert('b').unwrap();
        assert_eq!((slab.places.len(), slab.capacity()), (1, 1 << 20));
        assert!(!slab.is_full());
        assert_eq!(slab.iter().collect::<String>(), "b");
    }
}
