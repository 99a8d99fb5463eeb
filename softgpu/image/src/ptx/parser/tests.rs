//! Tests of the parser.

use proptest::prelude::*;

use super::super::ast::*;
use super::parse;

const EVERYTHING: &str = r#"
//
// A comment /* with another */
//
.version 9.0
.target sm_90a, debug
.address_size 64
	// .globl	f
.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
)
;
.func (.reg .b32 %ret) legacy (.reg .b32 %a, .reg .f64 %b) { mov.u32 %ret, %a; ret; }
.weak .func (.param .align 16 .b8 r[32]) struct_result(.param .b64 p) .noreturn { st.param.v4.b32 [r+16], {1, 2, 3, -4}; ret; }
.extern .shared .align 16 .b8 dyn[];
.global .align 8 .attribute(.managed) .b32 counter = 5;
.global .u64 table[3] = {generic(counter), counter+4, legacy};
.global .align 1 .b8 packed[6] = {0xFF(generic(counter)), 0xFF00(generic(counter)), 1, -1, 'x'};
"#;

fn module(body: &str) -> Module {
    match parse(&format!(".version 8.0\n.target sm_80\n.address_size 64\n{body}")) {
        Ok(module) => module,
        Err(error) => panic!("{error}"),
    }
}

fn kernel(body: &str) -> (Module, Function) {
    let module =
        module(&format!(".visible .entry k(.param .u64 a, .param .align 4 .b8 b[12]) {{\n{body}\n}}"));
    let function = module.functions[0].clone();
    (module, function)
}

fn fails(body: &str) -> String {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) {{\n{body}\n}}"
    );
    parse(&text).unwrap_err().to_string()
}

fn instructions(function: &Function) -> Vec<&Instruction> {
    let mut all = Vec::new();
    for statement in &function.body {
        if let Statement::Instruction(instruction) = statement {
            all.push(instruction);
        }
    }
    all
}

#[test]
fn declarations_of_every_kind() {
    // Characters in quotes do not exist in PTX.
    assert!(parse(EVERYTHING).unwrap_err().message.contains("'\\''"));
    let module = parse(&EVERYTHING.replace(", 'x'", "")).unwrap();
    assert_eq!((module.version, module.target_sm, module.address_size), ((9, 0), 90, 64));
    assert_eq!(module.target, "sm_90a, debug");
    let [vprintf, legacy, structure] = &module.functions[..] else { panic!() };
    assert!(vprintf.is_declaration && vprintf.params.len() == 2 && vprintf.linkage == Linkage::Extern);
    assert_eq!(legacy.params[1].registers, [RegId(2)]);
    assert_eq!(legacy.registers[2].ty, Type::F64);
    assert_eq!((structure.returns[0].size, structure.returns[0].align, structure.noreturn), (32, 16, true));
    let [dynamic, counter, table, packed] = &module.variables[..] else { panic!() };
    assert!(dynamic.open && dynamic.size == 0 && dynamic.align == 16 && dynamic.linkage == Linkage::Extern);
    assert!(counter.managed);
    assert_eq!(counter.init.as_ref().unwrap().bytes, [5, 0, 0, 0]);
    let relocations = &table.init.as_ref().unwrap().relocations;
    assert_eq!(relocations.len(), 3);
    assert!(relocations[0].generic && relocations[0].target == Symbol::Global(GlobalId(1)));
    assert_eq!((relocations[1].addend, relocations[1].offset, relocations[1].generic), (4, 8, false));
    assert_eq!(relocations[2].target, Symbol::Function(FunctionId(1)));
    let init = packed.init.as_ref().unwrap();
    assert_eq!(init.bytes, [0, 0, 1, 255]);
    assert_eq!((init.relocations[1].shift, init.relocations[1].width, init.relocations[1].offset), (8, 1, 1));
}

