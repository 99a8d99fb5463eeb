//! `wgmma`: operations that four warps carry out together.
//!
//! They are cuts, like a warp's operations on matrices: what the threads hold of the matrices is put behind the other contents of
//! their states, and the results are found there. Matrices in shared memory are described by numbers.

use cranelift_codegen::ir::InstBuilder;

use super::cuts::registers;
use super::{Emitter, Result, trusted};
use crate::abi::CutKind;
use crate::compile::helpers::group::{self, Group};
use crate::compile::op::MatrixShape;
use rgpu_image::ptx::ast::{Operand, Type};

/// Whether a `wgmma.mma_async` is implemented.
pub(crate) fn is_supported(shape: &MatrixShape) -> bool {
    group::is_supported(shape)
}

/// Whether it is where half of the first matrix is not there.
pub(crate) fn is_supported_sparse(shape: &MatrixShape) -> bool {
    group::is_supported_sparse(shape)
}

impl<'a> Emitter<'a, '_> {
    /// A sign, or whether a matrix is transposed.
    fn choice(&mut self, o: &'a [Operand], index: usize, choices: [i64; 2]) -> Result<bool> {
        match self.operand(o, index)? {
            Operand::Int(value, _) if *value as i64 == choices[0] => Ok(false),
            Operand::Int(value, _) if *value as i32 as i64 == choices[1] => Ok(true),
            _ => Err(self.refuse(&format!("This operand is {} or {}", choices[0], choices[1]))),
        }
    }

    /// `wgmma.mma_async`
    pub(crate) fn wgmma(&mut self, shape: MatrixShape, sparse: bool, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let destination = self.operand(o, 0)?;
        let first = self.operand(o, 1)?;
        let in_registers = matches!(first, Operand::Vector(_));
        let (d_words, a_words) = group::words(&shape);
        let d = self.matrix_area((d_words + a_words + usize::from(sparse)) as u32 * 4);
        let a = d + d_words as u32 * 4;
        let metadata = a + a_words as u32 * 4;
        // Metadata and a selector come before what says whether there is a sum already.
        let adds = if sparse { 5 } else { 3 };
        let of_sparse = match (sparse, o.get(4)) {
            (false, _) => None,
            (true, Some(&Operand::Int(selector, _))) => {
                let selector = u32::try_from(selector).ok();
                let exists = selector.filter(|&selector| group::has_metadata(&shape, selector));
                let refused =
                    || self.refuse("This shape has no metadata in the lanes that the selector names");
                Some((metadata as usize, exists.ok_or_else(refused)?))
            }
            _ => return Err(self.refuse("The selector of metadata is a number")),
        };
        let signed = !matches!(shape.a, Type::S8 | Type::U8);
        let transposes = matches!(shape.a, Type::F16 | Type::Bf16);
        let count = adds
            + 1
            + if signed { 2 } else { 0 }
            + if transposes { 2 - usize::from(in_registers) } else { 0 };
        if o.len() != count {
            return Err(self.refuse(&format!("{count} operands are wanted, not {}", o.len())));
        }
        let sign = |e: &mut Self, index| if signed { e.choice(o, index, [1, -1]) } else { Ok(false) };
        let negate = sign(self, adds + 1)? != sign(self, adds + 2)?;
        let transpose_a = transposes && !in_registers && self.choice(o, adds + 3, [0, 1])?;
        let transpose_b = transposes && self.choice(o, count - 1, [0, 1])?;
        let state = self.state_pointer();
        self.put_fragment(state, d, Type::B32, destination, d_words)?;
        if in_registers {
            self.put_fragment(state, a, Type::B32, first, a_words)?;
        } else {
            let descriptor = self.src(first, Type::B64)?;
            self.store_op(0, descriptor);
        }
        let descriptor = self.src(self.operand(o, 2)?, Type::B64)?;
        self.store_op(1, descriptor);
        if sparse {
            let words = self.src(self.operand(o, 3)?, Type::B32)?;
            self.b.ins().store(trusted(), words, state, metadata as i32);
        }
        let adds = self.src(self.operand(o, adds)?, Type::Pred)?;
        self.store_op(2, adds);
        let operation = Group {
            shape,
            a: in_registers.then_some(a as usize),
            d: d as usize,
            transpose_a,
            transpose_b,
            negate,
            sparse: of_sparse,
        };
        let Ok(index) = u16::try_from(self.facts.group_ops.len()) else {
            return Err(self.refuse("Too many matrix instructions in one kernel"));
        };
        self.facts.group_ops.push(operation);
        let results: Vec<Option<&Operand>> = self.vector(destination).iter().map(Some).collect();
        self.stop_here(CutKind::Group(index), false, next, &registers(&results));
        self.get_fragment(d, Type::B32, destination)?;
        self.go_on(next)
    }
}
