//! Operands of instructions.

use super::super::ast::{AddressBase, Operand, Part, RegId};
use super::super::expression::{TERM, Value, evaluate};
use super::super::special::special;
use super::function::Body;
use super::scope::Name;
use super::{Parser, Result, Symbol, Token, describe};

/// How deep braces and brackets may nest.
const MAX_DEPTH: u32 = 8;

impl<'a> Parser<'a> {
    /// All operands of an instruction, up to `;`. Calls and branches have a grammar of their own.
    pub(super) fn operands(&mut self, body: &mut Body<'a>, form: &str) -> Result<Vec<Operand>> {
        match form.split('.').next() {
            Some("call") => return self.call(body),
            Some("bra") => {
                let name = self.ident("A label")?;
                let label = body.label(name, self.lexer.start);
                self.expect(b';')?;
                return Ok(vec![Operand::Label(label)]);
            }
            _ => {}
        }
        let mut operands = Vec::with_capacity(4);
        if self.accept(b';')? {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand(body, 0)?);
            match self.next()? {
                Token::Punct(b',') => {}
                Token::Punct(b';') => return Ok(operands),
                found => return self.error(format!("',' or ';' is expected instead of {}", describe(found))),
            }
        }
    }

    fn call(&mut self, body: &mut Body<'a>) -> Result<Vec<Operand>> {
        let mut returns = Vec::new();
        if self.accept(b'(')? {
            returns = self.list(body)?;
            self.expect(b',')?;
        }
        let name = self.ident("A function or register")?;
        let callee = match (body.find(name), self.global(name)) {
            (Some(Name::Reg(register, 1)), _) => Operand::Reg(register),
            (None, Some(symbol @ Symbol::Function(_))) => Operand::Symbol(symbol, 0),
            (None, None) => return self.error(format!("Function {name} is not declared")),
            _ => return self.error(format!("{name} cannot be called")),
        };
        let mut arguments = Vec::new();
        let mut signature = Operand::Sink;
        let mut more = self.accept(b',')?;
        if more && self.accept(b'(')? {
            arguments = self.list(body)?;
            more = self.accept(b',')?;
        }
        if more {
            let name = self.ident("A prototype")?;
            signature = match body.find(name) {
                Some(Name::Prototype(index)) => Operand::Prototype(index),
                Some(Name::CallTable(index)) => Operand::CallTable(index),
                _ => return self.error(format!("{name} is no prototype")),
            };
        }
        self.expect(b';')?;
        Ok(vec![Operand::List(returns), callee, Operand::List(arguments), signature])
    }

    /// What a call passes, behind the opening parenthesis, up to the closing one.
    fn list(&mut self, body: &mut Body<'a>) -> Result<Vec<Operand>> {
        let mut list = Vec::new();
        if self.accept(b')')? {
            return Ok(list);
        }
        loop {
            list.push(self.operand(body, 0)?);
            if !self.accept(b',')? {
                break;
            }
        }
        self.expect(b')')?;
        Ok(list)
    }

    /// What is written, and a second register behind it where there is one: `d|p`.
    fn and_second(&mut self, body: &mut Body<'a>, first: Operand) -> Result<Operand> {
        if !self.accept(b'|')? {
            return Ok(first);
        }
        let name = self.ident("A register")?;
        let second = self.named(body, name)?;
        Ok(Operand::Pair(Box::new((first, second))))
    }

    fn operand(&mut self, body: &mut Body<'a>, depth: u32) -> Result<Operand> {
        if depth > MAX_DEPTH {
            return self.error("Operands are nested too deeply");
        }
        let saved = (self.lexer.position, self.lexer.start);
        match self.next()? {
            Token::Punct(b'[') => self.bracket(body, depth),
            Token::Punct(b'{') => {
                let mut elements = Vec::new();
                loop {
                    elements.push(self.operand(body, depth + 1)?);
                    if !self.accept(b',')? {
                        break;
                    }
                }
                self.expect(b'}')?;
                self.and_second(body, Operand::Vector(elements))
            }
            Token::Punct(b'!') => {
                if let Token::Ident(name) = self.peek()?
                    && let Some(Name::Reg(register, 1)) = body.find(name)
                {
                    self.next()?;
                    return Ok(Operand::NotReg(register));
                }
                (self.lexer.position, self.lexer.start) = saved;
                self.constant()
            }
            Token::Punct(b'-') => {
                if let Token::Ident(name) = self.peek()?
                    && let Some(Name::Reg(register, 1)) = body.find(name)
                {
                    self.next()?;
                    let part = self.part()?.unwrap_or(Part::WHOLE);
                    return Ok(Operand::Part(register, Part { negative: true, ..part }));
                }
                (self.lexer.position, self.lexer.start) = saved;
                self.constant()
            }
            Token::Ident("WARP_SZ") => {
                (self.lexer.position, self.lexer.start) = saved;
                self.constant()
            }
            Token::Ident(name) => {
                let first = self.named(body, name)?;
                if let Operand::Reg(register) = first
                    && let Some(part) = self.part()?
                {
                    return Ok(Operand::Part(register, part));
                }
                if matches!(first, Operand::Reg(_) | Operand::Sink) {
                    return self.and_second(body, first);
                }
                Ok(first)
            }
            _ => {
                (self.lexer.position, self.lexer.start) = saved;
                self.constant()
            }
        }
    }

    fn constant(&mut self) -> Result<Operand> {
        Ok(match evaluate(&mut self.lexer, 0)? {
            Value::Int(value, unsigned) => Operand::Int(value, !unsigned && (value as i64) < 0),
            Value::F32(bits) => Operand::F32(bits),
            Value::F64(bits) => Operand::F64(bits),
        })
    }

    /// A selector directly behind a register's name: `.b0` to `.b3`, `.h0` and `.h1`.
    fn part(&mut self) -> Result<Option<Part>> {
        let Some(selector) = self.component()? else { return Ok(None) };
        let part = |first, bits| Ok(Some(Part { first, bits, negative: false }));
        match *selector.as_bytes() {
            [b'b', byte @ b'0'..=b'3'] => part(8 * (byte - b'0'), 8),
            [b'h', half @ b'0'..=b'1'] => part(16 * (half - b'0'), 16),
            _ => self.error(format!("Selector .{selector} of a register is not supported")),
        }
    }

    /// `.x` directly behind a name.
    fn component(&mut self) -> Result<Option<&'a str>> {
        let saved = (self.lexer.position, self.lexer.start);
        if let Token::Dot(component) = self.next()?
            && self.lexer.start.at == saved.0.at
        {
            return Ok(Some(component));
        }
        (self.lexer.position, self.lexer.start) = saved;
        Ok(None)
    }

    /// An operand that begins with a name.
    fn named(&mut self, body: &mut Body<'a>, name: &'a str) -> Result<Operand> {
        if name == "_" {
            return Ok(Operand::Sink);
        }
        match body.find(name) {
            Some(Name::Reg(register, 1)) => return Ok(Operand::Reg(register)),
            Some(Name::Reg(first, vector)) => {
                let Some(component) = self.component()? else {
                    let all = (0..vector).map(|c| Operand::Reg(RegId(first.0 + c)));
                    return Ok(Operand::Vector(all.collect()));
                };
                let index = match component {
                    "x" | "r" => 0,
                    "y" | "g" => 1,
                    "z" | "b" => 2,
                    "w" | "a" => 3,
                    _ => u32::MAX,
                };
                if index >= vector {
                    return self.error(format!("{name} has no component .{component}"));
                }
                return Ok(Operand::Reg(RegId(first.0 + index)));
            }
            Some(Name::Symbol(symbol)) => return self.of_symbol(body, symbol),
            Some(Name::BranchTable(index)) => return Ok(Operand::BranchTable(index)),
            Some(Name::CallTable(index)) => return Ok(Operand::CallTable(index)),
            Some(Name::Prototype(index)) => return Ok(Operand::Prototype(index)),
            None => {}
        }
        if let Some(symbol) = self.global(name) {
            return self.of_symbol(body, symbol);
        }
        if name.starts_with('%') {
            let component = self.component()?;
            if let Some(special) = special(name, component) {
                return Ok(Operand::Special(special));
            }
            if let Some(component) = component {
                return self.error(format!("{name}.{component} is not declared"));
            }
        }
        self.error(format!("{name} is not declared"))
    }

    /// Any number of `+ constant` and `- constant`.
    pub(super) fn offset(&mut self) -> Result<i64> {
        let mut offset = 0i64;
        loop {
            let negative = if self.accept(b'+')? {
                false
            } else if self.accept(b'-')? {
                true
            } else {
                return Ok(offset);
            };
            match evaluate(&mut self.lexer, TERM)? {
                Value::Int(value, _) if negative => offset = offset.wrapping_sub(value as i64),
                Value::Int(value, _) => offset = offset.wrapping_add(value as i64),
                _ => return self.error("An offset is an integer"),
            }
        }
    }

    /// What stands in brackets, behind the opening one.
    fn bracket(&mut self, body: &mut Body<'a>, depth: u32) -> Result<Operand> {
        let saved = (self.lexer.position, self.lexer.start);
        let first = match self.next()? {
            Token::Ident(name) if name != "WARP_SZ" => match self.named(body, name)? {
                Operand::Reg(register) => {
                    let offset = self.offset()?;
                    Operand::Address(AddressBase::Reg(register), offset)
                }
                Operand::Symbol(symbol, offset) => Operand::Address(AddressBase::Symbol(symbol), offset),
                Operand::Element(base, offset) => Operand::Address(base, offset),
                _ => return self.error(format!("{name} is no address")),
            },
            _ => {
                (self.lexer.position, self.lexer.start) = saved;
                match evaluate(&mut self.lexer, 0)? {
                    Value::Int(value, _) => Operand::Address(AddressBase::Absolute, value as i64),
                    _ => return self.error("An address is an integer"),
                }
            }
        };
        let operand = if self.accept(b',')? {
            let mut all = vec![first];
            loop {
                all.push(self.operand(body, depth + 1)?);
                if !self.accept(b',')? {
                    break;
                }
            }
            Operand::Bracket(all)
        } else {
            first
        };
        self.expect(b']')?;
        // `ld … [a].unified`: a promise about the address.
        if let Some(suffix) = self.component()?
            && suffix != "unified"
        {
            return self.error(format!(".{suffix} does not belong behind an address"));
        }
        Ok(operand)
    }
}
