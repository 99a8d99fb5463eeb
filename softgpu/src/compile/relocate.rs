//! What compiled code refers to outside of itself, so that it can be put somewhere else, in another process, too.
//!
//! The emitter writes addresses as the numbers that they are in this process, and the verifier compares them as such. Right
//! before a function becomes machine code, those that another process has elsewhere become symbols: functions of this library, and
//! the table of functions.

use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, InstBuilder, InstructionData, Opcode, UserExternalName, types,
};
use rgpu_device::Range;
use rgpu_image::ptx::ast::FunctionId;

use super::helpers;
use crate::abi::Helpers;

/// What a place in machine code refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A function of the module.
    Function(FunctionId),
    /// A function of this library, so many bytes from [`anchor`].
    Own(i64),
    /// So many bytes into the table of functions.
    Table(u64),
    /// So many bytes into the function itself.
    Here(u32),
}

/// The name space of functions of the module, as Cranelift has it.
pub(super) const FUNCTIONS: u32 = 0;
/// That of everything else: positions in the list of targets.
const OTHERS: u32 = 1;

/// An address in this library: the same distance from everything else in it, in every process.
pub(super) fn anchor() -> u64 {
    helpers::fns as *const () as u64
}

/// The target that is this address of this library.
pub(super) fn own(address: u64) -> Target {
    Target::Own(address.wrapping_sub(anchor()) as i64)
}

/// Where helpers and the table are in this process.
pub(super) struct Places<'a> {
    /// The executor's functions.
    pub helpers: &'a Helpers,
    /// The table of functions.
    pub table: Range,
}

impl Places<'_> {
    /// What an address stands for that another process has elsewhere.
    pub(super) fn target(&self, address: u64) -> Option<Target> {
        let Helpers {
            vprintf,
            malloc,
            free,
            assertfail,
            globaltimer,
            clock,
            device_runtime,
            check,
            texture,
            textures,
            count,
            tensor,
            tensors,
            exchange,
            exchange_by_name,
        } = *self.helpers;
        if address >= self.table.base && address <= self.table.end() {
            return Some(Target::Table(address - self.table.base));
        }
        let all = [
            vprintf,
            malloc,
            free,
            assertfail,
            globaltimer,
            clock,
            device_runtime,
            check,
            texture,
            textures,
            count,
            tensor,
            tensors,
            exchange,
            exchange_by_name,
        ];
        let known = all.contains(&(address as usize));
        (known || helpers::is_of_numbers(address as usize)).then(|| own(address))
    }
}

/// Turns the addresses in a function into symbols, and returns what these stand for.
pub(super) fn symbols(function: &mut Function, places: &Places<'_>) -> Vec<Target> {
    let mut found = Vec::new();
    let blocks: Vec<_> = function.layout.blocks().collect();
    for block in blocks {
        let insts: Vec<_> = function.layout.block_insts(block).collect();
        for inst in insts {
            let InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } = function.dfg.insts[inst] else {
                continue;
            };
            let Some(target) = places.target(imm.bits() as u64) else { continue };
            if function.dfg.value_type(function.dfg.first_result(inst)) != types::I64 {
                continue;
            }
            let name =
                function.declare_imported_user_function(UserExternalName::new(OTHERS, found.len() as u32));
            found.push(target);
            let value = function.create_global_value(GlobalValueData::Symbol {
                name: ExternalName::user(name),
                offset: 0.into(),
                colocated: false,
                tls: false,
            });
            function.replace(inst).symbol_value(types::I64, value);
        }
    }
    found
}

/// The target that a name of Cranelift's stands for.
pub(super) fn target(name: &UserExternalName, others: &[Target]) -> Option<Target> {
    match name.namespace {
        FUNCTIONS => Some(Target::Function(FunctionId(name.index))),
        OTHERS => others.get(name.index as usize).copied(),
        _ => None,
    }
}

/// Whether no address of this process's is left in machine code: such code means the same in every process. An address is one
/// close to this library or in the table. A number of the program's, or a part of an instruction, that happens to be one is taken for one, too.
pub(super) fn is_movable(code: &[u8], table: Range) -> bool {
    // What of the library lies round a function of it. Distances in long code are easily taken for addresses of a wider range.
    const NEAR: u64 = 128 << 20;
    let is_near = |address: u64| address.wrapping_sub(anchor().wrapping_sub(NEAR)) < 2 * NEAR;
    let words = code.windows(8).map(|bytes| u64::from_le_bytes(std::array::from_fn(|i| bytes[i])));
    words.into_iter().all(|word| !is_near(word) && !(table.base..=table.end()).contains(&word))
}
