//! Functions: signature, directives, body.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::ast::{
    Function, FunctionId, Guard, Instruction, LabelId, Linkage, LocalId, Prototype, RegId, RegName, Register,
    Statement, Variable,
};
use super::super::lexer::Position;
use super::scope::{Name, RegRange};
use super::{Global, ParseError, Parser, Result, Scope, Space, Symbol, Token, Type, describe, error_at};

/// The most registers of a function.
const MAX_REGISTERS: usize = 1 << 21;

/// The most registers of all functions of a module: each takes memory, however few words declare it.
const MAX_MODULE_REGISTERS: usize = 1 << 22;

/// The most scopes that may be open at once.
const MAX_SCOPES: usize = 1000;

/// A function that is being read.
pub(super) struct Body<'a> {
    pub function: Function,
    /// Open scopes, innermost last; the first holds the parameters.
    pub scopes: Vec<Scope<'a>>,
    /// Names of variables so far, and how often.
    uses: HashMap<&'a str, u32>,
    /// Labels of closed scopes that turned out to be labels of an outer one.
    merged: Vec<Option<LabelId>>,
    /// Whether it has an instruction that could not be read.
    unreadable: bool,
}

impl<'a> Body<'a> {
    /// What a name stands for in the innermost scope that knows it.
    pub(super) fn find(&self, name: &str) -> Option<Name> {
        self.scopes.iter().rev().find_map(|scope| scope.find(name))
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn new_label(&mut self, name: &str) -> LabelId {
        let id = LabelId(self.function.labels);
        self.function.labels += 1;
        self.function.label_names.push(name.to_owned());
        self.merged.push(None);
        id
    }

    /// The label that a branch in the current scope names.
    pub(super) fn label(&mut self, name: &'a str, at: Position) -> LabelId {
        if let Some((id, _)) = self.scope().labels.get(name) {
            return *id;
        }
        let id = self.new_label(name);
        self.scope().labels.insert(name, (id, Some(at)));
        id
    }

    fn add_registers(&mut self, base: &str, index: Option<u32>, ty: Type, vector: u32) -> RegId {
        self.push_registers(&Arc::from(base), index, ty, vector)
    }

    fn push_registers(&mut self, base: &Arc<str>, index: Option<u32>, ty: Type, vector: u32) -> RegId {
        let first = RegId(self.function.registers.len() as u32);
        for component in 0..vector {
            let component = (vector > 1).then_some(component as u8);
            let name = RegName { base: base.clone(), index, component };
            self.function.registers.push(Register { name, ty });
        }
        first
    }
}

impl<'a> Parser<'a> {
    /// A function from behind `.entry` or `.func` to its end.
    pub(super) fn function(&mut self, is_entry: bool, linkage: Linkage) -> Result<()> {
        let mut body = Body {
            function: Function { is_entry, linkage, line: self.lexer.start.line, ..Function::default() },
            scopes: vec![Scope::default()],
            uses: HashMap::new(),
            merged: Vec::new(),
            unreadable: false,
        };
        self.function_directives(&mut body.function)?;
        let at = self.lexer.start;
        if self.accept(b'(')? {
            if is_entry {
                return Err(error_at(at, "A kernel has no results"));
            }
            let returns = self.params(&mut body)?;
            for (index, (name, _)) in returns.iter().enumerate() {
                self.name_param(&mut body, name, Symbol::Return(index as u32), &returns[index].1)?;
            }
            body.function.returns = returns.into_iter().map(|(_, variable)| variable).collect();
        }
        let name = self.ident("A function's name")?;
        let at = self.lexer.start;
        body.function.name = name.to_owned();
        body.function.line = at.line;
        if self.accept(b'(')? {
            let params = self.params(&mut body)?;
            for (index, (name, _)) in params.iter().enumerate() {
                self.name_param(&mut body, name, Symbol::Param(index as u32), &params[index].1)?;
            }
            body.function.params = params.into_iter().map(|(_, variable)| variable).collect();
        }
        self.function_directives(&mut body.function)?;
        let is_declaration = self.accept(b';')?;
        body.function.is_declaration = is_declaration;
        let id = self.declare_function(name, &body.function, at)?;
        if is_declaration {
            return Ok(());
        }
        self.module.locations.begin_function(at.line);
        self.expect(b'{')?;
        self.body(&mut body)?;
        self.readable |= !body.unreadable;
        let mut function = body.function;
        let declared = &mut self.module.functions[id.0 as usize];
        if function.linkage == Linkage::Internal {
            function.linkage = declared.linkage;
        }
        *declared = function;
        Ok(())
    }