#[test]
fn initial_values() {
    let bytes = |declaration: &str| {
        let module = module(declaration);
        let variable = module.variables.last().unwrap().clone();
        (variable.size, variable.init.unwrap().bytes)
    };
    assert_eq!(bytes(".global .b8 a[] = {1, 2, 3};"), (3, vec![1, 2, 3]));
    assert_eq!(bytes(".global .u16 a[2][3] = {{1}, {2, 3}};").1, [1, 0, 0, 0, 0, 0, 2, 0, 3, 0]);
    assert_eq!(bytes(".global .u8 a[2][2] = {1, 2, 3};").1, [1, 2, 3]);
    assert_eq!(bytes(".global .f32 a = 1.5;").1, 1.5f32.to_le_bytes());
    assert_eq!(
        bytes(".const .f32 a[2] = {0f3F800000, -0.5};").1,
        [1f32.to_le_bytes(), (-0.5f32).to_le_bytes()].concat()
    );
    assert_eq!(bytes(".const .f64 a = 0dBFF0000000000000;").1, (-1f64).to_le_bytes());
    assert_eq!(bytes(".const .f64 a = 3;").1, 3f64.to_le_bytes());
    assert_eq!(bytes(".global .v2 .u8 a[2] = {{1, 2}, {3, 4}};"), (4, vec![1, 2, 3, 4]));
    assert_eq!(bytes(".global .v4 .u8 a[] = {{1, 2, 3, 4}, {5}};"), (8, vec![1, 2, 3, 4, 5]));
    assert_eq!(
        bytes(".global .s64 a = -(1 << 40) | 0x10U + 017 * 0b11;").1,
        (-(1i64 << 40) | 61).to_le_bytes()
    );
    assert_eq!(bytes(".global .s32 a = 7 / -2 == -3 ? 10 % 4 : (.u64)~0;").1, 2i32.to_le_bytes());
    assert_eq!(bytes(".global .b8 a[] = \"hi\\n\";").1, b"hi\n");
    for (bad, why) in [
        (".global .u8 a[2] = {1, 2, 3};", "more initial values"),
        (".global .u8 a[2][1] = {{1, 2}};", "more initial values"),
        (".global .u8 a[2] = {{1}};", "deeper"),
        (".global .u8 a = 1.5;", "cannot have this initial value"),
        (".shared .u8 a = 1;", "cannot have an initial value"),
        (".global .u8 a = 1 / 0;", "zero"),
        (".global .u64 a = nobody;", "nobody is not declared"),
        (".global .u8 a[18446744073709551615][2];", "too large"),
        (".global .u8 a; .global .u8 a;", "twice"),
        (".global .wrong a;", ".wrong"),
        (".global .align 3 .u8 a;", "alignment"),
    ] {
        let error = parse(&format!(".version 8.0\n{bad}")).unwrap_err();
        assert!(error.message.contains(why), "{bad}: {error}");
        assert_eq!(error.line, 2);
    }
}

#[test]
fn registers_are_numbered_and_found_in_their_scope() {
    let (_, function) = kernel(
        ".reg .b32 %r<3>; .reg .b32 %r1_<2>; .reg .pred p; .reg .v2 .f32 v;
         { .reg .b64 p; .reg .b32 %r<2>; mov.u64 p, 1; mov.u32 %r1, %r1_1; }
         mov.u32 %r2, %r0; @!p mov.f32 v.y, v.x; mov.v2.f32 v, v;",
    );
    assert_eq!(function.registers.len(), 3 + 2 + 1 + 2 + 1 + 2);
    let all = instructions(&function);
    assert_eq!(all[0].operands[0], Operand::Reg(RegId(8)));
    assert_eq!(all[1].operands, [Operand::Reg(RegId(10)), Operand::Reg(RegId(4))]);
    assert_eq!(all[2].operands, [Operand::Reg(RegId(2)), Operand::Reg(RegId(0))]);
    assert_eq!(all[3].guard, Some(Guard { register: RegId(5), negated: true }));
    assert_eq!(all[3].operands, [Operand::Reg(RegId(7)), Operand::Reg(RegId(6))]);
    assert_eq!(all[4].operands[0], Operand::Vector(vec![Operand::Reg(RegId(6)), Operand::Reg(RegId(7))]));
    assert_eq!(function.registers[4].name.to_string(), "%r1_1");
    assert_eq!(function.registers[7].name.to_string(), "v.y");
    assert!(fails(".reg .b32 %r<3>; mov.u32 %r3, 1;").contains("%r3 is not declared"));
    assert!(fails(".reg .b32 %r<3>; mov.u32 %r01, 1;").contains("%r01 is not declared"));
    assert!(fails(".reg .b32 %r<3>; @%r1 ret;").contains("no predicate"));
    assert!(fails(".reg .b32 r; .reg .b64 r;").contains("twice"));
    assert!(fails(".reg .b32 r<99999999>;").contains("too many"));
}

