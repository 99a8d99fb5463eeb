//! Which loops the blocks of a body are in.

use std::collections::BTreeSet;

use super::flow::Flow;

/// A loop: all ways back to one block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loop {
    /// The block that each turn begins with.
    pub head: usize,
    /// The smallest loop around it.
    pub parent: Option<usize>,
}

/// The loops of a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Loops {
    pub all: Vec<Loop>,
    /// The innermost loop of each block.
    pub of_block: Vec<Option<usize>>,
}

impl Loops {
    /// Finds them. Jumps back to one block are one loop. Where a loop has several beginnings, it is the one by which a search from the
    /// entry came to it first.
    pub(super) fn new(flow: &Flow) -> Self {
        let mut found: Vec<(usize, BTreeSet<usize>)> = flow.loops().into_iter().collect();
        // Smaller ones first, so that the first that contains a block is the innermost.
        found.sort_by_key(|(head, members)| (members.len(), *head));
        let around = |block: usize, from: usize| {
            let mut rest = found.iter().enumerate().skip(from);
            rest.find(|(_, (_, members))| members.contains(&block)).map(|(index, _)| index)
        };
        let all = found.iter().enumerate();
        let all = all.map(|(index, (head, _))| Loop { head: *head, parent: around(*head, index + 1) });
        Self { all: all.collect(), of_block: (0..flow.blocks.len()).map(|block| around(block, 0)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::Block;
    use super::*;

    #[test]
    fn loops_nest() {
        // 0 → 1 → 2 ⇄ 2, 2 → 3 → 1, 3 → 4
        let successors: [&[usize]; 5] = [&[1], &[2], &[2, 3], &[1, 4], &[]];
        let block = |successors: &&[usize]| Block { successors: successors.to_vec(), ..Block::default() };
        let flow = Flow { blocks: successors.iter().map(block).collect(), labels: Vec::new() };
        let loops = Loops::new(&flow);
        assert_eq!(loops.all, [Loop { head: 2, parent: Some(1) }, Loop { head: 1, parent: None }]);
        assert_eq!(loops.of_block, [None, Some(1), Some(0), Some(1), None]);
    }
}
