//! The nodes that a search has reached and not looked at yet, nearest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Distances below this are sorted into buckets.
const BUCKETS: usize = 1 << 10;
/// So many buckets are looked at for a node that is next.
const AHEAD: usize = 16;

/// Nodes by distance. Those at the same distance come in the order in which they were reached, which keeps ways short, and
/// lets a search see which one is next.
#[derive(Debug, Default)]
pub(super) struct Queue {
    buckets: Vec<Vec<u32>>,
    far: BinaryHeap<Reverse<(i64, u32)>>,
    /// The bucket of the nearest, how much of it was looked at, and where buckets end that are in use.
    bucket: usize,
    read: usize,
    end: usize,
}

impl Queue {
    /// Adds a node, which is not nearer than the last that was taken.
    #[inline]
    pub(super) fn push(&mut self, distance: i64, node: u32) {
        match usize::try_from(distance) {
            Ok(bucket) if bucket < BUCKETS => {
                if bucket >= self.buckets.len() {
                    self.buckets.resize_with(bucket + 1, Vec::new);
                }
                self.end = self.end.max(bucket + 1);
                self.buckets[bucket].push(node);
            }
            _ => self.far.push(Reverse((distance, node))),
        }
    }

    /// The nearest node.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<(i64, u32)> {
        while self.bucket < self.end {
            if let Some(&node) = self.buckets[self.bucket].get(self.read) {
                return Some((self.bucket as i64, node));
            }
            (self.bucket, self.read) = (self.bucket + 1, 0);
        }
        self.far.peek().map(|&Reverse(nearest)| nearest)
    }

    /// Takes the nearest node.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(i64, u32)> {
        let nearest = self.peek()?;
        if self.bucket < self.end {
            self.read += 1;
        } else {
            self.far.pop();
        }
        Some(nearest)
    }

    /// Which nodes probably are the next to be taken.
    #[inline]
    pub(super) fn next(&self) -> [Option<(i64, u32)>; 2] {
        let mut found = [None; 2];
        let (mut read, mut count) = (self.read, 0);
        for bucket in self.bucket..self.end.min(self.bucket + AHEAD) {
            for &node in self.buckets[bucket].get(read..).unwrap_or(&[]).iter().take(2 - count) {
                found[count] = Some((bucket as i64, node));
                count += 1;
            }
            if count == 2 {
                break;
            }
            read = 0;
        }
        found
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.buckets[..self.end].iter_mut().for_each(Vec::clear);
        self.far.clear();
        (self.bucket, self.read, self.end) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_comes_first_and_who_came_first_among_equals() {
        let mut queue = Queue::default();
        for round in 0..2 {
            for (distance, node) in [(7, 1), (5000, 2), (3, 3), (7, 4), (1500, 5), (3, 6)] {
                queue.push(distance, node + round);
            }
            assert_eq!(queue.next(), [Some((3, 3 + round)), Some((3, 6 + round))]);
            assert_eq!(queue.pop(), Some((3, 3 + round)));
            // A way from there.
            queue.push(4, 9);
            let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            let expected = [(3, 6), (4, 9 - round), (7, 1), (7, 4), (1500, 5), (5000, 2)];
            assert_eq!(rest, expected.map(|(distance, node)| (distance, node + round)));
            assert_eq!(queue.peek(), None);
            queue.push(9000, 1);
            queue.clear();
            assert_eq!(queue.pop(), None);
        }
    }
}
