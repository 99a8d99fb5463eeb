//! The parser: directives of a module. What is inside functions is in [`function`] and [`operand`].

mod element;
mod function;
mod operand;
mod scope;
#[cfg(test)]
mod tests;
mod variable;

use std::collections::HashMap;

use super::ParseError;
use super::ast::{FormId, FunctionId, GlobalId, Linkage, Module, Space, Symbol, Type, Variable};
use super::lexer::{Lexer, Position, Token, error_at};
use super::location::Place;
use scope::Scope;

type Result<T> = std::result::Result<T, ParseError>;

/// Parses a module.
///
/// # Errors
/// What is wrong and where, for text that is not PTX or names something undeclared. Where that is in the operands of an
/// instruction, and other functions have no such instructions, it is no error: see [`super::ast::Instruction::form`].
pub fn parse(text: &str) -> Result<Module> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        module: Module { address_size: 32, ..Module::default() },
        names: HashMap::new(),
        forms: HashMap::new(),
        fixups: Vec::new(),
        aliases: Vec::new(),
        registers: 0,
        unreadable: None,
        readable: false,
    };
    parser.module()?;
    match parser.unreadable {
        Some(error) if !parser.readable => Err(error),
        _ => Ok(parser.module),
    }
}

/// A module-level name.
#[derive(Debug, Clone, Copy)]
enum Global {
    Variable(GlobalId),
    Function(FunctionId),
}

/// An address in an initialiser, whose symbol may be declared later.
struct Fixup<'a> {
    variable: GlobalId,
    relocation: usize,
    name: &'a str,
    at: Position,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    module: Module,
    names: HashMap<&'a str, Global>,
    forms: HashMap<&'a str, FormId>,
    fixups: Vec<Fixup<'a>>,
    aliases: Vec<(&'a str, &'a str, Position)>,
    /// How many registers have been declared.
    registers: usize,
    /// What is wrong with the first instruction whose operands could not be read.
    unreadable: Option<ParseError>,
    /// Whether there is a function all of which could be read.
    readable: bool,
}

