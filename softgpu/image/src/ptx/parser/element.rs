//! Elements of arrays as operands: `name[2]`, `name[%r1]`, `name[%r1+2]`.

use super::super::ast::{AddressBase, Instruction, Operand, RegId, Statement, Symbol, Type};
use super::super::expression::{Value, evaluate};
use super::function::Body;
use super::scope::Name;
use super::{Parser, Result, Token};

impl<'a> Parser<'a> {
    /// What stands behind a symbol's name: an offset, or in brackets the number of an array's element.
    pub(super) fn of_symbol(&mut self, body: &mut Body<'a>, symbol: Symbol) -> Result<Operand> {
        if !self.accept(b'[')? {
            return Ok(Operand::Symbol(symbol, self.offset()?));
        }
        let variable = match symbol {
            Symbol::Global(id) => self.module.variables.get(id.0 as usize),
            Symbol::Local(id) => body.function.variables.get(id.0 as usize),
            Symbol::Param(index) => body.function.params.get(index as usize),
            Symbol::Return(index) => body.function.returns.get(index as usize),
            Symbol::Function(_) => None,
        };
        let Some(variable) = variable.filter(|variable| !variable.dims.is_empty()) else {
            return self.error("Only an array has elements");
        };
        let mut size = u64::from(variable.ty.bytes()) * u64::from(variable.vector);
        let inner: Vec<u64> = variable.dims[1..].to_vec();
        size = inner.iter().fold(size, |size, &dim| size.wrapping_mul(dim));
        if let Token::Ident(name) = self.peek()?
            && let Some(Name::Reg(index, 1)) = body.find(name)
        {
            self.next()?;
            return self.told_by_register(body, symbol, index, size as u32);
        }
        let mut inner = inner.into_iter();
        let mut at = 0i64;
        loop {
            match evaluate(&mut self.lexer, 0)? {
                Value::Int(index, _) => at = at.wrapping_add((index as i64).wrapping_mul(size as i64)),
                _ => return self.error("The number of an element is an integer"),
            }
            self.expect(b']')?;
            if !self.accept(b'[')? {
                let offset = at.wrapping_add(self.offset()?);
                return Ok(Operand::Element(AddressBase::Symbol(symbol), offset));
            }
            match inner.next() {
                Some(dim) => size /= dim.max(1),
                None => return self.error("The array has fewer dimensions"),
            }
        }
    }

    /// An element of `size` bytes whose number a register has, behind that register: puts what computes the address
    /// before the instruction. As in `ptxas`, how far behind the symbol the element lies is a number of 32 bits without a sign,
    /// whatever the register's type is, and the array has one dimension.
    fn told_by_register(
        &mut self,
        body: &mut Body<'a>,
        symbol: Symbol,
        index: RegId,
        size: u32,
    ) -> Result<Operand> {
        if matches!(symbol, Symbol::Param(_) | Symbol::Return(_)) {
            return self.error("Elements of a parameter have constant numbers");
        }
        let ty = body.function.registers[index.0 as usize].ty;
        let widen = match (ty.bits(), ty) {
            _ if ty == Type::Pred || ty.is_float() => None,
            (16, Type::S16) => Some("cvt.u32.s16"),
            (16, _) => Some("cvt.u32.u16"),
            (32, _) => Some("mov.b32"),
            (64, _) => Some("cvt.u32.u64"),
            _ => None,
        };
        let Some(widen) = widen else {
            return self.error("The number of an element is an integer of 16, 32 or 64 bits");
        };
        let further = self.offset()?;
        self.expect(b']')?;
        let behind = Operand::Int(self.offset()? as u64, false);
        let (number, offset) = (self.temporary(body, Type::U32)?, self.temporary(body, Type::U32)?);
        let (far, address) = (self.temporary(body, Type::U64)?, self.temporary(body, Type::U64)?);
        let further = Operand::Int(u64::from((further as u32).wrapping_mul(size)), false);
        let reg = Operand::Reg;
        for (text, operands) in [
            (widen, vec![reg(number), reg(index)]),
            ("mad.lo.u32", vec![reg(offset), reg(number), Operand::Int(u64::from(size), false), further]),
            ("cvt.u64.u32", vec![reg(far), reg(offset)]),
            ("mov.u64", vec![reg(address), Operand::Symbol(symbol, 0)]),
            ("add.u64", vec![reg(address), reg(address), reg(far)]),
            ("add.u64", vec![reg(address), reg(address), behind]),
        ] {
            let (form, line) = (self.form(text), self.lexer.start.line);
            body.function.body.push(Statement::Instruction(Instruction {
                form,
                line,
                guard: None,
                operands,
            }));
        }
        Ok(Operand::Element(AddressBase::Reg(address), 0))
    }
}
