//! Where variables lie: of the module in global and constant memory, of a kernel in shared memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rgpu_device::texture::TEXTURE_HEADER_BYTES;
use rgpu_device::{Code, Error, GlobalKind};

use super::flow::symbols;
use super::{GlobalLayout, GlobalRelocation, Unit};
use rgpu_image::ptx::ast::{
    Function, FunctionId, GlobalId, Linkage, Space, Statement, Symbol, Type, Variable,
};

/// Offsets of the variables in the shared memory of one kernel.
#[derive(Debug, Default)]
pub(super) struct SharedLayout {
    globals: HashMap<GlobalId, u32>,
    locals: HashMap<String, u32>,
    /// Bytes of all but dynamic shared memory.
    pub size: u32,
}

/// The name of a function's own shared variable, the same wherever the function has been inlined.
pub(super) fn local_name(function: &str, variable: &str) -> String {
    if variable.contains("::") { variable.to_owned() } else { format!("{function}::{variable}") }
}

impl SharedLayout {
    /// Lays out what a kernel and the functions that it can reach use.
    pub(super) fn new(unit: &Unit, bodies: &[&Function]) -> Result<Self, Error> {
        let mut layout = Self::default();
        let mut end = 0u64;
        let mut open: Vec<GlobalId> = Vec::new();
        let mut open_locals: Vec<String> = Vec::new();
        let mut open_align = 16;
        for function in bodies {
            for variable in &function.variables {
                if !matches!(variable.space, Space::Shared | Space::SharedCta) {
                    continue;
                }
                let name = local_name(&function.name, &variable.name);
                if is_open(variable) {
                    open_align = open_align.max(variable.align);
                    open_locals.push(name);
                } else if let Entry::Vacant(place) = layout.locals.entry(name) {
                    place.insert(allot(variable, &mut end)?);
                }
            }
            for statement in &function.body {
                let Statement::Instruction(instruction) = statement else { continue };
                for operand in &instruction.operands {
                    let mut error = None;
                    symbols(operand, &mut |symbol| {
                        let Symbol::Global(id) = symbol else { return };
                        let variable = &unit.module.variables[id.0 as usize];
                        if !matches!(variable.space, Space::Shared | Space::SharedCta)
                            || layout.globals.contains_key(&id)
                            || open.contains(&id)
                        {
                            return;
                        }
                        if is_open(variable) {
                            open_align = open_align.max(variable.align);
                            open.push(id);
                        } else {
                            match allot(variable, &mut end) {
                                Ok(at) => {
                                    layout.globals.insert(id, at);
                                }
                                Err(e) => error = Some(e),
                            }
                        }
                    });
                    if let Some(error) = error {
                        return Err(error);
                    }
                }
            }
        }
        let dynamic = !open.is_empty() || !open_locals.is_empty();
        if dynamic {
            end = end.next_multiple_of(u64::from(open_align));
        }
        layout.size = u32::try_from(end).map_err(|_| too_large())?;
        for id in open {
            layout.globals.insert(id, layout.size);
        }
        for name in open_locals {
            layout.locals.insert(name, layout.size);
        }
        Ok(layout)
    }

    /// The offset of a shared variable of the module.
    pub(super) fn global(&self, id: GlobalId) -> Option<u32> {
        self.globals.get(&id).copied()
    }

    /// The offset of a shared variable of a function.
    pub(super) fn local(&self, function: &Function, variable: &Variable) -> Option<u32> {
        self.locals.get(&local_name(&function.name, &variable.name)).copied()
    }
}

fn too_large() -> Error {
    Error::new(Code::InvalidPtx, "A kernel's shared variables are too large")
}

fn is_open(variable: &Variable) -> bool {
    variable.open && variable.size == 0
}

fn allot(variable: &Variable, end: &mut u64) -> Result<u32, Error> {
    *end = end.next_multiple_of(u64::from(variable.align.max(1)));
    let at = *end;
    *end += variable.size;
    u32::try_from(at).map_err(|_| too_large())
}

