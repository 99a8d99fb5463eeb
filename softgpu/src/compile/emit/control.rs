//! Branches, calls, and the end of threads.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value, types};
use cranelift_codegen::isa::CallConv;

use super::{Emitter, Result, class, signature_of, trusted};
use crate::abi;
use crate::compile::flow::{FUEL, branch_targets};
use crate::compile::vars::{Home, is_scalar};
use crate::compile::{Builtin, TableEntry};
use rgpu_image::ptx::ast::{Instruction, LabelId, Operand, Symbol, Type, Variable};

impl<'a> Emitter<'a, '_> {
    /// The block that a branch operand names.
    pub(crate) fn target(&self, operand: &Operand) -> Result<usize> {
        match operand {
            Operand::Label(label) => self.label(*label),
            _ => Err(self.refuse("A label is expected here")),
        }
    }

    fn label(&self, label: LabelId) -> Result<usize> {
        match self.flow.labels.get(label.0 as usize) {
            Some(&block) if block != usize::MAX => Ok(block),
            _ => Err(self.refuse("The label is nowhere")),
        }
    }

    /// Goes to a block of the function, past a yield where the edge closes a loop that may be waiting.
    pub(crate) fn jump_to(&mut self, target: usize) -> Result<()> {
        let block = self.edge(target);
        self.b.ins().jump(block, &[]);
        Ok(())
    }

    /// The block to branch to in order to get to `target` from the current block.
    fn edge(&mut self, target: usize) -> ir::Block {
        let Some(&weight) = self.waiting.get(&(self.current, target)) else {
            return self.blocks[target];
        };
        let check = self.b.create_block();
        self.pending.push((check, target, weight));
        check
    }

    /// Emits the yields on the edges out of the block that has just been ended.
    pub(crate) fn waiting_blocks(&mut self) {
        for (check, target, weight) in std::mem::take(&mut self.pending) {
            let stop = self.b.create_block();
            self.b.set_cold_block(stop);
            self.b.switch_to_block(check);
            let at = offset_of!(abi::Thread, fuel) as i32;
            let fuel = self.b.ins().load(types::I32, trusted(), self.thread, at);
            let left = self.add_const(fuel, -weight);
            self.b.ins().store(trusted(), left, self.thread, at);
            let empty = self.b.ins().icmp_imm_s(IntCC::SignedLessThanOrEqual, left, 0);
            let go = self.blocks[target];
            self.b.ins().brif(empty, stop, &[], go, &[]);
            self.b.switch_to_block(stop);
            let full = self.iconst(types::I32, FUEL);
            self.b.ins().store(trusted(), full, self.thread, at);
            self.suspend(abi::CutKind::Yield, false, target, &[]);
        }
    }

    /// `@p bra`
    pub(crate) fn conditional_branch(
        &mut self,
        predicate: Value,
        negated: bool,
        i: &'a Instruction,
    ) -> Result<bool> {
        let target = self.target(self.operand(&i.operands, 0)?)?;
        let next = self.current + 1;
        let taken = self.edge(target);
        let other = if target == next { taken } else { self.edge(next) };
        if negated {
            self.b.ins().brif(predicate, other, &[], taken, &[]);
        } else {
            self.b.ins().brif(predicate, taken, &[], other, &[]);
        }
        Ok(true)
    }

    /// `bra`, without a guard
    pub(crate) fn bra(&mut self, o: &'a [Operand]) -> Result<bool> {
        let target = self.target(self.operand(o, 0)?)?;
        self.jump_to(target)?;
        Ok(true)
    }

    /// `brx.idx`
    pub(crate) fn brx(&mut self, o: &'a [Operand]) -> Result<bool> {
        let index = self.src(self.operand(o, 0)?, Type::U32)?;
        let labels = branch_targets(self.function, o);
        if labels.is_empty() {
            return Err(self.refuse("The table of brx.idx is missing"));
        }
        let mut blocks = Vec::new();
        for &label in labels {
            let target = self.label(label)?;
            blocks.push(self.edge(target));
        }
        // An index beyond the table is undefined.
        let pool = &mut self.b.func.dfg.value_lists;
        let calls: Vec<_> = blocks.iter().map(|&block| ir::BlockCall::new(block, [], pool)).collect();
        let table = self.b.create_jump_table(ir::JumpTableData::new(calls[0], &calls));
        self.b.ins().br_table(index, table);
        Ok(true)
    }

    /// `ret`
    pub(crate) fn end_of_function(&mut self, _: &'a [Operand]) -> Result<bool> {
        self.ret()?;
        Ok(true)
    }

    /// `exit`
    pub(crate) fn exit(&mut self, _: &'a [Operand]) -> Result<bool> {
        self.stop(abi::STOP_EXIT)?;
        Ok(true)
    }

    /// `trap`, `brkpt`
    pub(crate) fn trap(&mut self, _: &'a [Operand]) -> Result<bool> {
        self.stop(abi::TRAP_INSTRUCTION)?;
        Ok(true)
    }

    /// What has no effect here.
    pub(crate) fn nop(&mut self, _: &'a [Operand]) -> Result<()> {
        Ok(())
    }

    /// What cannot be executed. Nobody gets here: kernels with such an instruction are refused before.
    pub(crate) fn refused(&mut self, _: &'a [Operand]) -> Result<()> {
        Err(self.refuse("The instruction is not supported"))
    }

    /// The end of a function; of a thread, in a kernel.
    pub(crate) fn ret(&mut self) -> Result<()> {
        if self.latch.is_some() {
            return self.stop(abi::STOP_EXIT);
        }
        self.count_end();
        self.return_with(None)
    }

    /// Ends the thread.
    pub(crate) fn stop(&mut self, stop: u32) -> Result<()> {
        let Some(latch) = self.latch else { return self.return_status(stop) };
        self.count_end();
        let value = self.iconst(types::I32, i64::from(stop));
        self.b.ins().store(trusted(), value, self.thread, offset_of!(abi::Thread, stop) as i32);
        if stop >= abi::STOP_TRAP {
            self.store_line();
            self.b.ins().return_(&[]);
        } else {
            self.b.ins().jump(latch, &[]);
        }
        Ok(())
    }

    /// Device functions: returns because the thread has stopped.
    pub(crate) fn return_status(&mut self, stop: u32) -> Result<()> {
        if stop >= abi::STOP_TRAP {
            self.store_line();
        }
        let status = self.iconst(types::I32, i64::from(stop.wrapping_add(1)));
        self.return_with(Some(status))
    }

    /// Says in which line the thread traps.
    pub(super) fn store_line(&mut self) {
        let line = self.iconst(types::I64, i64::from(self.line));
        let at = super::cuts::operand_offset(abi::TRAP_LINE);
        self.b.ins().store(trusted(), line, self.thread, at);
    }

    fn return_with(&mut self, status: Option<Value>) -> Result<()> {
        let failed = status.is_some();
        let mut values = vec![match status {
            Some(status) => status,
            None => self.iconst(types::I32, 0),
        }];
        for index in 0..self.function.returns.len() {
            let variable = &self.function.returns[index];
            if !is_scalar(variable) {
                continue;
            }
            let ty = class(variable.ty);
            let value = if failed {
                self.zero(ty)
            } else {
                match self.vars.returns[index] {
                    Home::Reg(reg) => {
                        let value = self.b.use_var(self.variables[reg as usize]);
                        self.fit(value, variable.ty)?
                    }
                    Home::Frame(at) => self.b.ins().load(ty, trusted(), self.frame, at as i32),
                    _ => return Err(self.refuse("A return value in a strange place")),
                }
            };
            values.push(value);
        }
        self.b.ins().return_(&values);
        Ok(())
    }

    pub(super) fn zero(&mut self, ty: ir::Type) -> Value {
        match ty {
            types::F32 => self.f32const(0),
            types::F64 => self.f64const(0),
            // There is no such constant.
            types::I128 => {
                let half = self.iconst(types::I64, 0);
                self.b.ins().uextend(types::I128, half)
            }
            _ => self.iconst(ty, 0),
        }
    }

    /// `call`; true when control does not come back.
    pub(crate) fn call(&mut self, o: &'a [Operand]) -> Result<bool> {
        let (Operand::List(returns), Operand::List(arguments)) = (self.operand(o, 0)?, self.operand(o, 2)?)
        else {
            return Err(self.refuse("A call without lists of arguments"));
        };
        match self.operand(o, 1)? {
            Operand::Symbol(Symbol::Function(id), 0) => {
                let id = self.cx.unit.resolve(*id);
                if let Some(builtin) = self.cx.unit.builtin(id) {
                    return self.call_builtin(builtin, returns, arguments);
                }
                let callee = &self.cx.unit.module.functions[id.0 as usize];
                if callee.is_declaration {
                    let why = format!("A software GPU's device runtime has no function '{}'", callee.name);
                    return Err(self.refuse(&why));
                }
                let signature = signature_of(CallConv::Fast, &callee.params, &callee.returns);
                let function = self.import.function(&mut self.b, id, signature);
                let args = self.call_arguments(&callee.params, &callee.returns, returns, arguments)?;
                let call = self.b.ins().call(function, &args);
                self.after_call(call, &callee.returns, returns)?;
                Ok(false)
            }
            Operand::Reg(_) => self.call_indirect(o, returns, arguments),
            _ => Err(self.refuse("What is called is no function")),
        }
    }

    /// The three hidden arguments, then the addresses of large results, then the arguments.
    fn call_arguments(
        &mut self,
        params: &[Variable],
        results: &[Variable],
        returns: &'a [Operand],
        arguments: &'a [Operand],
    ) -> Result<Vec<Value>> {
        if params.len() != arguments.len() || results.len() != returns.len() {
            return Err(self.refuse("A call with a wrong number of arguments"));
        }
        let frame = self.add_const(self.frame, i64::from(self.vars.frame.max(16)));
        let mut args = vec![self.thread, self.block, frame];
        for (variable, operand) in results.iter().zip(returns) {
            if !is_scalar(variable) {
                args.push(self.bytes_of_argument(operand, variable.size)?);
            }
        }
        for (variable, operand) in params.iter().zip(arguments) {
            args.push(if is_scalar(variable) {
                self.argument(variable.ty, operand)?
            } else {
                self.bytes_of_argument(operand, variable.size)?
            });
        }
        Ok(args)
    }

    /// The address of an argument or result that is no scalar, of at least so many bytes.
    pub(super) fn bytes_of_argument(&mut self, operand: &Operand, bytes: u64) -> Result<Value> {
        let Operand::Symbol(symbol, 0) = operand else {
            return Err(self.refuse("An array has to be passed by name"));
        };
        let size = match *symbol {
            Symbol::Local(id) => self.function.variables[id.0 as usize].size,
            Symbol::Param(index) => self.function.params[index as usize].size,
            Symbol::Return(index) => self.function.returns[index as usize].size,
            _ => 0,
        };
        if size < bytes {
            return Err(self.refuse("An argument is smaller than the parameter"));
        }
        // Bytes are passed by their generic address, which a variable in shared memory does not have here.
        if !matches!(self.vars.home(*symbol), Some(Home::Frame(_) | Home::Block(_) | Home::Pointer(_))) {
            return Err(self.refuse("An argument in a strange place"));
        }
        self.symbol(*symbol, 0)
    }

    /// The value of a scalar argument.
    pub(super) fn argument(&mut self, ty: Type, operand: &Operand) -> Result<Value> {
        if let Operand::Symbol(symbol, 0) = operand
            && let Some(&home) = self.vars.home(*symbol)
        {
            return match home {
                Home::Reg(reg) => {
                    let value = self.b.use_var(self.variables[reg as usize]);
                    self.fit(value, ty)
                }
                Home::Frame(at) => Ok(self.b.ins().load(class(ty), trusted(), self.frame, at as i32)),
                _ => Err(self.refuse("An argument in a strange place")),
            };
        }
        self.src(operand, ty)
    }

    /// Checks the status, and stores the scalar results.
    fn after_call(&mut self, call: ir::Inst, results: &[Variable], returns: &'a [Operand]) -> Result<()> {
        let values = self.b.inst_results(call).to_vec();
        let status = values[0];
        let (stopped, on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(stopped);
        self.b.ins().brif(status, stopped, &[], on, &[]);
        self.b.switch_to_block(stopped);
        self.pass_on(status)?;
        self.b.switch_to_block(on);
        let mut scalars = values[1..].iter();
        for (variable, operand) in results.iter().zip(returns) {
            if !is_scalar(variable) {
                continue;
            }
            let Some(&value) = scalars.next() else { break };
            self.store_result(variable.ty, operand, value)?;
        }
        Ok(())
    }

    pub(super) fn store_result(&mut self, ty: Type, operand: &Operand, value: Value) -> Result<()> {
        match operand {
            Operand::Symbol(symbol, 0) => match self.vars.home(*symbol).copied() {
                Some(Home::Reg(reg)) => self.define(reg, ty, value),
                Some(Home::Frame(at)) => {
                    self.b.ins().store(trusted(), value, self.frame, at as i32);
                    Ok(())
                }
                _ => Err(self.refuse("A result in a strange place")),
            },
            operand => self.set(operand, ty, value),
        }
    }

    /// A callee's thread has stopped: so has this one.
    fn pass_on(&mut self, status: Value) -> Result<()> {
        let Some(latch) = self.latch else { return self.return_with(Some(status)) };
        let stop = self.add_const(status, -1);
        self.b.ins().store(trusted(), stop, self.thread, offset_of!(abi::Thread, stop) as i32);
        let trap = self.b.create_block();
        let exited = self.b.ins().icmp_imm_u(IntCC::Equal, stop, i64::from(abi::STOP_EXIT));
        self.b.ins().brif(exited, latch, &[], trap, &[]);
        self.b.switch_to_block(trap);
        self.b.ins().return_(&[]);
        Ok(())
    }

    fn call_indirect(
        &mut self,
        o: &'a [Operand],
        returns: &'a [Operand],
        arguments: &'a [Operand],
    ) -> Result<bool> {
        let pointer = self.src(self.operand(o, 1)?, Type::U64)?;
        let (unit, function) = (self.cx.unit, self.function);
        let Some((params, results)) = unit.signature_of_call(function, o.get(3)) else {
            return Err(
                self.refuse("An indirect call needs a prototype, or a table of functions that it may call")
            );
        };
        let Some(shape) = unit.shape(params, results) else {
            return Err(self.refuse("No function can be called like this"));
        };
        let index = self.add_const(pointer, -(unit.first_pointer() as i64));
        let known = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, i64::from(self.cx.table.len()));
        // What is no number of a function is taken for the first, so that nothing is read beside the table, and then
        // found out: the signature found there counts only for a number that is one.
        let first = self.iconst(types::I64, 0);
        let index = self.b.ins().select(known, index, first);
        let size = self.iconst(types::I64, size_of::<TableEntry>() as i64);
        let at = self.b.ins().imul(index, size);
        let table = self.iconst(types::I64, self.cx.table.address() as i64);
        let entry = self.b.ins().iadd(table, at);
        let found = self.b.ins().load(types::I32, trusted(), entry, offset_of!(TableEntry, shape) as i32);
        let same = self.b.ins().icmp_imm_u(IntCC::Equal, found, i64::from(shape));
        let fits = self.b.ins().band(known, same);
        let (bad, go) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(fits, go, &[], bad, &[]);
        self.b.switch_to_block(bad);
        self.stop(abi::TRAP_BAD_CALL)?;
        self.b.switch_to_block(go);
        let code = self.b.ins().load(types::I64, trusted(), entry, offset_of!(TableEntry, code) as i32);
        // The signature decides once more, now over what is called instead of over the way there: no processor that
        // guesses branches enters another function, and the verifier sees it without knowing who branched.
        let nowhere = self.iconst(types::I64, 0);
        let code = self.b.ins().select(same, code, nowhere);
        let args = self.call_arguments(params, results, returns, arguments)?;
        let signature = self.b.import_signature(signature_of(CallConv::Fast, params, results));
        let call = self.b.ins().call_indirect(signature, code, &args);
        self.after_call(call, results, returns)?;
        Ok(false)
    }

    /// Calls a function that every module may use without defining it.
    fn call_builtin(
        &mut self,
        builtin: Builtin,
        returns: &'a [Operand],
        arguments: &'a [Operand],
    ) -> Result<bool> {
        let helpers = &self.cx.env.helpers;
        // What it takes, which of that are addresses that the executor reads from, who does it, and what it returns.
        let (types_of, addresses, helper, result): (&[Type], &[usize], _, _) = match builtin {
            Builtin::Printf => (&[Type::B64, Type::B64], &[0, 1], helpers.vprintf, Some(Type::B32)),
            Builtin::Malloc => (&[Type::B64], &[], helpers.malloc, Some(Type::B64)),
            Builtin::Free => (&[Type::B64], &[], helpers.free, None),
            Builtin::AssertFail => {
                (&[Type::B64, Type::B64, Type::B32, Type::B64], &[0, 1, 3], helpers.assertfail, None)
            }
            Builtin::Runtime(call) => {
                return self.call_device_runtime(call, returns, arguments).map(|()| false);
            }
        };
        let mut args = vec![self.block];
        for (index, &ty) in types_of.iter().enumerate() {
            let value = self.argument(ty, self.operand(arguments, index)?)?;
            args.push(if addresses.contains(&index) { self.confine(value) } else { value });
        }
        let value = self.call_helper(helper, result.map(class), &args);
        if builtin == Builtin::AssertFail {
            self.stop(abi::TRAP_ASSERT)?;
            return Ok(true);
        }
        if let (Builtin::Printf, Some(value)) = (builtin, value) {
            let (bad, on) = (self.b.create_block(), self.b.create_block());
            self.b.set_cold_block(bad);
            let failed = self.b.ins().icmp_imm_s(IntCC::Equal, value, i64::from(abi::PRINTF_BAD_ADDRESS));
            self.b.ins().brif(failed, bad, &[], on, &[]);
            self.b.switch_to_block(bad);
            self.stop(abi::TRAP_ADDRESS)?;
            self.b.switch_to_block(on);
        }
        if let (Some(ty), Some(value), [operand]) = (result, value, returns) {
            self.store_result(ty, operand, value)?;
        }
        Ok(false)
    }
}