impl<'a> Parser<'a> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(self.lexer.error(message))
    }

    fn next(&mut self) -> Result<Token<'a>> {
        self.lexer.next()
    }

    /// The next token, which is read again by the next call.
    fn peek(&mut self) -> Result<Token<'a>> {
        let saved = (self.lexer.position, self.lexer.start);
        let token = self.lexer.next();
        (self.lexer.position, self.lexer.start) = saved;
        token
    }

    /// Skips the next token if it is this one.
    fn accept(&mut self, byte: u8) -> Result<bool> {
        let saved = (self.lexer.position, self.lexer.start);
        if self.lexer.next()? == Token::Punct(byte) {
            return Ok(true);
        }
        (self.lexer.position, self.lexer.start) = saved;
        Ok(false)
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        match self.next()? {
            Token::Punct(found) if found == byte => Ok(()),
            found => self.error(format!("'{}' is expected instead of {}", byte as char, describe(found))),
        }
    }

    fn ident(&mut self, what: &str) -> Result<&'a str> {
        match self.next()? {
            Token::Ident(name) => Ok(name),
            found => self.error(format!("{what} is expected instead of {}", describe(found))),
        }
    }

    fn string(&mut self) -> Result<&'a str> {
        match self.next()? {
            Token::Str(text) => Ok(text),
            found => self.error(format!("A string is expected instead of {}", describe(found))),
        }
    }

    /// A non-negative integer expression.
    fn unsigned(&mut self) -> Result<u64> {
        match super::expression::evaluate(&mut self.lexer, 0)? {
            super::expression::Value::Int(value, unsigned) if unsigned || value as i64 >= 0 => Ok(value),
            _ => self.error("A non-negative integer is expected"),
        }
    }

    /// A number that stands for itself, as in what is told to debuggers.
    fn number(&mut self) -> Result<u32> {
        match self.next()? {
            Token::Int(value, ..) => Ok(u32::try_from(value).unwrap_or(0)),
            found => self.error(format!("A number is expected instead of {}", describe(found))),
        }
    }

    fn unsigned32(&mut self) -> Result<u32> {
        let value = self.unsigned()?;
        u32::try_from(value).or_else(|_| self.error(format!("{value} is too large")))
    }

    /// Integers separated by commas.
    fn up_to_three(&mut self) -> Result<[u32; 3]> {
        let mut dims = [1; 3];
        for (index, dim) in dims.iter_mut().enumerate() {
            *dim = self.unsigned32()?;
            if index < 2 && !self.accept(b',')? {
                break;
            }
        }
        Ok(dims)
    }

    fn form(&mut self, text: &'a str) -> FormId {
        if let Some(id) = self.forms.get(text) {
            return *id;
        }
        let id = FormId(self.module.forms.len() as u32);
        self.module.forms.push(text.to_owned());
        self.forms.insert(text, id);
        id
    }

    fn module(&mut self) -> Result<()> {
        match self.next()? {
            Token::Dot("version") => self.module.version = self.lexer.version()?,
            _ => return self.error("A PTX module begins with .version"),
        }
        loop {
            match self.next()? {
                Token::End => break,
                Token::Punct(b';') => {}
                Token::Punct(b'@') => self.lexer.skip_line(),
                Token::Dot(directive) => self.directive(directive)?,
                found => {
                    return self.error(format!("A directive is expected instead of {}", describe(found)));
                }
            }
        }
        self.resolve_fixups()?;
        self.resolve_aliases()
    }

    fn directive(&mut self, directive: &'a str) -> Result<()> {
        let mut linkage = Linkage::Internal;
        let mut directive = directive;
        loop {
            linkage = match directive {
                "visible" => Linkage::Visible,
                "extern" => Linkage::Extern,
                "weak" => Linkage::Weak,
                "common" => Linkage::Common,
                _ => break,
            };
            directive = match self.next()? {
                Token::Dot(next) => next,
                found => {
                    return self.error(format!("A directive is expected instead of {}", describe(found)));
                }
            };
        }
        match directive {
            "version" => self.module.version = self.lexer.version()?,
            "target" => self.target()?,
            "address_size" => match self.unsigned32()? {
                size @ (32 | 64) => self.module.address_size = size,
                _ => return self.error("The address size is 32 or 64"),
            },
            "entry" => self.function(true, linkage)?,
            "func" => self.function(false, linkage)?,
            "alias" => {
                let name = self.ident("A function's name")?;
                let at = self.lexer.start;
                self.expect(b',')?;
                let aliasee = self.ident("A function's name")?;
                self.aliases.push((name, aliasee, at));
            }
            _ if self.skip_directive(directive)? => {}
            "tex" => {
                // The old way to declare texture references.
                self.module_variables(Space::Tex, linkage)?;
            }
            _ => match Space::from_name(directive) {
                Some(space @ (Space::Global | Space::Const | Space::Shared | Space::Local)) => {
                    self.module_variables(space, linkage)?;
                }
                Some(space) => return self.error(format!("A module cannot have .{space} variables")),
                None => return self.error(format!("Directive .{directive} is not known")),
            },
        }
        Ok(())
    }

    /// Skips a directive that has no influence on results. False if it is another one.
    fn skip_directive(&mut self, directive: &str) -> Result<bool> {
        match directive {
            "file" => {
                let number = self.number()?;
                let name = self.string()?;
                self.module.locations.name_file(number, name);
                while self.accept(b',')? {
                    self.number()?;
                }
            }
            "loc" => {
                // `.loc file line column {, function_name label {+ offset}, inlined_at file line column}`
                let at = self.lexer.start.line;
                let place = self.place()?;
                let mut inlined_at = None;
                while self.accept(b',')? {
                    match self.ident("function_name or inlined_at")? {
                        "function_name" => {
                            self.ident("A label")?;
                            if self.accept(b'+')? {
                                self.number()?;
                            }
                        }
                        "inlined_at" => inlined_at = Some(self.place()?),
                        other => return self.error(format!("{other} does not belong into .loc")),
                    }
                }
                self.module.locations.add(at, place, inlined_at);
            }
            "pragma" => loop {
                self.string()?;
                if !self.accept(b',')? {
                    self.accept(b';')?;
                    break;
                }
            },
            "section" => {
                match self.next()? {
                    Token::Dot(_) | Token::Ident(_) | Token::Str(_) => {}
                    found => {
                        return self
                            .error(format!("A section's name is expected instead of {}", describe(found)));
                    }
                }
                self.expect(b'{')?;
                let mut depth = 1;
                while depth > 0 {
                    match self.next()? {
                        Token::Punct(b'{') => depth += 1,
                        Token::Punct(b'}') => depth -= 1,
                        Token::End => return self.error("The section does not end"),
                        _ => {}
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// File, line and column.
    fn place(&mut self) -> Result<Place> {
        Ok(Place { file: self.number()?, line: self.number()?, column: self.number()? })
    }

    fn target(&mut self) -> Result<()> {
        let mut all = Vec::new();
        loop {
            let name = self.ident("A target")?;
            all.push(name);
            if let Some(number) = name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_")) {
                let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                match digits.parse() {
                    Ok(sm) => self.module.target_sm = sm,
                    Err(_) => return self.error(format!("{name} is no target")),
                }
            }
            if !self.accept(b',')? {
                break;
            }
        }
        self.module.target = all.join(", ");
        Ok(())
    }

    fn module_variables(&mut self, space: Space, linkage: Linkage) -> Result<()> {
        for variable in self.declaration(space, linkage)? {
            self.declare_global(variable.0, variable.1, variable.2)?;
        }
        Ok(())
    }

    /// Enters a module-level variable, or joins it with its earlier declaration.
    fn declare_global(
        &mut self,
        name: &'a str,
        variable: Variable,
        symbols: Vec<(usize, &'a str, Position)>,
    ) -> Result<GlobalId> {
        let id = match self.names.get(name) {
            None => {
                let id = GlobalId(self.module.variables.len() as u32);
                self.module.variables.push(variable);
                self.names.insert(name, Global::Variable(id));
                id
            }
            Some(Global::Function(_)) => return self.error(format!("{name} is a function already")),
            Some(Global::Variable(id)) => {
                let id = *id;
                let earlier = &mut self.module.variables[id.0 as usize];
                if earlier.space != variable.space || earlier.ty.bits() != variable.ty.bits() {
                    return self.error(format!("{name} has been declared differently"));
                }
                if earlier.linkage == Linkage::Extern {
                    // A declaration, and now the definition (or the same declaration again).
                    *earlier = variable;
                } else if variable.linkage != Linkage::Extern {
                    let both = earlier.linkage == Linkage::Common || variable.linkage == Linkage::Common;
                    if !both {
                        return self.error(format!("{name} is defined twice"));
                    }
                    if earlier.init.is_none() {
                        *earlier = variable;
                    }
                } else {
                    return Ok(id);
                }
                id
            }
        };
        for (relocation, name, at) in symbols {
            self.fixups.push(Fixup { variable: id, relocation, name, at });
        }
        Ok(id)
    }

    fn resolve_fixups(&mut self) -> Result<()> {
        for fixup in std::mem::take(&mut self.fixups) {
            let Some(symbol) = self.global(fixup.name) else {
                return Err(error_at(fixup.at, format!("{} is not declared", fixup.name)));
            };
            let init = self.module.variables[fixup.variable.0 as usize].init.as_mut();
            if let Some(relocation) = init.and_then(|i| i.relocations.get_mut(fixup.relocation)) {
                relocation.target = symbol;
            }
        }
        Ok(())
    }

    fn resolve_aliases(&mut self) -> Result<()> {
        for (name, aliasee, at) in std::mem::take(&mut self.aliases) {
            let Some(Symbol::Function(target)) = self.global(aliasee) else {
                return Err(error_at(at, format!("{aliasee} is no function")));
            };
            match self.global(name) {
                Some(Symbol::Function(id)) => {
                    let function = &mut self.module.functions[id.0 as usize];
                    if !function.is_declaration || id == target {
                        return Err(error_at(at, format!("{name} is defined already")));
                    }
                    function.alias_of = Some(target);
                }
                _ => return Err(error_at(at, format!("{name} is no function"))),
            }
        }
        // A cycle of aliases would name no function at all.
        for index in 0..self.module.functions.len() {
            let mut at = index;
            for _ in 0..=self.module.functions.len() {
                match self.module.functions[at].alias_of {
                    Some(next) => at = next.0 as usize,
                    None => break,
                }
            }
            if let Some(next) = self.module.functions[at].alias_of {
                let name = &self.module.functions[next.0 as usize].name;
                return self.error(format!("{name} is an alias of itself"));
            }
        }
        Ok(())
    }

    fn global(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).map(|global| match global {
            Global::Variable(id) => Symbol::Global(*id),
            Global::Function(id) => Symbol::Function(*id),
        })
    }
}

/// A token in words, for messages.
fn describe(token: Token<'_>) -> String {
    match token {
        Token::Ident(name) => name.to_owned(),
        Token::Dot(name) => format!(".{name}"),
        Token::Int(value, _) => value.to_string(),
        Token::F32(bits) => format!("0f{bits:08X}"),
        Token::F64(bits) => f64::from_bits(bits).to_string(),
        Token::Str(_) => "a string".to_owned(),
        Token::Punct(byte) => format!("'{}'", byte as char),
        Token::Punct2([a, b]) => format!("'{}{}'", a as char, b as char),
        Token::End => "the end of the text".to_owned(),
    }
}