    /// Enters a function's name; joins it with an earlier declaration.
    fn declare_function(&mut self, name: &'a str, function: &Function, at: Position) -> Result<FunctionId> {
        match self.names.get(name) {
            None => {
                let id = FunctionId(self.module.functions.len() as u32);
                let mut declared = function.clone();
                declared.is_declaration = true;
                self.module.functions.push(declared);
                self.names.insert(name, Global::Function(id));
                Ok(id)
            }
            Some(Global::Variable(_)) => Err(error_at(at, format!("{name} is a variable already"))),
            Some(Global::Function(id)) => {
                let earlier = &self.module.functions[id.0 as usize];
                if !function.is_declaration && !earlier.is_declaration {
                    return Err(error_at(at, format!("{name} is defined twice")));
                }
                let same = |a: &[Variable], b: &[Variable]| {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.size == b.size && a.space == b.space)
                };
                if !same(&earlier.params, &function.params) || !same(&earlier.returns, &function.returns) {
                    return Err(error_at(at, format!("{name} has been declared with other parameters")));
                }
                Ok(*id)
            }
        }
    }

    /// Parameters, behind the opening parenthesis, up to the closing one.
    fn params(&mut self, body: &mut Body<'a>) -> Result<Vec<(&'a str, Variable)>> {
        let mut params = Vec::new();
        if self.accept(b')')? {
            return Ok(params);
        }
        loop {
            let space = match self.next()? {
                Token::Dot("param") => Space::Param,
                Token::Dot("reg") => Space::Reg,
                found => {
                    return self.error(format!(".param or .reg is expected instead of {}", describe(found)));
                }
            };
            let kind = self.kind()?;
            let name = self.ident("A parameter's name")?;
            let mut variable = self.variable(name, space, kind, Linkage::Internal)?;
            if space == Space::Reg {
                let first = body.add_registers(name, None, variable.ty, variable.vector);
                variable.registers = (0..variable.vector).map(|c| RegId(first.0 + c)).collect();
            }
            params.push((name, variable));
            if !self.accept(b',')? {
                break;
            }
        }
        self.expect(b')')?;
        Ok(params)
    }

    fn name_param(
        &mut self,
        body: &mut Body<'a>,
        name: &'a str,
        symbol: Symbol,
        variable: &Variable,
    ) -> Result<()> {
        if name == "_" {
            return Ok(());
        }
        let entry = match variable.registers.first() {
            Some(first) => Name::Reg(*first, variable.vector),
            None => Name::Symbol(symbol),
        };
        if body.scope().names.insert(name, entry).is_some() {
            return self.error(format!("{name} is declared twice"));
        }
        Ok(())
    }

    /// Directives of a function: how many threads, and so on.
    fn function_directives(&mut self, function: &mut Function) -> Result<()> {
        loop {
            let saved = (self.lexer.position, self.lexer.start);
            let Token::Dot(directive) = self.next()? else {
                (self.lexer.position, self.lexer.start) = saved;
                return Ok(());
            };
            match directive {
                "maxntid" => function.max_threads = Some(self.up_to_three()?),
                "reqntid" => function.required_threads = Some(self.up_to_three()?),
                "minnctapersm" => function.min_blocks = Some(self.unsigned32()?),
                "maxnreg" => function.max_registers = Some(self.unsigned32()?),
                "reqnctapercluster" => function.required_cluster = Some(self.up_to_three()?),
                "explicitcluster" => function.needs_cluster = true,
                "blocksareclusters" => function.counts_clusters = true,
                "maxclusterrank" => function.max_cluster = Some(self.unsigned32()?),
                "noreturn" => function.noreturn = true,
                // Hints about registers and limits.
                "maxnctapersm" | "local_maxnreg" => {
                    self.unsigned32()?;
                }
                "abi_preserve" | "abi_preserve_control" => {
                    self.unsigned32()?;
                }
                "attribute" => {
                    let mut depth = 0;
                    loop {
                        match self.next()? {
                            Token::Punct(b'(') => depth += 1,
                            Token::Punct(b')') if depth <= 1 => break,
                            Token::Punct(b')') => depth -= 1,
                            Token::End => return self.error("The attribute does not end"),
                            _ => {}
                        }
                    }
                }
                _ if self.skip_directive(directive)? => {}
                _ => return self.error(format!("Directive .{directive} is not known")),
            }
        }
    }