#[test]
fn labels_are_found_in_their_scope() {
    let (_, function) = kernel(
        "bra END;
         { bra L; L: bra END; }
         { L: bra.uni L; { bra L; bra OUTER; } }
         OUTER: ret;
         T: .branchtargets OUTER, END;
         { .reg .b32 r; brx.idx r, T; }
         END: ret;",
    );
    assert_eq!(function.label_names, ["END", "L", "L", "OUTER"]);
    assert_eq!(function.labels, 4);
    let targets: Vec<_> = instructions(&function)
        .iter()
        .filter_map(|i| match i.operands.first() {
            Some(Operand::Label(id)) => Some(id.0),
            _ => None,
        })
        .collect();
    assert_eq!(targets, [0, 1, 0, 2, 2, 3]);
    assert_eq!(function.branch_tables, [[LabelId(3), LabelId(0)]]);
    let defined: Vec<_> = function
        .body
        .iter()
        .filter_map(|s| if let Statement::Label(l) = s { Some(l.0) } else { None })
        .collect();
    assert_eq!(defined, [1, 2, 3, 0]);
    assert!(fails("bra NOWHERE;").contains("Label NOWHERE does not exist"));
    assert!(fails("{ L: } bra L;").contains("Label L does not exist"));
    assert!(fails("L: L: ret;").contains("twice"));
}

#[test]
fn elements_of_arrays_are_offsets() {
    let (_, function) = kernel(
        ".reg .b32 %r<9>; .shared .align 4 .b32 s[16]; .local .v2 .f64 m[3][4]; .local .b32 scalar;
         ld.shared.u32 %r1, s[0]; ld.shared.u32 %r1, s[2*4-1]; mov.u32 %r1, s[1]; ld.shared.u32 %r1, [s[3]+4];
         ld.param.u8 %r1, b[11]; ld.local.f64 %r1, m[2][1]; mov.u32 %r1, m[1]; st.shared.u32 s[-1], %r1;",
    );
    let operands: Vec<_> = instructions(&function).iter().map(|i| i.operands.clone()).collect();
    let of = |symbol, at| Operand::Element(AddressBase::Symbol(symbol), at);
    let s = |at| of(Symbol::Local(LocalId(0)), at);
    let m = |at| of(Symbol::Local(LocalId(1)), at);
    assert_eq!([&operands[0][1], &operands[1][1], &operands[2][1]], [&s(0), &s(28), &s(4)]);
    assert_eq!(operands[3][1], Operand::Address(AddressBase::Symbol(Symbol::Local(LocalId(0))), 16));
    assert_eq!(operands[4][1], of(Symbol::Param(1), 11));
    assert_eq!([&operands[5][1], &operands[6][1], &operands[7][0]], [&m(2 * 64 + 16), &m(64), &s(-4)]);
    let names = ".reg .b32 %r<3>; .reg .f32 %f<2>; .shared .b32 s[16]; .local .b32 scalar;";
    for (operand, why) in [
        ("scalar[0]", "Only an array"),
        ("s[1][2]", "fewer dimensions"),
        ("s[1.5]", "is an integer"),
        ("s[%r1][2]", "';'"),
        ("s[%f1]", "an integer of 16, 32 or 64 bits"),
        ("s[1", "']'"),
    ] {
        let error = fails(&format!("{names} ld.shared.u32 %r1, {operand};"));
        assert!(error.contains(why), "{operand}: {error}");
    }
}

