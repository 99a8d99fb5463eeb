//! The queue of events to come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Micros;

/// Events by time, and at one time in the order of their [`rank`](Event::rank), and then in the order in which they were
/// put in: the outcome never depends on a hash or an address.
#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    next: u64,
}

/// What an [`Events`] queue holds.
pub(crate) trait Event {
    /// Of the events at one time, those of a lower rank come first.
    fn rank(&self) -> u8;
}

#[derive(Debug)]
struct Entry<E> {
    at: Micros,
    rank: u8,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.rank, self.number).cmp(&(other.at, other.rank, other.number))
    }
}

impl<E: Event> Default for Events<E> {
    fn default() -> Self {
        Events { heap: BinaryHeap::new(), next: 0 }
    }
}

impl<E: Event> Events<E> {
    /// Puts an event in.
    pub(crate) fn push(&mut self, at: Micros, event: E) {
        self.heap.push(Reverse(Entry { at, rank: event.rank(), number: self.next, event }));
        self.next += 1;
    }

    /// Takes the next event out.
    pub(crate) fn pop(&mut self) -> Option<(Micros, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// When the next event is.
    pub(crate) fn next_time(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Event for (u8, char) {
        fn rank(&self) -> u8 {
            self.0
        }
    }

    #[test]
    fn time_then_rank_then_order() {
        let mut events = Events::default();
        for (at, rank, name) in [(2, 0, 'e'), (1, 1, 'b'), (1, 0, 'a'), (1, 1, 'c'), (1, 2, 'd')] {
            events.push(Micros(at), (rank, name));
        }
        assert_eq!(events.next_time(), Some(Micros(1)));
        let order: String = std::iter::from_fn(|| events.pop()).map(|(_, (_, name))| name).collect();
        assert_eq!(order, "abcde");
        assert!(events.is_empty());
    }
}