    /// The body, behind its opening brace.
    fn body(&mut self, body: &mut Body<'a>) -> Result<()> {
        body.scopes.push(Scope::default());
        loop {
            match self.next()? {
                Token::Punct(b'{') => {
                    if body.scopes.len() >= MAX_SCOPES {
                        return self.error("Blocks are nested too deeply");
                    }
                    body.scopes.push(Scope::default());
                }
                Token::Punct(b'}') => {
                    self.close_scope(body)?;
                    if body.scopes.len() <= 1 {
                        break;
                    }
                }
                Token::Punct(b';') => {}
                Token::Punct(b'@') => {
                    if self.accept(b'@')? {
                        self.lexer.skip_line();
                        continue;
                    }
                    let negated = self.accept(b'!')?;
                    let name = self.ident("A predicate register")?;
                    let Some(Name::Reg(register, 1)) = body.find(name) else {
                        return self.error(format!("{name} is no predicate register"));
                    };
                    if body.function.registers[register.0 as usize].ty != Type::Pred {
                        return self.error(format!("{name} is no predicate register"));
                    }
                    self.ident("An instruction")?;
                    self.instruction(body, Some(Guard { register, negated }))?;
                }
                Token::Dot(directive) => self.local_directive(body, directive)?,
                Token::Ident(name) => {
                    let (start, after) = (self.lexer.start, self.lexer.position);
                    if self.accept(b':')? {
                        self.labelled(body, name, start)?;
                    } else {
                        (self.lexer.start, self.lexer.position) = (start, after);
                        self.instruction(body, None)?;
                    }
                }
                Token::End => return self.error("The function does not end"),
                found => {
                    return self.error(format!("An instruction is expected instead of {}", describe(found)));
                }
            }
        }
        self.rename_labels(body);
        Ok(())
    }

    /// Ends a scope: labels that were not found in it are looked for in the next.
    fn close_scope(&mut self, body: &mut Body<'a>) -> Result<()> {
        let Some(scope) = body.scopes.pop() else { return Ok(()) };
        let mut open: Vec<_> =
            scope.labels.into_iter().filter_map(|(name, (id, at))| at.map(|at| (name, id, at))).collect();
        open.sort_by_key(|(_, id, _)| *id);
        for (name, id, at) in open {
            if body.scopes.len() <= 1 {
                return Err(error_at(at, format!("Label {name} does not exist")));
            }
            let outer = body.scope();
            match outer.labels.get(name) {
                Some((target, _)) => {
                    let target = *target;
                    body.merged[id.0 as usize] = Some(target);
                }
                None => {
                    outer.labels.insert(name, (id, Some(at)));
                }
            }
        }
        Ok(())
    }

    /// Replaces merged labels and numbers the others densely.
    fn rename_labels(&mut self, body: &mut Body<'a>) {
        if body.merged.iter().all(Option::is_none) {
            return;
        }
        let mut dense = vec![LabelId(0); body.merged.len()];
        let mut names = Vec::new();
        for (index, merged) in body.merged.iter().enumerate() {
            if merged.is_none() {
                dense[index] = LabelId(names.len() as u32);
                names.push(std::mem::take(&mut body.function.label_names[index]));
            }
        }
        for index in 0..dense.len() {
            let mut at = index;
            // Chains end: a label is merged into one of an outer scope.
            while let Some(next) = body.merged[at] {
                at = next.0 as usize;
            }
            dense[index] = dense[at];
        }
        let function = &mut body.function;
        function.labels = names.len() as u32;
        function.label_names = names;
        let rename = |id: &mut LabelId| *id = dense[id.0 as usize];
        function.branch_tables.iter_mut().flatten().for_each(rename);
        for statement in &mut function.body {
            match statement {
                Statement::Label(id) => rename(id),
                Statement::Instruction(instruction) => {
                    for operand in &mut instruction.operands {
                        if let super::super::ast::Operand::Label(id) = operand {
                            rename(id);
                        }
                    }
                }
            }
        }
    }

