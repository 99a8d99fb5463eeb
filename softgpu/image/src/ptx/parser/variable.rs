//! Declarations of variables and parameters, and initial values.

use super::super::ast::{Initialiser, Linkage, Pointer, Relocation, Variable};
use super::super::expression::{Value, evaluate};
use super::super::lexer::Position;
use super::{GlobalId, Parser, Result, Space, Symbol, Token, Type, describe};

/// The most bytes an initialiser may fill.
const MAX_INIT: u64 = 256 << 20;

/// The most variables of one `name<count>` declaration.
const MAX_RANGE: u32 = 1 << 21;

/// How deep braces may nest.
const MAX_DIMS: usize = 16;

/// What stands between the state space and the name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub ty: Type,
    pub vector: u32,
    pub align: Option<u32>,
    pub managed: bool,
    pub pointer: Option<Pointer>,
}

/// A name, the variable, and the symbols in its initialiser (index of the relocation, name, place).
pub(super) type Declared<'a> = (&'a str, Variable, Vec<(usize, &'a str, Position)>);

impl<'a> Parser<'a> {
    /// `.align`, `.attribute`, `.ptr`, vector and type, in any order.
    pub(super) fn kind(&mut self) -> Result<Kind> {
        let mut kind = Kind { ty: Type::B8, vector: 1, align: None, managed: false, pointer: None };
        let mut typed = false;
        loop {
            let saved = (self.lexer.position, self.lexer.start);
            let Token::Dot(word) = self.next()? else {
                (self.lexer.position, self.lexer.start) = saved;
                break;
            };
            match word {
                "align" => {
                    let align = self.unsigned32()?;
                    if !align.is_power_of_two() || align > 1 << 20 {
                        return self.error(format!("{align} is no alignment"));
                    }
                    match &mut kind.pointer {
                        Some(pointer) => pointer.align = align,
                        None => kind.align = Some(align),
                    }
                }
                "attribute" => self.attributes(&mut kind)?,
                "ptr" => kind.pointer = Some(Pointer { space: None, align: 4 }),
                "v2" | "v4" | "v8" => kind.vector = u32::from(word.as_bytes()[1] - b'0'),
                // `.param .b32 .noalias x`: a promise without consequences here.
                "noalias" | "nocapture" => {}
                _ => match (Type::from_name(word), Space::from_name(word), &mut kind.pointer) {
                    (Some(ty), ..) => {
                        kind.ty = ty;
                        typed = true;
                    }
                    (None, Some(space), Some(pointer)) => pointer.space = Some(space),
                    _ => return self.error(format!(".{word} does not belong into a declaration")),
                },
            }
        }
        if !typed {
            return self.error("The type is missing");
        }
        Ok(kind)
    }

    fn attributes(&mut self, kind: &mut Kind) -> Result<()> {
        self.expect(b'(')?;
        loop {
            match self.next()? {
                Token::Dot("managed") => kind.managed = true,
                Token::Dot("unified") => {
                    self.expect(b'(')?;
                    self.unsigned()?;
                    self.expect(b',')?;
                    self.unsigned()?;
                    self.expect(b')')?;
                }
                found => return self.error(format!("Attribute {} is not known", describe(found))),
            }
            if !self.accept(b',')? {
                break;
            }
        }
        self.expect(b')')
    }

    /// What follows a state space, up to `;`.
    pub(super) fn declaration(&mut self, space: Space, linkage: Linkage) -> Result<Vec<Declared<'a>>> {
        let kind = self.kind()?;
        let mut all = Vec::new();
        loop {
            let name = self.ident("A variable's name")?;
            if self.peek()? == Token::Punct(b'<') {
                return self.error(format!("A range of .{space} variables is not supported"));
            }
            let mut variable = self.variable(name, space, kind, linkage)?;
            let mut symbols = Vec::new();
            if self.accept(b'=')? {
                self.initialiser(&mut variable, &mut symbols)?;
            }
            all.push((name, variable, symbols));
            if !self.accept(b',')? {
                break;
            }
        }
        self.expect(b';')?;
        Ok(all)
    }

    /// `<count>` after a name.
    pub(super) fn range(&mut self) -> Result<Option<u32>> {
        if !self.accept(b'<')? {
            return Ok(None);
        }
        let count = match self.next()? {
            Token::Int(count, _) if count <= u64::from(MAX_RANGE) => count as u32,
            Token::Int(count, _) => return self.error(format!("{count} are too many")),
            found => return self.error(format!("A number is expected instead of {}", describe(found))),
        };
        self.expect(b'>')?;
        Ok(Some(count))
    }

    /// The array dimensions after a name, and the variable.
    pub(super) fn variable(
        &mut self,
        name: &str,
        space: Space,
        kind: Kind,
        linkage: Linkage,
    ) -> Result<Variable> {
        let line = self.lexer.start.line;
        let mut dims = Vec::new();
        let mut open = false;
        while self.accept(b'[')? {
            if self.accept(b']')? {
                if !dims.is_empty() {
                    return self.error("Only the first dimension can be left open");
                }
                open = true;
                dims.push(0);
            } else {
                dims.push(self.unsigned()?);
                self.expect(b']')?;
            }
            if dims.len() > MAX_DIMS {
                return self.error("These are too many dimensions");
            }
        }
        let element = u64::from(kind.ty.bytes()) * u64::from(kind.vector);
        // Counting empty dimensions as one keeps every partial product in bounds, too.
        let most = dims.iter().try_fold(element, |size, dim| size.checked_mul((*dim).max(1)));
        if most.is_none_or(|size| size > i64::MAX as u64) {
            return self.error(format!("{name} is too large"));
        }
        let size = dims.iter().fold(element, |size, dim| size * dim);
        let align = kind.align.unwrap_or_else(|| (element as u32).next_power_of_two());
        Ok(Variable {
            name: name.to_owned(),
            space,
            ty: kind.ty,
            vector: kind.vector,
            dims,
            align,
            size,
            open,
            init: None,
            linkage,
            managed: kind.managed,
            pointer: kind.pointer,
            registers: Vec::new(),
            line,
        })
    }

    fn initialiser(
        &mut self,
        variable: &mut Variable,
        symbols: &mut Vec<(usize, &'a str, Position)>,
    ) -> Result<()> {
        if variable.ty.is_opaque() {
            return self.error(format!("The initial value of a .{} is not supported", variable.ty));
        }
        if !matches!(variable.space, Space::Global | Space::Const) {
            return self.error(format!("A .{} variable cannot have an initial value", variable.space));
        }
        let mut dims = variable.dims.clone();
        if variable.vector > 1 {
            dims.push(u64::from(variable.vector));
        }
        let mut init = Initialiser::default();
        let mut filler = Filler { ty: variable.ty, init: &mut init, symbols, end: 0 };
        if let Token::Str(text) = self.peek()? {
            self.next()?;
            if variable.ty.bytes() != 1 {
                return self.error("Only arrays of bytes can be initialised with a string");
            }
            filler.init.bytes = unescape(text);
            filler.end = filler.init.bytes.len() as u64;
        } else if dims.is_empty() {
            // A scalar may stand in braces.
            let braces = self.accept(b'{')?;
            self.scalar(0, &mut filler)?;
            if braces {
                self.expect(b'}')?;
            }
        } else {
            self.expect(b'{')?;
            self.elements(&dims, 0, variable.open, &mut filler)?;
        }
        let count = filler.end;
        let width = u64::from(variable.ty.bytes());
        if variable.open {
            let inner: u64 = variable.dims[1..].iter().product();
            let vectors = u64::from(variable.vector);
            let outer = if inner == 0 { 0 } else { count.div_ceil(vectors).div_ceil(inner) };
            let Some(size) = (inner * vectors * width).checked_mul(outer).filter(|s| *s <= i64::MAX as u64)
            else {
                return self.error(format!("{} is too large", variable.name));
            };
            (variable.dims[0], variable.size, variable.open) = (outer, size, false);
        } else if count > variable.size / width {
            return self.error(format!("{} has more initial values than elements", variable.name));
        }
        variable.init = Some(init);
        Ok(())
    }

    /// The elements of one level of braces, whose opening one has been read. `base` is the index of the
    /// first scalar.
    fn elements(&mut self, dims: &[u64], base: u64, open: bool, filler: &mut Filler<'a, '_>) -> Result<()> {
        // Scalars in an element of this level; the whole was checked not to overflow, except for an
        // open dimension.
        let inner: u64 = dims.get(1..).unwrap_or(&[]).iter().product();
        let limit = if open { u64::MAX } else { base + inner * dims[0] };
        let mut at = base;
        if self.accept(b'}')? {
            return Ok(());
        }
        loop {
            if self.accept(b'{')? {
                if dims.len() < 2 {
                    return self.error("These braces are nested deeper than the array");
                }
                if inner > 0 {
                    at = base.saturating_add((at - base).div_ceil(inner).saturating_mul(inner));
                }
                let Some(after) = at.checked_add(inner).filter(|after| *after <= limit) else {
                    return self.error("These are more initial values than elements");
                };
                self.elements(&dims[1..], at, false, filler)?;
                at = after;
            } else {
                if at >= limit {
                    return self.error("These are more initial values than elements");
                }
                self.scalar(at, filler)?;
                at += 1;
            }
            if !self.accept(b',')? {
                break self.expect(b'}')?;
            }
            if self.accept(b'}')? {
                break;
            }
        }
        filler.end = filler.end.max(at);
        Ok(())
    }

    fn scalar(&mut self, index: u64, filler: &mut Filler<'a, '_>) -> Result<()> {
        let width = filler.ty.bytes() as usize;
        let offset = index.saturating_mul(width as u64);
        if offset >= MAX_INIT {
            return self.error("This initial value is too large");
        }
        filler.end = filler.end.max(index + 1);
        let offset = offset as usize;
        if filler.init.bytes.len() < offset + width {
            filler.init.bytes.resize(offset + width, 0);
        }
        let saved = (self.lexer.position, self.lexer.start);
        let first = self.next()?;
        if let Token::Ident(name) = first
            && name != "WARP_SZ"
        {
            if width < 4 {
                return self.error(format!("A .{} variable cannot hold an address", filler.ty));
            }
            return self.address(name, offset, width as u32, 0, filler);
        }
        // `0xFF00(symbol)`: one byte of an address.
        if let Token::Int(mask, _) = first
            && self.accept(b'(')?
        {
            let shift = if mask == 0 { 0 } else { mask.trailing_zeros() / 8 * 8 };
            if width != 1 || 0xFFu64.checked_shl(shift) != Some(mask) {
                return self.error("A mask selects one byte of an address");
            }
            let name = self.ident("A symbol")?;
            self.address(name, offset, 1, shift, filler)?;
            return self.expect(b')');
        }
        (self.lexer.position, self.lexer.start) = saved;
        let value = evaluate(&mut self.lexer, 0)?;
        let Some(bits) = encode(filler.ty, value) else {
            return self.error(format!("A .{} variable cannot have this initial value", filler.ty));
        };
        filler.init.bytes[offset..offset + width].copy_from_slice(&bits.to_le_bytes()[..width]);
        Ok(())
    }

    /// An address, whose first name has been read.
    fn address(
        &mut self,
        name: &'a str,
        offset: usize,
        width: u32,
        shift: u32,
        filler: &mut Filler<'a, '_>,
    ) -> Result<()> {
        let mut name = name;
        let mut at = self.lexer.start;
        let generic = name == "generic" && self.accept(b'(')?;
        let mut addend = 0;
        if generic {
            name = self.ident("A symbol")?;
            at = self.lexer.start;
            addend = self.offset()?;
            self.expect(b')')?;
        }
        addend = addend.wrapping_add(self.offset()?);
        filler.symbols.push((filler.init.relocations.len(), name, at));
        // The target is found when the whole module has been read.
        let target = Symbol::Global(GlobalId(u32::MAX));
        filler.init.relocations.push(Relocation {
            offset: offset as u64,
            width,
            shift,
            target,
            addend,
            generic,
        });
        Ok(())
    }
}

/// Where scalars of an initialiser go.
struct Filler<'a, 'b> {
    ty: Type,
    init: &'b mut Initialiser,
    symbols: &'b mut Vec<(usize, &'a str, Position)>,
    /// One past the highest scalar index.
    end: u64,
}

/// The bits of a value in a variable of this type.
fn encode(ty: Type, value: Value) -> Option<u128> {
    Some(match (ty, value) {
        (Type::F32, Value::F64(bits)) => u128::from((f64::from_bits(bits) as f32).to_bits()),
        (Type::F64, Value::F32(bits)) => u128::from(f64::from(f32::from_bits(bits)).to_bits()),
        (Type::F32, Value::Int(v, unsigned)) => {
            u128::from(if unsigned { v as f32 } else { v as i64 as f32 }.to_bits())
        }
        (Type::F64, Value::Int(v, unsigned)) => {
            u128::from(if unsigned { v as f64 } else { v as i64 as f64 }.to_bits())
        }
        (Type::F32 | Type::B32 | Type::U32 | Type::S32, Value::F32(bits)) => u128::from(bits),
        (Type::F64 | Type::B64 | Type::U64 | Type::S64, Value::F64(bits)) => u128::from(bits),
        (Type::B128, Value::Int(v, false)) => v as i64 as i128 as u128,
        (_, Value::Int(v, _)) => u128::from(v),
        _ => return None,
    })
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(other) => other,
                None => b'\\',
            },
            _ => byte,
        });
    }
    bytes
}
