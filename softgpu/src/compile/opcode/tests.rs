//! Tests of the table: every row is complete, and what it says of operands is checked.

use super::operands::Operands;
use super::{Checker, Combine, Compare, Form, Opcode, Reader, Row};
use crate::compile::decode::decode;
use rgpu_image::ptx::ast::{Instruction, Space, Statement, Type};

fn is_refused(row: &Row) -> bool {
    std::ptr::fn_addr_eq(row.decode, Reader::refused as fn(&mut Reader) -> Option<crate::compile::op::Op>)
}

#[test]
fn every_opcode_that_can_be_executed_says_what_its_operands_are() {
    for opcode in Opcode::ALL {
        let row = opcode.row();
        assert_eq!(Opcode::from_name(row.name), Some(*opcode));
        let unknown = matches!(row.operands, Operands::Any);
        assert_eq!(unknown, is_refused(row), "{}: operands and decoder", row.name);
    }
}

#[test]
fn modifiers_are_described() {
    assert_eq!(Form::parse("shfl.sync.down.b32").others, ["down"]);
    let form = Form::parse("ld.global.nc.v2.f32");
    assert_eq!(
        (form.vector, form.nc, form.space(), form.ty()),
        (2, true, Some(Space::Global), Some(Type::F32))
    );
    let form = Form::parse("setp.lt.and.s32");
    assert_eq!((form.compare, form.combine), (Some(Compare::Lt), Some(Combine::And)));
    assert_eq!(Form::parse("frobnicate.u32").opcode, Opcode::Unknown);
    // The same word means one thing with one opcode and another with the next.
    assert_eq!(Form::parse("mul.lo.u32").part, Some(super::MulPart::Lo));
    assert_eq!(Form::parse("setp.lo.u32").compare, Some(Compare::Lo));
    assert_eq!(Form::parse("dp2a.lo.u32.u32").others, ["lo"]);
}

/// Checks the last instruction of a kernel.
fn check(instruction: &str) -> Result<(), String> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) {{\n\
         .reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p<3>; {instruction}\n}}"
    );
    let mut module = rgpu_image::ptx::parse(&text).map_err(|error| error.to_string())?;
    let form = Form::parse(module.forms.last().unwrap());
    assert!(decode(&form).is_some(), "{instruction}");
    let function = &mut module.functions[0];
    let Some(Statement::Instruction(Instruction { operands, .. })) = function.body.last_mut() else {
        panic!("{instruction} is no instruction")
    };
    Checker::default().check(0, &form, operands, &function.registers)
}

#[test]
fn operands_are_checked() {
    for (instruction, why) in [
        ("add.u32 %r1, %r2;", "takes 3 operands, not 2"),
        ("add.u32 %r1, %r2, %r3, 4;", "takes 3 operands, not 4"),
        ("add.u32 5, %r2, %r3;", "Operand 1 of add.u32 is no register"),
        ("add.u32 %r1, %rd2, %r3;", "Operand 2 of add.u32 (%rd2) has 64 bits instead of 32"),
        ("mul.wide.u32 %r1, %r2, %r3;", "(%r1) has 32 bits instead of 64"),
        ("mov.b64 {%r1, %rd1}, %rd2;", "(%rd1) has 64 bits instead of 32"),
        ("ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];", "has 3 elements instead of 2"),
        ("ld.global.u64 %r1, [%rd1];", "(%r1) has 32 bits instead of 64"),
        ("st.global.u32 [%rd1], %p1;", "(%p1) has 1 bits instead of 32"),
        ("st.global.u32 %rd1, %r1;", "is no address"),
        ("setp.eq.u32 %r1, %r2, %r3;", "(%r1) has 32 bits instead of 1"),
        ("selp.b32 %r1, %r2, %r3, 0f00000000;", "is no predicate"),
        ("shfl.sync.up.b32 %r1, %r2, 1, 0;", "takes 5 operands, not 4"),
        ("ret %r1;", "takes 0 operands, not 1"),
    ] {
        let error = check(instruction).unwrap_err();
        assert!(error.contains(why), "{instruction}: {error}");
    }
    for instruction in [
        "ld.global.u8 %rd1, [%rd2];",
        "cvt.u64.u8 %rd1, %r1;",
        "mov.b64 %rd1, {%r1, %r2};",
        "mov.u32 %r1, %tid.x;",
        "shl.b64 %rd1, %rd2, %r1;",
        "atom.global.add.u32 _, [%rd1], 1;",
        "setp.eq.u32 %p1|_, %r1, 2;",
    ] {
        check(instruction).unwrap_or_else(|error| panic!("{instruction}: {error}"));
    }
}
