//! Where the steps of sequences lie.

use rgpu_device::Result;
use rgpu_libraries::{DnnRecurrent, DnnSequenceLayout, DnnType};

use super::kept::zeros;
use crate::dnn::Real;
use crate::dnn::tensor::{line, store_line};

/// The steps of a network's sequences. Within a computation the steps of one time stand side by side, with room for all sequences.
pub(super) struct Sequences {
    layout: DnnSequenceLayout,
    /// The room for steps of each sequence.
    pub(super) steps: usize,
    lengths: Vec<u32>,
    /// How many sequences have a step of this time, and all times before.
    before: Vec<u64>,
}

/// How many vectors lie in memory.
pub(super) fn lines(work: &DnnRecurrent) -> u64 {
    match work.layout {
        DnnSequenceLayout::Packed => work.lengths.iter().map(|&length| u64::from(length)).sum(),
        _ => work.steps * work.lengths.len() as u64,
    }
}

impl Sequences {
    /// The sequences of a network, as many of whose steps as it says are in memory.
    pub(super) fn new(work: &DnnRecurrent) -> Self {
        let mut before = vec![0];
        if work.layout == DnnSequenceLayout::Packed {
            let longest = work.lengths.iter().copied().max().unwrap_or(0);
            for step in 0..longest {
                let these = work.lengths.iter().filter(|&&length| length > step).count() as u64;
                before.push(before[step as usize] + these);
            }
        }
        Self { layout: work.layout, steps: work.steps as usize, lengths: work.lengths.clone(), before }
    }

    /// How many sequences there are.
    pub(super) fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Whether a sequence has a step of this time.
    pub(super) fn has(&self, step: usize, sequence: usize) -> bool {
        step < self.lengths[sequence] as usize
    }

    /// Which vector in memory each step of each sequence is.
    fn each(&self, mut f: impl FnMut(usize, usize, Option<usize>)) {
        for step in 0..self.steps {
            let mut active = 0;
            for sequence in 0..self.count() {
                let has = self.has(step, sequence);
                let at = match self.layout {
                    DnnSequenceLayout::TimeMajor => Some(step * self.count() + sequence),
                    DnnSequenceLayout::BatchMajor => Some(sequence * self.steps + step),
                    DnnSequenceLayout::Packed => has.then(|| self.before[step] as usize + active),
                };
                active += usize::from(has);
                f(step, sequence, at);
            }
        }
    }

    /// Reads sequences of vectors; there are zeros behind their ends.
    ///
    /// # Safety
    /// So many vectors lie there.
    pub(super) unsafe fn read<T: Real>(&self, kind: DnnType, at: *const u8, width: u64) -> Result<Vec<T>> {
        let width = width as usize;
        let mut all = zeros(self.steps * self.count() * width)?;
        self.each(|step, sequence, place| {
            if let (Some(place), true) = (place, self.has(step, sequence)) {
                // SAFETY: the caller's promise.
                let vector = unsafe { line(kind, at.add(place * width * kind.bytes() as usize), width) };
                all[(step * self.count() + sequence) * width..][..width].copy_from_slice(&vector);
            }
        });
        Ok(all)
    }

    /// Writes sequences of vectors; behind their ends `fill`, if that is given.
    ///
    /// # Safety
    /// There is room for so many vectors.
    pub(super) unsafe fn write<T: Real>(
        &self,
        kind: DnnType,
        at: *mut u8,
        width: u64,
        all: &[T],
        fill: Option<f64>,
    ) {
        let width = width as usize;
        let filled = fill.map(|value| vec![T::of(value); width]);
        self.each(|step, sequence, place| {
            let Some(place) = place else { return };
            let from = (step * self.count() + sequence) * width;
            let vector =
                if self.has(step, sequence) { Some(&all[from..from + width]) } else { filled.as_deref() };
            if let Some(vector) = vector {
                // SAFETY: the caller's promise.
                unsafe { store_line(kind, at.add(place * width * kind.bytes() as usize), vector) };
            }
        });
    }
}