#[test]
fn operands_of_every_kind() {
    let (module, function) = kernel(
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .f32 %f<9>; .shared .align 4 .b8 s[16]; .local .b32 l;
         ld.global.nc.v2.f32 {%f1, _}, [%rd1+-8];
         st.shared.u32 [s+4+4], %r1;
         ld.param.u64 %rd1, [a];
         setp.lt.and.s32 %p1|%p2, %r1, -5, !%p2;
         mov.u32 %r1, %tid.y; mov.u32 %r1, %envreg3; mov.u32 %r1, WARP_SZ; mov.u64 %rd2, s;
         add.f32 %f1, 0f3F800000, 1.25;
         tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];
         ld.global.b32 %r1, [16]; and.b32 %r1, %r2, ~7;
         shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1; ld.b32 %r1, [%rd1].unified;
         tex.1d.v4.f32.f32 {%f1, _, _, _}|%p2, [%rd1, {%f5}];
         vmad.s32.s32.s32 %r1.h1, %r2.b3, -%r3, -%r4.h0;",
    );
    let all = instructions(&function);
    let r = |n: u32| Operand::Reg(RegId(n));
    assert_eq!(all[0].operands[0], Operand::Vector(vec![r(22), Operand::Sink]));
    let sampled = Operand::Vector(vec![r(22), Operand::Sink, Operand::Sink, Operand::Sink]);
    assert_eq!(all[all.len() - 2].operands[0], Operand::Pair(Box::new((sampled, r(20)))));
    assert_eq!(all[0].operands[1], Operand::Address(AddressBase::Reg(RegId(10)), -8));
    assert_eq!(all[1].operands[0], Operand::Address(AddressBase::Symbol(Symbol::Local(LocalId(0))), 8));
    assert_eq!(all[2].operands[1], Operand::Address(AddressBase::Symbol(Symbol::Param(0)), 0));
    assert_eq!(
        all[3].operands,
        [
            Operand::Pair(Box::new((r(19), r(20)))),
            r(1),
            Operand::Int(-5i64 as u64, true),
            Operand::NotReg(RegId(20))
        ]
    );
    let part = |n: u32, first, bits, negative| Operand::Part(RegId(n), Part { first, bits, negative });
    let parts = [part(1, 16, 16, false), part(2, 24, 8, false), part(3, 0, 32, true), part(4, 0, 16, true)];
    assert_eq!(all.last().unwrap().operands, parts);
    assert_eq!(all[4].operands[1], Operand::Special(Special::TidY));
    assert_eq!(all[5].operands[1], Operand::Special(Special::EnvReg(3)));
    assert_eq!(all[6].operands[1], Operand::Int(32, false));
    assert_eq!(all[7].operands[1], Operand::Symbol(Symbol::Local(LocalId(0)), 0));
    assert_eq!(all[8].operands[1..], [Operand::F32(0x3F80_0000), Operand::F64(1.25f64.to_bits())]);
    assert!(matches!(&all[9].operands[1], Operand::Bracket(parts) if parts.len() == 2));
    assert_eq!(all[10].operands[1], Operand::Address(AddressBase::Absolute, 16));
    assert_eq!(all[11].operands[2], Operand::Int(!7, true));
    assert_eq!(module.form(all[12]), "shfl.sync.down.b32");
    assert_eq!(module.form(all[0]), "ld.global.nc.v2.f32");
}

#[test]
fn calls() {
    let text = ".func (.param .b32 r) f(.param .b32 x) { ret; } .extern .func g;
        .entry k() { .reg .b32 %r<3>; .reg .b64 %rd<3>;
         { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), f, (p); ld.param.b32 %r2, [q+0]; }
         { .param .b32 p; .param .b32 q;
           proto: .callprototype (.param .b32 _) _ (.param .b32 _) .noreturn;
           call (q), %rd1, (p), proto;
           targets: .calltargets f, g;
           call %rd1, (), targets; }
         call g; call.uni f, (1); ret; }";
    let module = module(text);
    let function = &module.functions[2];
    let calls: Vec<_> = instructions(function).into_iter().filter(|i| i.operands.len() == 4).collect();
    assert_eq!(calls.len(), 5);
    let local = |n| Operand::Symbol(Symbol::Local(LocalId(n)), 0);
    let f = Operand::Symbol(Symbol::Function(FunctionId(0)), 0);
    assert_eq!(
        calls[0].operands,
        [Operand::List(vec![local(1)]), f, Operand::List(vec![local(0)]), Operand::Sink]
    );
    assert_eq!(calls[1].operands[3], Operand::Prototype(0));
    assert_eq!(calls[2].operands[3], Operand::CallTable(0));
    assert_eq!(function.variables.iter().map(|v| &v.name[..]).collect::<Vec<_>>(), ["p", "q", "p.1", "q.1"]);
    assert!(function.prototypes[0].noreturn && function.prototypes[0].params.len() == 1);
    assert!(fails("call h;").contains("Function h is not declared"));
}

