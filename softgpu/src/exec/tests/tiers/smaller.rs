//! Making a program smaller.

use super::program::{Program, Statement};

impl Program {
    /// The program with one statement less, or with one replaced by what is in it; none if there are no more than `at` ways.
    pub(super) fn smaller(&self, at: usize) -> Option<Self> {
        let mut copy = self.clone();
        let mut left = at;
        let bodies = std::iter::once(&mut copy.kernel).chain(&mut copy.functions);
        for body in bodies {
            if cut(body, &mut left) {
                return Some(copy);
            }
        }
        None
    }
}

/// Takes something away if `left` comes to zero; whether it has.
fn cut(body: &mut Vec<Statement>, left: &mut usize) -> bool {
    for at in 0..body.len() {
        if *left == 0 {
            body.remove(at);
            return true;
        }
        *left -= 1;
        let inner = body[at].bodies();
        if inner.is_empty() {
            continue;
        }
        if *left == 0 {
            // What leaves a loop cannot stay without it.
            let inner =
                inner.into_iter().flat_map(std::mem::take).filter(|s| !matches!(s, Statement::Leave { .. }));
            let inner: Vec<_> = inner.collect();
            body.splice(at..=at, inner);
            return true;
        }
        *left -= 1;
        if inner.into_iter().any(|inner| cut(inner, left)) {
            return true;
        }
    }
    false
}

impl Statement {
    /// What is in it.
    pub(super) fn bodies(&mut self) -> Vec<&mut Vec<Statement>> {
        match self {
            Self::If(_, a, b) | Self::UniformIf(_, a, b) | Self::Rotated(_, _, a, b) => vec![a, b],
            Self::Loop(_, a) | Self::UniformLoop(_, a) | Self::Wild(_, a) => vec![a],
            Self::Switch(_, arms) => arms.iter_mut().collect(),
            _ => Vec::new(),
        }
    }
}
