//! Calls through a pointer of functions in which threads can stop. Those have to be inlined, for a thread keeps no machine stack while it waits; so a
//! call that may lead to one asks first whether it does, and calls it by name.

use std::collections::HashMap;
use std::sync::Arc;

use super::inline::branch;
use super::unit::synthetic;
use rgpu_image::ptx::ast::{
    FormId, Function, FunctionId, Guard, Instruction, LabelId, Operand, RegId, RegName, Register, Statement,
    Symbol, Type,
};

/// Has calls through a pointer, by the numbers of their statements, ask for these functions.
pub(super) fn call_by_name(function: &mut Function, calls: &HashMap<usize, Vec<FunctionId>>) {
    let body = std::mem::take(&mut function.body);
    for (at, statement) in body.into_iter().enumerate() {
        let (callees, call) = match (calls.get(&at), statement) {
            (Some(callees), Statement::Instruction(call)) => (callees, call),
            (_, statement) => {
                function.body.push(statement);
                continue;
            }
        };
        let (line, pointer) = (call.line, call.operands[1].clone());
        let end = label(function);
        if let Some(guard) = call.guard {
            let other = Guard { negated: !guard.negated, ..guard };
            function.body.push(branch(end, Some(other), line));
        }
        let mut arms = Vec::new();
        for &callee in callees {
            let [known, same] = [Type::B64, Type::Pred].map(|ty| register(function, ty));
            let arm = label(function);
            let address = Operand::Symbol(Symbol::Function(callee), 0);
            let mut push = |form: u32, operands: Vec<Operand>| {
                let instruction = Instruction { form: FormId(form), line, guard: None, operands };
                function.body.push(Statement::Instruction(instruction));
            };
            push(synthetic::MOVE[3], vec![Operand::Reg(known), address.clone()]);
            push(synthetic::EQUAL, vec![Operand::Reg(same), pointer.clone(), Operand::Reg(known)]);
            function.body.push(branch(arm, Some(Guard { register: same, negated: false }), line));
            let mut operands = call.operands[..3].to_vec();
            operands[1] = address;
            arms.push((arm, Instruction { guard: None, operands, ..call.clone() }));
        }
        function.body.push(Statement::Instruction(Instruction { guard: None, ..call }));
        for (arm, call) in arms {
            function.body.extend([
                branch(end, None, line),
                Statement::Label(arm),
                Statement::Instruction(call),
            ]);
        }
        function.body.push(Statement::Label(end));
    }
}

fn label(function: &mut Function) -> LabelId {
    function.labels += 1;
    function.label_names.push(String::new());
    LabelId(function.labels - 1)
}

fn register(function: &mut Function, ty: Type) -> RegId {
    let name = RegName { base: Arc::from(""), index: None, component: None };
    function.registers.push(Register { name, ty });
    RegId(function.registers.len() as u32 - 1)
}
