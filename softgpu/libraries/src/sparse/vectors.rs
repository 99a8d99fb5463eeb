//! Sparse vectors with dense ones.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, SparseVectors, VectorTask};
use rgpu_softgpu::library::Operand;

use super::places::{dense, inside, number, place, set_value, value};
use super::{Sparse, factor, factor_now, list};
use crate::invalid;

impl Sparse for SparseVectors {
    fn shape(&self) -> (DataType, u64) {
        (self.x.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        use VectorTask::{Add, Dot, Gather, Rotate, Scatter};
        let (x, y) = (&self.x, &self.y);
        if y.columns != 1 || x.size != y.rows || x.kind != y.kind {
            return invalid("A sparse and a dense vector of different sizes or types");
        }
        if x.stored > 0 && (x.indices == 0 || x.values == 0) {
            return invalid("A sparse vector without elements or places");
        }
        if self.task == Dot && self.result == 0 {
            return invalid("There is no place for a dot product");
        }
        Ok(vec![
            list(x.indices, x.stored, if x.wide { 8 } else { 4 }, false)?,
            list(x.values, x.stored, x.kind.bytes(), matches!(self.task, Gather | Rotate))?,
            dense(y, matches!(self.task, Scatter | Add | Rotate))?,
            list(self.result, 1, x.kind.bytes(), true)?,
            factor(&self.alpha, x.kind),
            factor(&self.beta, x.kind),
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        // SAFETY: the operands are as said above; here and below.
        let (alpha, beta): (T, T) =
            unsafe { (factor_now(&self.alpha, memory[4]), factor_now(&self.beta, memory[5])) };
        let (x, y) = (memory[1], memory[2]);
        // Before anything is written, all places are looked at.
        let mut places = super::places::room(self.x.stored, 0usize)?;
        for (k, at) in places.iter_mut().enumerate() {
            // SAFETY: each element has a place.
            let index = unsafe { number(memory[0], k, self.x.wide) };
            *at = place(&self.y, inside("index", index, self.x.base, self.x.size)?, 0);
        }
        if self.task == VectorTask::Add {
            let keeps = self.beta.addr != 0 || self.beta.value != [0.0; 2];
            for row in 0..self.y.rows {
                let at = place(&self.y, row, 0);
                // SAFETY: inside of y.
                unsafe {
                    let scaled = if keeps { beta * value::<T>(y, at) } else { T::of(0.0, 0.0) };
                    set_value(y, at, scaled);
                }
            }
        }
        let mut sum = T::of(0.0, 0.0);
        for (k, &at) in places.iter().enumerate() {
            // SAFETY: each element has a value, and its place is inside of y.
            unsafe {
                let (a, b): (T, T) = (value(x, k), value(y, at));
                match self.task {
                    VectorTask::Gather => set_value(x, k, b),
                    VectorTask::Scatter => set_value(y, at, a),
                    VectorTask::Add => set_value(y, at, alpha * a + b),
                    VectorTask::Dot => sum += if self.conjugates { a.conjugate() } else { a } * b,
                    VectorTask::Rotate => {
                        set_value(x, k, alpha * a + beta * b);
                        set_value(y, at, alpha * b - beta * a);
                    }
                }
            }
        }
        if self.task == VectorTask::Dot {
            // SAFETY: the result's operand is one element.
            unsafe { set_value(memory[3], 0, sum) };
        }
        Ok(())
    }
}
