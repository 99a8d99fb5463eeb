//! Triangles that are stored without gaps.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, PackTriangle};
use rgpu_softgpu::library::Operand;

use super::{Solver, list, of_problem};
use crate::{invalid, memory};

impl Solver for PackTriangle {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let count = self.n.checked_add(1).and_then(|next| next.checked_mul(self.n)).map(|twice| twice / 2);
        let Some(count) = count else { return invalid("A triangle that is longer than the address space") };
        if self.packed == 0 && count > 0 {
            return invalid("There is no packed triangle");
        }
        Ok(vec![
            memory::matrix(&self.a, self.n, self.n, 1, !self.packs)?,
            list(self.packed, count, self.a.kind.bytes(), self.packs)?,
            // It says nothing about itself.
            Operand { addr: 0, bytes: 0, written: false },
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: usize) -> Result<i32> {
        let n = self.n as usize;
        let square = of_problem::<T>(memory[0], &self.a, 0);
        let mut packed = memory[1].cast::<T>();
        for j in 0..n {
            for i in if self.upper { 0..j + 1 } else { j..n } {
                // SAFETY: the operands have this element.
                unsafe {
                    if self.packs {
                        packed.write_unaligned(square.get(i, j));
                    } else {
                        square.set(i, j, packed.read_unaligned());
                    }
                    packed = packed.add(1);
                }
            }
        }
        Ok(0)
    }
}
