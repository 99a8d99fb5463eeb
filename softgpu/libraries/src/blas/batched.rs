//! Batches whose problems' addresses stand in arrays of pointers in device memory.

use rgpu_device::Result;
use rgpu_softgpu::library::{Computation, Operand, Plan};

use crate::memory;

/// An operation on such a batch.
pub(crate) trait Problems: Clone + Send + Sync + 'static {
    /// How many problems there are.
    fn count(&self) -> u64;
    /// The addresses of the arrays.
    fn addresses(&mut self) -> Vec<&mut u64>;
    /// What has to be changed for a problem besides the addresses.
    fn adjust(&mut self, problem: u64) {
        let _ = problem;
    }
    /// The plan for one problem, whose addresses have been filled in.
    fn alone(self) -> Result<Plan>;
}

/// First the arrays are read; then all problems are one operation.
pub(crate) fn plan<P: Problems>(mut problems: P) -> Result<Plan> {
    let count = problems.count();
    let arrays = problems.addresses();
    let operands =
        arrays.into_iter().map(|addr| memory::array(*addr, count, 8, false)).collect::<Result<_>>()?;
    Ok(Plan { operands, computation: Box::new(Arrays(problems)) })
}

struct Arrays<P>(P);

impl<P: Problems> Computation for Arrays<P> {
    unsafe fn run(&self, _: &[*mut u8], _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn then(&self, memory: &[*mut u8]) -> Result<Option<Plan>> {
        let mut all = All::default();
        let mut operands: Vec<Operand> = Vec::new();
        for problem in 0..self.0.count() {
            let mut one = self.0.clone();
            for (addr, array) in one.addresses().into_iter().zip(memory) {
                // SAFETY: the arrays have `count` pointers.
                *addr = unsafe { array.cast::<u64>().add(problem as usize).read_unaligned() };
            }
            one.adjust(problem);
            let mut plan = one.alone()?;
            all.parts.push((operands.len(), plan.operands.len(), plan.computation));
            operands.append(&mut plan.operands);
        }
        Ok(Some(Plan { operands, computation: Box::new(all) }))
    }
}

/// Several operations that touch different memory.
#[derive(Default)]
struct All {
    /// Where the operands of each begin, how many they are, and what is done.
    parts: Vec<(usize, usize, Box<dyn Computation>)>,
}

impl Computation for All {
    fn pieces(&self, threads: usize) -> usize {
        self.parts.len().min(4 * threads).max(1)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let parts = self.parts.len();
        for (from, length, computation) in &self.parts[parts * piece / pieces..parts * (piece + 1) / pieces] {
            // SAFETY: these are the operands that the part's plan asked for.
            unsafe { computation.run(&memory[*from..from + length], 0, 1)? };
        }
        Ok(())
    }
}
