//! Matrix instructions, which a warp carries out together.

use super::{Emitter, Result};
use crate::compile::op::{Fragment, MatrixShape, Op};
use crate::ptx::ast::Operand;

/// Whether an `mma` is implemented.
pub fn is_supported_mma(_shape: &MatrixShape) -> bool {
    false
}

/// Whether a `wmma.mma` is implemented.
pub fn is_supported_wmma(_shape: &MatrixShape) -> bool {
    false
}

/// Whether a `wmma.load` or `wmma.store` is implemented.
pub fn is_supported_fragment(_fragment: Fragment, _shape: &MatrixShape) -> bool {
    false
}

impl<'a> Emitter<'a, '_> {
    /// `mma`, `wmma.mma`, `ldmatrix`, `movmatrix`
    pub fn matrix_cut(&mut self, _op: &'a Op, _next: usize, _o: &'a [Operand]) -> Result<()> {
        Err(self.refuse("Matrix instructions are not supported"))
    }

    /// `wmma.load`
    pub fn wmma_load(
        &mut self,
        _fragment: Fragment,
        _shape: &MatrixShape,
        _row: bool,
        _shared: bool,
        _o: &'a [Operand],
    ) -> Result<()> {
        Err(self.refuse("Matrix instructions are not supported"))
    }

    /// `wmma.store`
    pub fn wmma_store(
        &mut self,
        _shape: &MatrixShape,
        _row: bool,
        _shared: bool,
        _o: &'a [Operand],
    ) -> Result<()> {
        Err(self.refuse("Matrix instructions are not supported"))
    }
}
