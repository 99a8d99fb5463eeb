//! What is kept between a network's outputs and its gradients.

use rgpu_device::{Code, Error, Result};
use rgpu_libraries::DnnRecurrent;

use crate::dnn::Real;

/// So many zeros.
pub(super) fn zeros<T: Real>(count: usize) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)
        .map_err(|_| Error::new(Code::OutOfMemory, format!("No memory for {count} numbers of a network")))?;
    all.resize(count, T::ZERO);
    Ok(all)
}

/// What the cells of one direction of a layer were, at each step of each sequence.
pub(super) struct Cells<T> {
    /// Gates, and what else is needed of a cell.
    pub(super) gates: Vec<T>,
    /// Outputs.
    pub(super) outputs: Vec<T>,
    /// The gradients of what gates are made of.
    pub(super) gradients: Vec<T>,
    /// The gradients of projected outputs.
    pub(super) projected: Vec<T>,
}

/// What is kept of all layers.
pub(super) struct Kept<T> {
    /// For each layer but the first, its input, and by what that was multiplied.
    pub(super) between: Vec<[Vec<T>; 2]>,
    /// For each layer and each of its directions.
    pub(super) cells: Vec<Cells<T>>,
}

impl<T: Real> Kept<T> {
    /// Room, with nothing in it.
    pub(super) fn new(work: &DnnRecurrent) -> Result<Self> {
        let steps = work.steps as usize * work.lengths.len();
        let width = (work.directions() * work.outputs()) as usize;
        let between = (1..work.layers).map(|_| Ok([zeros(steps * width)?, zeros(steps * width)?]));
        let [gates, outputs, gradients, projected] = work.kept_of_cells().map(|n| n as usize * steps);
        let cells = (0..work.layers * work.directions()).map(|_| {
            Ok(Cells {
                gates: zeros(gates)?,
                outputs: zeros(outputs)?,
                gradients: zeros(gradients)?,
                projected: zeros(projected)?,
            })
        });
        Ok(Self { between: between.collect::<Result<_>>()?, cells: cells.collect::<Result<_>>()? })
    }

    /// All lists, in the order of their places in memory.
    fn lists(&mut self) -> impl Iterator<Item = &mut Vec<T>> {
        let cells = self
            .cells
            .iter_mut()
            .flat_map(|of| [&mut of.gates, &mut of.outputs, &mut of.gradients, &mut of.projected]);
        self.between.iter_mut().flatten().chain(cells)
    }

    /// Reads what was kept.
    ///
    /// # Safety
    /// `at` is the operand of [`DnnRecurrent::kept_bytes`].
    pub(super) unsafe fn read(&mut self, at: *const u8) {
        let mut at = at.cast::<T>();
        for list in self.lists() {
            for value in list.iter_mut() {
                // SAFETY: the lists have as many numbers as the operand.
                unsafe {
                    *value = at.read_unaligned();
                    at = at.add(1);
                }
            }
        }
    }

    /// Writes what is kept.
    ///
    /// # Safety
    /// As for [`Kept::read`].
    pub(super) unsafe fn write(&mut self, at: *mut u8) {
        let mut at = at.cast::<T>();
        for list in self.lists() {
            for value in list.iter() {
                // SAFETY: the lists have as many numbers as the operand.
                unsafe {
                    at.write_unaligned(*value);
                    at = at.add(1);
                }
            }
        }
    }
}