    /// What stands behind `name:`.
    fn labelled(&mut self, body: &mut Body<'a>, name: &'a str, at: Position) -> Result<()> {
        let saved = (self.lexer.position, self.lexer.start);
        let entry = match self.next()? {
            Token::Dot("branchtargets") => {
                let mut table = Vec::new();
                loop {
                    let target = self.ident("A label")?;
                    if let Some(count) = self.range()? {
                        return self.error(format!("A range of {count} labels is not supported"));
                    }
                    table.push(body.label(target, self.lexer.start));
                    if !self.accept(b',')? {
                        break;
                    }
                }
                body.function.branch_tables.push(table);
                Name::BranchTable(body.function.branch_tables.len() as u32 - 1)
            }
            Token::Dot("calltargets") => {
                let mut table = Vec::new();
                loop {
                    let target = self.ident("A function")?;
                    match self.global(target) {
                        Some(Symbol::Function(id)) => table.push(id),
                        _ => return self.error(format!("{target} is no function")),
                    }
                    if !self.accept(b',')? {
                        break;
                    }
                }
                body.function.call_tables.push(table);
                Name::CallTable(body.function.call_tables.len() as u32 - 1)
            }
            Token::Dot("callprototype") => {
                let prototype = self.prototype()?;
                body.function.prototypes.push(prototype);
                Name::Prototype(body.function.prototypes.len() as u32 - 1)
            }
            _ => {
                (self.lexer.position, self.lexer.start) = saved;
                let id = match body.scope().labels.get_mut(name) {
                    Some((_, None)) => return Err(error_at(at, format!("Label {name} is defined twice"))),
                    Some((id, open)) => {
                        *open = None;
                        *id
                    }
                    None => {
                        let id = body.new_label(name);
                        body.scope().labels.insert(name, (id, None));
                        id
                    }
                };
                body.function.body.push(Statement::Label(id));
                return Ok(());
            }
        };
        self.expect(b';')?;
        if body.scope().names.insert(name, entry).is_some() {
            return Err(error_at(at, format!("{name} is declared twice")));
        }
        Ok(())
    }

    fn prototype(&mut self) -> Result<Prototype> {
        // Parameters need somewhere to put registers; a prototype's are not used.
        let mut scratch = Body {
            function: Function::default(),
            scopes: Vec::new(),
            uses: HashMap::new(),
            merged: Vec::new(),
            unreadable: false,
        };
        let mut prototype = Prototype::default();
        if self.accept(b'(')? {
            prototype.returns = self.params(&mut scratch)?.into_iter().map(|(_, v)| v).collect();
        }
        self.ident("'_'")?;
        if self.accept(b'(')? {
            prototype.params = self.params(&mut scratch)?.into_iter().map(|(_, v)| v).collect();
        }
        self.function_directives(&mut scratch.function)?;
        prototype.noreturn = scratch.function.noreturn;
        Ok(prototype)
    }

    fn local_directive(&mut self, body: &mut Body<'a>, directive: &'a str) -> Result<()> {
        if self.skip_directive(directive)? {
            return Ok(());
        }
        match Space::from_name(directive) {
            Some(Space::Reg) => self.registers(body),
            Some(space @ (Space::Local | Space::Shared | Space::Param)) => {
                for (name, mut variable, _) in self.declaration(space, Linkage::Internal)? {
                    let uses = body.uses.entry(name).or_insert(0);
                    if *uses > 0 {
                        variable.name = format!("{name}.{uses}");
                    }
                    *uses += 1;
                    let id = LocalId(body.function.variables.len() as u32);
                    body.function.variables.push(variable);
                    self.name_local(body, name, Name::Symbol(Symbol::Local(id)))?;
                }
                Ok(())
            }
            Some(space @ (Space::Global | Space::Const)) => {
                // A static variable. Its name may occur in other functions, too.
                for (name, mut variable, symbols) in self.declaration(space, Linkage::Internal)? {
                    variable.name = format!("{}.{name}.{}", body.function.name, self.module.variables.len());
                    let id = super::GlobalId(self.module.variables.len() as u32);
                    self.module.variables.push(variable);
                    for (relocation, name, at) in symbols {
                        self.fixups.push(super::Fixup { variable: id, relocation, name, at });
                    }
                    self.name_local(body, name, Name::Symbol(Symbol::Global(id)))?;
                }
                Ok(())
            }
            _ => self.error(format!("Directive .{directive} is not known")),
        }
    }