/// The variables that need memory. Addresses of functions are filled in.
pub(super) fn globals(
    variables: &[Variable],
    function_pointer: impl Fn(FunctionId) -> u64,
) -> Result<Vec<GlobalLayout>, Error> {
    let mut layouts = Vec::new();
    for variable in variables {
        if variable.ty.is_opaque() {
            layouts.push(reference(variable)?);
            continue;
        }
        let kind = match variable.space {
            Space::Global if variable.managed => GlobalKind::Managed,
            Space::Global => GlobalKind::Global,
            Space::Const => GlobalKind::Constant,
            Space::Shared | Space::SharedCta => continue,
            space => {
                return Err(Error::new(
                    Code::InvalidPtx,
                    format!(
                        "PTX line {}: variable {} in state space .{space} is not supported",
                        variable.line, variable.name
                    ),
                ));
            }
        };
        if variable.linkage == Linkage::Extern {
            return Err(unresolved(variable));
        }
        let mut bytes = Vec::new();
        let mut relocations = Vec::new();
        if let Some(init) = &variable.init {
            bytes = init.bytes.clone();
            for relocation in &init.relocations {
                let whole = relocation.width == 8 && relocation.shift == 0;
                match relocation.target {
                    Symbol::Global(id) if whole => {
                        let target = &variables[id.0 as usize];
                        if !matches!(target.space, Space::Global | Space::Const) {
                            return Err(bad_relocation(variable));
                        }
                        relocations.push(GlobalRelocation {
                            offset: relocation.offset,
                            symbol: target.name.clone(),
                            addend: relocation.addend,
                        });
                    }
                    Symbol::Function(id) if relocation.width <= 8 && relocation.shift < 64 => {
                        let value =
                            function_pointer(id).wrapping_add(relocation.addend as u64) >> relocation.shift;
                        let at = relocation.offset as usize;
                        let end = at + relocation.width as usize;
                        if bytes.len() < end {
                            bytes.resize(end, 0);
                        }
                        bytes[at..end].copy_from_slice(&value.to_le_bytes()[..relocation.width as usize]);
                    }
                    _ => return Err(bad_relocation(variable)),
                }
            }
        }
        layouts.push(GlobalLayout {
            name: variable.name.clone(),
            size: variable.size,
            align: u64::from(variable.align.max(1)),
            kind,
            bytes,
            relocations,
        });
    }
    Ok(layouts)
}

/// A texture or surface reference is a header of an object, which is written where something is bound to it. As long as it is zeros,
/// it is no object, and what accesses it ends.
fn reference(variable: &Variable) -> Result<GlobalLayout, Error> {
    let Variable { line, name, ty, .. } = variable;
    let refuse = |why: &str| Err(Error::new(Code::InvalidPtx, format!("PTX line {line}: {name} {why}")));
    let kind = match ty {
        Type::TexRef => GlobalKind::Texture,
        Type::SurfRef => GlobalKind::Surface,
        _ => return refuse(&format!("is a .{ty}: samplers of their own are not supported")),
    };
    if variable.space != Space::Global || variable.managed {
        return refuse(&format!("is a .{ty}, which lies in .global memory that is not managed"));
    }
    if !variable.dims.is_empty() || variable.vector != 1 {
        return refuse(&format!("is an array of .{ty}, which is not supported"));
    }
    if variable.linkage == Linkage::Extern {
        return Err(unresolved(variable));
    }
    Ok(GlobalLayout {
        name: name.clone(),
        size: TEXTURE_HEADER_BYTES as u64,
        align: 16,
        kind,
        bytes: Vec::new(),
        relocations: Vec::new(),
    })
}

fn unresolved(variable: &Variable) -> Error {
    Error::new(
        Code::InvalidPtx,
        format!("PTX line {}: Unresolved extern variable '{}'", variable.line, variable.name),
    )
}

fn bad_relocation(variable: &Variable) -> Error {
    Error::new(
        Code::InvalidPtx,
        format!(
            "PTX line {}: the initial value of {} holds an address of a kind that is not supported",
            variable.line, variable.name
        ),
    )
}