#[test]
fn directives_of_functions_and_debugging_text() {
    let module = module(
        ".file 1 \"a \\\"b\\\".cu\", 123, 456
        .visible .entry k() .maxntid 256, 2 .minnctapersm 3 .reqntid 8,1,1 .maxnreg 32
        { .loc 1 2 3, function_name $L__info_string0, inlined_at 1 9 2
          .pragma \"nounroll\"; ret; $L__tmp0: }
        .section .debug_abbrev { .b8 1 .b32 $L__tmp0+4 $a: .b64 .debug_loc }
        .func a() { ret; } .func b(); .alias b, a;",
    );
    let k = &module.functions[0];
    assert_eq!((k.max_threads, k.required_threads), (Some([256, 2, 1]), Some([8, 1, 1])));
    assert_eq!((k.min_blocks, k.max_registers), (Some(3), Some(32)));
    assert_eq!(module.functions[2].alias_of, Some(FunctionId(1)));
    // The line of the call is in a file without a name here.
    assert_eq!(module.locations.of_line(3), []);
}

#[test]
fn a_declaration_and_its_definition_are_one_function() {
    let module = module(
        ".extern .func f(.param .b32 a); .entry k() { call f, (1); ret; } .visible .func f(.param .b32 b) { ret; }",
    );
    assert_eq!(module.functions.len(), 2);
    assert!(!module.functions[0].is_declaration);
    assert!(fails("ret; } .func f(.param .b32 a); .func f() { ret;").contains("other parameters"));
    assert!(fails("ret; } .entry k(.param .u64 a) { ret;").contains("twice"));
}

#[test]
fn errors_say_where() {
    let error = parse(".version 8.0\n.target sm_80\n  .entry k() {\n   mov.u32 %r1, 5;\n}").unwrap_err();
    assert_eq!((error.line, error.column), (4, 12));
    assert_eq!(error.to_string(), "PTX line 4, column 12: %r1 is not declared");
    assert!(parse("").is_err());
    assert!(parse(".version 8.0 /* no end").unwrap_err().message.contains("does not end"));
    assert!(parse(".version 8.0 .entry k() {").unwrap_err().message.contains("does not end"));
}

#[test]
fn operands_of_an_unknown_kind_are_those_of_one_function() {
    let unknown = "$label: vadd2.u32.u32.u32 %r0, %r1.h10, %r2.h32, %r3;\n vote.sync.new %r0, <1>, {%r1; add.u32 %r0, %r1, %r2;";
    let one = format!(".visible .entry one() {{ .reg .b32 %r<4>;\n {unknown}\n ret; }}");
    let wrong = |body: &str| parse(&format!(".version 8.0\n{body}")).unwrap_err().message;
    assert!(wrong(&one).contains("Selector .h10"));
    let module = module(&format!("{one} .visible .entry other() {{ ret; }}"));
    let forms: Vec<&str> = instructions(&module.functions[0]).iter().map(|i| module.form(i)).collect();
    let expected =
        ["vadd2.u32.u32.u32 %r0, %r1.h10, %r2.h32, %r3", "vote.sync.new %r0, <1>, {%r1", "add.u32", "ret"];
    assert_eq!(forms, expected);
    assert!(instructions(&module.functions[0])[0].operands.is_empty());
    // What others need is not left out, and neither is what has no end.
    let other = ".visible .entry other() { ret; }";
    assert!(wrong(&format!("{other} .entry k() {{ bra %nowhere + 1; }}")).contains("expected"));
    assert!(wrong(&format!("{other} .entry k() {{ call nothing, (); }}")).contains("not declared"));
    assert!(wrong(&format!("{other} .entry k() {{ add.u32 1, 2")).contains("expected"));
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = |open: &str| format!(".version 8.0 .global .u64 a = {}", open.repeat(100_000));
    for text in [deep("("), deep("-"), deep("~("), deep("1?")] {
        assert!(parse(&text).is_err());
    }
    assert!(fails(&"{".repeat(100_000)).contains("deeply"));
    assert!(fails(&format!("mov.u32 {}", "{".repeat(100_000))).contains("deeply"));
    assert!(parse(&format!(".version 8.0 .global .u8 a[] = {}", "{".repeat(100_000))).is_err());
}

/// Pieces that random modules are made of.
const PIECES: &[&str] = &[
    ".version 8.0\n",
    ".target sm_80\n",
    ".address_size 64\n",
    ".visible ",
    ".entry k(",
    ".func ",
    "(",
    ")",
    "{",
    "}",
    ".param .b32 a",
    ".reg .b32 %r<4>;",
    ".global .align 8 .u64 t[2] = {",
    "[",
    "]",
    "<",
    ">",
    "=",
    "+",
    "-",
    ",",
    ";",
    "mov.u32 ",
    "%r1",
    "%tid.x",
    "bra ",
    "L:",
    "L",
    "@%p1 ",
    "call ",
    "generic(",
    "0xFF00(",
    "1",
    "0f3F800000",
    "1.5e9",
    "\"s\"",
    ".section .x {",
    ".loc 1 1 1",
    ".branchtargets",
    ".callprototype",
    "_",
    "|",
    "!",
    "ld.global.v4.f32 ",
    "?",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = parse(&text);
        let _ = parse(&format!(".version 8.0\n.visible .entry k() {{ {text}"));
    }

    #[test]
    fn arbitrary_tokens_never_panic(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.into_iter().map(|p| PIECES[p]).collect();
        let _ = parse(&text);
        let _ = parse(&format!(".version 8.0\n.visible .entry k() {{ .reg .pred %p<3>; .reg .b32 %r<4>;\n{text}"));
    }

    #[test]
    fn mutated_modules_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = EVERYTHING.as_bytes().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = parse(&String::from_utf8_lossy(&bytes));
        bytes.truncate(cut.index(bytes.len()));
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}