    fn name_local(&mut self, body: &mut Body<'a>, name: &'a str, entry: Name) -> Result<()> {
        if body.scope().names.insert(name, entry).is_some() {
            return self.error(format!("{name} is declared twice"));
        }
        Ok(())
    }

    /// `.reg`, behind that word.
    fn registers(&mut self, body: &mut Body<'a>) -> Result<()> {
        let kind = self.kind()?;
        loop {
            let name = self.ident("A register's name")?;
            let count = self.range()?;
            self.room_for_registers(body, count.unwrap_or(1) as usize * kind.vector as usize)?;
            match count {
                None => {
                    let first = body.add_registers(name, None, kind.ty, kind.vector);
                    self.name_local(body, name, Name::Reg(first, kind.vector))?;
                }
                Some(count) => {
                    let first = body.function.registers.len() as u32;
                    let base: Arc<str> = Arc::from(name);
                    for index in 0..count {
                        body.push_registers(&base, Some(index), kind.ty, kind.vector);
                    }
                    let range = RegRange { first, count, vector: kind.vector };
                    if body.scope().ranges.insert(name, range).is_some() {
                        return self.error(format!("{name} is declared twice"));
                    }
                }
            }
            if !self.accept(b',')? {
                break;
            }
        }
        self.expect(b';')
    }

    /// Looks whether a function may have so many more registers.
    fn room_for_registers(&mut self, body: &Body<'a>, more: usize) -> Result<()> {
        self.registers += more;
        if body.function.registers.len() + more > MAX_REGISTERS || self.registers > MAX_MODULE_REGISTERS {
            return self.error(format!(
                "These are too many registers: a function may have {MAX_REGISTERS}, a module {MAX_MODULE_REGISTERS}"
            ));
        }
        Ok(())
    }

    /// A register for what one operand alone says.
    pub(super) fn temporary(&mut self, body: &mut Body<'a>, ty: Type) -> Result<RegId> {
        self.room_for_registers(body, 1)?;
        Ok(body.add_registers("%element", None, ty, 1))
    }

    /// An instruction whose first word has just been read.
    fn instruction(&mut self, body: &mut Body<'a>, guard: Option<Guard>) -> Result<()> {
        let start = self.lexer.start;
        let text = self.lexer.opcode();
        let behind = (self.lexer.position, self.lexer.start);
        let (text, operands) = match self.operands(body, text) {
            Ok(operands) => (text, operands),
            Err(error) => {
                (self.lexer.position, self.lexer.start) = behind;
                let whole = self.unreadable(text, start, error)?;
                body.unreadable = true;
                (whole, Vec::new())
            }
        };
        let form = self.form(text);
        body.function.body.push(Statement::Instruction(Instruction {
            form,
            line: start.line,
            guard,
            operands,
        }));
        Ok(())
    }

    /// The text of an instruction whose operands are of no kind that is known here, up to its semicolon: it stands for an opcode
    /// that nobody has, so that its function is refused and the others are not. The error remains one where no end of the
    /// instruction is seen, or where others need what it names.
    fn unreadable(&mut self, opcode: &str, start: Position, error: ParseError) -> Result<&'a str> {
        if matches!(opcode.split('.').next(), Some("bra" | "call")) {
            return Err(error);
        }
        loop {
            match self.next() {
                Ok(Token::Punct(b';')) => break,
                Ok(Token::End | Token::Punct(b'@' | b':')) | Err(_) => return Err(error),
                Ok(_) => {}
            }
        }
        self.unreadable.get_or_insert(error);
        Ok(self.lexer.between(start, self.lexer.start))
    }
}
