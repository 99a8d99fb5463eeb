//! Which line of the PTX text machine code comes from: looked at where a kernel has done something wrong, and never before.

use std::sync::Arc;

use rgpu_image::ptx::ast::Locations;

use super::code::Image;
use crate::abi;

/// Where in a function's machine code what a line was compiled to begins, in order; line 0 is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lines(pub(super) Vec<[u32; 2]>);

impl Lines {
    /// From pieces of machine code, each with its begin, its end and its line, in order, and from where blocks begin, in order.
    pub(super) fn new(pieces: impl Iterator<Item = (u32, u32, u32)>, blocks: &[u32]) -> Self {
        let mut all: Vec<[u32; 2]> = Vec::new();
        let mut add = |start, line| match all.last_mut() {
            Some([_, last]) if *last == line => {}
            Some([at, last]) if *at == start => *last = line,
            _ => all.push([start, line]),
        };
        let mut before = 0;
        for (start, end, line) in pieces.filter(|(start, end, _)| start < end) {
            if start > before {
                add(before, 0);
            }
            add(start, line);
            before = end;
        }
        add(before, 0);
        let mut this = Self(all);
        this.begin_blocks(blocks);
        this
    }

    /// What of no line a block begins with, such as a constant that the compiler makes there again in each turn of a loop, counts to the line
    /// behind it: that before it is another block's.
    fn begin_blocks(&mut self, blocks: &[u32]) {
        for (number, &block) in blocks.iter().enumerate() {
            let behind = self.0.partition_point(|[start, _]| *start <= block);
            let Some(&[at, 0]) = behind.checked_sub(1).map(|before| &self.0[before]) else { continue };
            let Some(&[end, line]) = self.0.get(behind) else { continue };
            if blocks.get(number + 1).is_some_and(|&next| next <= end) {
                continue;
            }
            self.0[behind] = [block, line];
            if at == block {
                self.0.remove(behind - 1);
            }
        }
    }

    /// The line of exactly the machine code so many bytes behind the function's begin, if it has one.
    pub(super) fn exactly_at(&self, offset: u32) -> Option<u32> {
        let behind = self.0.partition_point(|[start, _]| *start <= offset);
        behind.checked_sub(1).map(|before| self.0[before][1]).filter(|&line| line != 0)
    }

    /// The line of the machine code so many bytes behind the function's begin. What belongs to no line, such as a jump from
    /// one to another, counts to the one before, or else to the one behind; accesses to memory all have a line.
    pub(super) fn at(&self, offset: u32) -> Option<u32> {
        let (before, behind) = self.0.split_at(self.0.partition_point(|[start, _]| *start <= offset));
        let mut nearest = before.iter().rev().chain(behind);
        nearest.find_map(|&[_, line]| (line != 0).then_some(line))
    }
}

/// What is known of where a kernel's machine code comes from.
pub(super) struct Origins {
    /// The machine code.
    pub image: Arc<Image>,
    /// What the text tells about the program's source.
    pub source: Arc<Locations>,
}

impl abi::Origins for Origins {
    fn contains(&self, address: u64) -> bool {
        self.image.contains(address)
    }

    fn line_at(&self, address: u64) -> Option<u32> {
        self.image.line_at(address, Lines::at)
    }

    fn line_exactly_at(&self, address: u64) -> Option<u32> {
        self.image.line_at(address, Lines::exactly_at)
    }

    fn source(&self, line: u32) -> Option<String> {
        self.source.describe(line)
    }

    fn chain(&self, line: u32) -> Vec<String> {
        self.source.of_line(line).iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_are_found_and_gaps_count_to_what_is_beside_them() {
        let pieces = [(4, 8, 7), (8, 12, 7), (12, 12, 9), (12, 20, 8), (24, 30, 7)];
        let lines = Lines::new(pieces.into_iter(), &[]);
        assert_eq!(lines.0, [[0, 0], [4, 7], [12, 8], [20, 0], [24, 7], [30, 0]]);
        let found = [0, 4, 11, 12, 19, 20, 24, 29, 30, 99].map(|at| lines.at(at).unwrap_or(0));
        assert_eq!(found, [7, 7, 7, 8, 8, 8, 7, 7, 7, 7]);
        let found = [0, 4, 11, 12, 20, 24, 30].map(|at| lines.exactly_at(at));
        assert_eq!(found, [None, Some(7), Some(7), Some(8), None, Some(7), None]);
        assert_eq!((Lines::default().at(3), Lines::default().exactly_at(3)), (None, None));
        assert_eq!(Lines::new(std::iter::empty(), &[0]).at(0), None);
    }

    #[test]
    fn what_a_block_begins_with_is_none_of_the_block_before() {
        let pieces = [(0, 4, 3), (4, 9, 0), (9, 12, 5), (16, 20, 6), (28, 30, 7), (30, 36, 0)];
        let lines = Lines::new(pieces.into_iter(), &[0, 4, 14, 22, 25, 32]);
        let found = [0, 4, 8, 9, 12, 13, 14, 15, 16, 21, 22, 24, 25, 27, 29, 31, 33];
        let found = found.map(|at| (at, lines.at(at).unwrap_or(0)));
        let expected = [
            (0, 3),
            // The next block.
            (4, 5),
            (8, 5),
            (9, 5),
            // The end of a block, and the next one.
            (12, 5),
            (13, 5),
            (14, 6),
            (15, 6),
            (16, 6),
            // A block of no line, and one that begins with some of none.
            (21, 6),
            (22, 6),
            (24, 6),
            (25, 7),
            (27, 7),
            (29, 7),
            // A block of no line at the end.
            (31, 7),
            (33, 7),
        ];
        assert_eq!(found, expected);
    }
}
