//! Texture and surface references: which instructions may name them.

use super::flow::symbols;
use super::op::{MemoryTarget, Op};
use crate::abi::texture::TextureOp;
use rgpu_image::ptx::ast::{AddressBase, Operand, Symbol, Type, Variable};

/// Checks that an operation on a texture or surface names a reference of its own kind, and that nothing else takes the address of a
/// parameter that is one: it holds an object's handle and is no header. `variables` are the module's, `params` the function's.
pub(super) fn check(
    op: &Op,
    text: &str,
    operands: &[Operand],
    variables: &[Variable],
    params: &[Variable],
) -> Result<(), String> {
    let declared = |symbol: Symbol| match symbol {
        Symbol::Global(id) => variables.get(id.0 as usize),
        Symbol::Param(index) => params.get(index as usize),
        _ => None,
    };
    match op {
        Op::Texture { op } => {
            let Some(symbol) = operands.iter().find_map(object) else { return Ok(()) };
            let Some(variable) = declared(symbol) else {
                return Err(format!("{text} is given something that is no reference"));
            };
            let fits = match op {
                TextureOp::Sample { .. } | TextureOp::Gather { .. } => variable.ty == Type::TexRef,
                TextureOp::Query { .. } => matches!(variable.ty, Type::TexRef | Type::SurfRef),
                TextureOp::Is { .. } => false,
                _ => variable.ty == Type::SurfRef,
            };
            if fits { Ok(()) } else { Err(format!("{text} is given {}, a .{}", variable.name, variable.ty)) }
        }
        Op::Ld { place: MemoryTarget::Param, .. } | Op::Call => Ok(()),
        _ => {
            let mut found = None;
            for operand in operands {
                symbols(operand, &mut |symbol| {
                    if matches!(symbol, Symbol::Param(_)) {
                        found = found.or(declared(symbol).filter(|variable| variable.ty.is_opaque()));
                    }
                });
            }
            found.map_or(Ok(()), |variable| {
                Err(format!("{text} is given {}, a parameter that is a .{}", variable.name, variable.ty))
            })
        }
    }
}

/// The symbol by which an operand names a texture or surface.
fn object(operand: &Operand) -> Option<Symbol> {
    match operand {
        Operand::Address(AddressBase::Symbol(symbol), _) => Some(*symbol),
        Operand::Bracket(parts) => parts.first().and_then(object),
        _ => None,
    }
}
