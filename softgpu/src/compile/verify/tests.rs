//! Code that leaves what it may touch is refused: made by hand, and what the emitter made with one address replaced.

use std::cell::Cell;

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, AtomicRmwOp, Endianness, InstBuilder, MemFlagsData, UserFuncName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::*;
use crate::compile::tests::runner::Machine;

/// What is done to the code of a function before it is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    /// The address of the access with this number is replaced by what the kernel has made.
    Loaded(usize),
    /// By the number of some place in the process.
    Constant(usize),
    /// It is moved, by what the kernel has made.
    Moved(usize),
}

thread_local! {
    static PLANT: Cell<Option<Plant>> = const { Cell::new(None) };
    static PLANTED: Cell<u32> = const { Cell::new(0) };
}

/// Called by the compiler of every function, before it is verified.
pub(in crate::compile) fn plant(func: &mut Function) {
    let Some(plant) = PLANT.get() else { return };
    let (Plant::Loaded(number) | Plant::Constant(number) | Plant::Moved(number)) = plant;
    let Some(entry) = func.layout.entry_block() else { return };
    let accesses: Vec<Inst> = func
        .layout
        .blocks()
        .flat_map(|block| func.layout.block_insts(block))
        .filter(|&inst| func.dfg.insts[inst].opcode().can_load() || func.dfg.insts[inst].opcode().can_store())
        .filter(|&inst| !func.dfg.insts[inst].opcode().is_call())
        .collect();
    let Some(&inst) = accesses.get(number) else { return };
    let place = match func.dfg.insts[inst] {
        InstructionData::Store { .. } | InstructionData::StoreNoOffset { .. } => 1,
        _ => 0,
    };
    let args = func.dfg.inst_args(inst);
    let Some(&address) = args.get(place) else { return };
    let thread = func.dfg.block_params(entry)[0];
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    let flags = MemFlagsData::trusted();
    let at = std::mem::offset_of!(abi::Thread, op) as i32;
    let made = cursor.ins().load(types::I64, flags, thread, at);
    let wrong = match plant {
        Plant::Loaded(_) => made,
        Plant::Constant(_) => cursor.ins().iconst(types::I64, 0x7fff_1234_5678),
        Plant::Moved(_) => cursor.ins().iadd(address, made),
    };
    func.dfg.inst_args_mut(inst)[place] = wrong;
    PLANTED.set(PLANTED.get() + 1);
}

/// A kernel with accesses of every kind, and a function.
const KERNEL: &str = ".version 8.0\n.target sm_80\n.address_size 64
    .global .align 8 .b64 g[4]; .const .align 8 .b64 c[4];
    .func (.param .b64 r, .param .align 8 .b8 s[16]) f(.param .align 8 .b8 p[16], .param .b64 x) {
      .reg .b64 %d<4>; .local .align 8 .b8 l[16];
      ld.param.b64 %d1, [p+8]; ld.param.b64 %d2, [x]; add.u64 %d1, %d1, %d2; st.local.b64 [l], %d1;
      mov.u64 %d3, l; ld.local.b64 %d3, [%d3]; st.param.b64 [s], %d3; st.param.b64 [r], %d1; ret; }
    .visible .entry k(.param .u64 a, .param .align 8 .b8 b[16]) {
      .reg .b32 %r<10>; .reg .b64 %d<20>; .reg .pred %p<3>; .reg .f32 %f<4>;
      .shared .align 16 .b8 sh[64]; .local .align 8 .b8 l[32];
      ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b+8]; mov.u32 %r1, %tid.x;
      ld.global.u64 %d3, [%d1]; st.global.v2.u32 [%d1+8], {%r1, %r1}; atom.global.add.u32 %r2, [%d1+16], %r1;
      red.global.add.f32 [%d1+24], %f1; ld.global.u64 %d4, [g+8]; ld.const.u64 %d5, [c];
      st.shared.u32 [sh+4], %r1; mov.u32 %r3, sh; ld.shared.u32 %r4, [%r3+4]; atom.shared.cas.b32 %r5, [%r3], %r1, %r4;
      st.local.u64 [l+8], %d3; mov.u64 %d6, l; ld.local.u64 %d7, [%d6+8]; ld.volatile.global.v2.u64 {%d8, %d9}, [%d1+32];
      cp.async.ca.shared.global [%r3], [%d1], 8;
      { .param .align 8 .b8 q[16]; .param .b64 y; .param .b64 z; .param .align 8 .b8 w[16];
        st.param.b64 [q], %d3; st.param.b64 [q+8], %d4; st.param.b64 [y], %d5; call (z, w), f, (q, y); ld.param.b64 %d10, [w]; }
      bar.sync 0; shfl.sync.idx.b32 %r6, %r4, 0, 31, -1;
      add.u64 %d10, %d10, %d7; add.u64 %d10, %d10, %d8; st.global.u64 [%d1], %d10; st.global.u32 [%d1+40], %r6; ret; }";

#[test]
fn whatever_access_of_a_kernel_loses_its_address_the_kernel_is_refused() {
    let all = abi::Checks { memory: true, shared: true, sync: true, counts: false };
    let counts = abi::Checks { counts: true, ..abi::Checks::default() };
    for checks in [abi::Checks::default(), all, counts] {
        for kind in [Plant::Loaded, Plant::Constant, Plant::Moved] {
            let mut number = 0;
            loop {
                PLANT.set(Some(kind(number)));
                PLANTED.set(0);
                let result = Machine::looking(KERNEL, checks).try_compile(0);
                PLANT.set(None);
                if PLANTED.get() == 0 {
                    break;
                }
                let Err(error) = result else { panic!("{:?} was not found out", kind(number)) };
                assert!(
                    error.message.starts_with("Kernel k is not run: its machine code could touch"),
                    "{error}"
                );
                assert!(error.message.contains("a mistake in rgpu"), "{error}");
                number += 1;
            }
            assert!(number > 20, "only {number} accesses");
        }
        assert!(Machine::looking(KERNEL, checks).try_compile(0).is_ok());
    }
}

const ARENA: Range = Range { base: 1 << 44, size: 1 << 40 };
const TABLE: Range = Range { base: 0x5500_0000_0000, size: 64 };
const HELPERS: abi::Helpers = abi::Helpers {
    vprintf: 0x100,
    malloc: 0x200,
    free: 0x300,
    assertfail: 0x400,
    globaltimer: 0x500,
    clock: 0x600,
    device_runtime: 0x700,
    check: 0x800,
    texture: 0x900,
    textures: 0x980,
    count: 0xa00,
    tensor: 0xb00,
    tensors: 0xb80,
    exchange: 0xc80,
    exchange_by_name: 0xcc0,
};

/// What verifying says of a function with the signature of one that takes eight bytes and a number.
fn checked(make: impl FnOnce(&mut FunctionBuilder<'_>, &[Value])) -> Result<(), &'static str> {
    let arguments =
        vec![Argument::Thread, Argument::Block, Argument::Frame, Argument::Bytes(8), Argument::Number];
    let mut signature = Signature::new(CallConv::Fast);
    signature.params.extend([AbiParam::new(types::I64); 5]);
    signature.returns.push(AbiParam::new(types::I32));
    let callee = || Callee { signature: signature.clone(), arguments: arguments.clone() };
    let mut func = Function::with_name_signature(UserFuncName::user(0, 0), signature.clone());
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut func, &mut context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let values = b.block_params(entry).to_vec();
    make(&mut b, &values);
    let zero = b.ins().iconst(types::I32, 0);
    b.ins().return_(&[zero]);
    b.seal_all_blocks();
    b.finalize(crate::compile::code::target().unwrap().frontend_config());
    let around = Surroundings {
        arena: ARENA,
        table: TABLE,
        helpers: &HELPERS,
        functions: &|id| (id.0 == 7).then(&callee),
        signatures: &|number| (number == 3).then(&callee),
    };
    let role = Role::Function { arguments: arguments.clone() };
    verify(&func, &role, &around).map_err(|violation| violation.why)
}

/// An address confined to `size` bytes from `low` on.
fn confined(b: &mut FunctionBuilder<'_>, address: Value, low: u64, size: u64, other: i64) -> Value {
    let low = b.ins().iconst(types::I64, low as i64);
    let distance = b.ins().isub(address, low);
    let size = b.ins().iconst(types::I64, size as i64);
    let inside = b.ins().icmp(IntCC::UnsignedLessThan, distance, size);
    let other = b.ins().iconst(types::I64, other);
    b.ins().select(inside, address, other)
}

const WHOLE: (u64, u64) = (ARENA.base + REACH as u64, ARENA.size - 2 * REACH as u64);

fn load(b: &mut FunctionBuilder<'_>, address: Value, offset: i32) {
    b.ins().load(types::I64, MemFlagsData::new(), address, offset);
}

#[test]
fn confined_addresses_are_good_near_where_they_are_and_others_are_not() {
    let near = |low: u64, size: u64, other: i64, offset: i32| {
        checked(|b, v| {
            let address = confined(b, v[4], low, size, other);
            load(b, address, offset);
        })
    };
    let (low, size) = WHOLE;
    assert_eq!(near(low, size, 16, 0), Ok(()));
    assert_eq!(near(low, size, 16, REACH as i32 - 8), Ok(()));
    assert_eq!(near(low, size, 16, -(REACH as i32)), Ok(()));
    for (low, size, other, offset) in [
        (low, size, 16, REACH as i32),
        (low, size, 16, -(REACH as i32) - 8),
        (low - 1, size, 16, 0),
        (low, size + 1, 16, 0),
        (low, size, 1 << 20, 0),
        (0, 1 << 63, 16, 0),
    ] {
        assert!(near(low, size, other, offset).is_err(), "{low:#x} {size:#x} {other:#x} {offset}");
    }
    // The check of one address says nothing of another, and not when it is turned round.
    assert!(
        checked(|b, v| {
            let zero = b.ins().iconst(types::I64, 0);
            let mask = b.ins().bor(v[4], zero);
            let low = b.ins().iconst(types::I64, WHOLE.0 as i64);
            let distance = b.ins().isub(mask, low);
            let size = b.ins().iconst(types::I64, WHOLE.1 as i64);
            let inside = b.ins().icmp(IntCC::UnsignedLessThan, distance, size);
            let other = b.ins().iconst(types::I64, 16);
            let address = b.ins().select(inside, v[4], other);
            load(b, address, 0);
        })
        .is_err()
    );
    for cond in [IntCC::SignedLessThan, IntCC::UnsignedGreaterThanOrEqual, IntCC::Equal] {
        assert!(
            checked(|b, v| {
                let low = b.ins().iconst(types::I64, WHOLE.0 as i64);
                let distance = b.ins().isub(v[4], low);
                let size = b.ins().iconst(types::I64, WHOLE.1 as i64);
                let inside = b.ins().icmp(cond, distance, size);
                let other = b.ins().iconst(types::I64, 16);
                let address = b.ins().select(inside, v[4], other);
                load(b, address, 0);
            })
            .is_err()
        );
    }
}

#[test]
fn bits_at_the_top_of_a_confined_address_leave_it_confined_and_others_do_not() {
    let with = |bits: i64| {
        checked(|b, v| {
            let address = confined(b, v[4], WHOLE.0, WHOLE.1, 16);
            let top = b.ins().ishl_imm_u(v[4], bits);
            let address = b.ins().iadd(address, top);
            load(b, address, 8);
        })
    };
    assert_eq!((with(59), with(60), with(63)), (Ok(()), Ok(()), Ok(())));
    assert!(with(58).is_err() && with(12).is_err() && with(0).is_err());
}

#[test]
fn regions_end_where_they_end() {
    let thread = |offset: usize| checked(|b, v| load(b, v[0], offset as i32));
    assert_eq!(thread(size_of::<abi::Thread>() - 8), Ok(()));
    assert!(thread(size_of::<abi::Thread>() - 7).is_err());
    let store = |place: usize, offset: usize| {
        checked(|b, v| {
            b.ins().store(MemFlagsData::new(), v[4], v[place], offset as i32);
        })
    };
    // What compiled code has to write, and what leads elsewhere.
    assert_eq!(store(0, std::mem::offset_of!(abi::Thread, op)), Ok(()));
    for field in [
        std::mem::offset_of!(abi::Thread, state),
        std::mem::offset_of!(abi::Thread, local_base),
        std::mem::offset_of!(abi::Thread, tid),
        std::mem::offset_of!(abi::Thread, fuel),
    ] {
        assert!(store(0, field).is_err(), "{field}");
    }
    for field in [
        std::mem::offset_of!(abi::Block, shared_base),
        std::mem::offset_of!(abi::Block, executor),
        std::mem::offset_of!(abi::Block, cursor),
        std::mem::offset_of!(abi::Block, cluster.shared_base),
        std::mem::offset_of!(abi::Block, cluster.shared_offset),
    ] {
        assert!(store(1, field).is_err(), "{field}");
    }
    assert_eq!(
        checked(|b, v| {
            b.ins().store(MemFlagsData::new(), v[0], v[1], std::mem::offset_of!(abi::Block, cursor) as i32);
        }),
        Ok(())
    );
    // The argument's eight bytes, and no frame without a look at its end.
    assert_eq!(store(3, 0), Ok(()));
    assert!(store(3, 1).is_err() && store(2, 0).is_err());
    // What is read from memory is no address, not even from the thread's own description.
    assert!(
        checked(|b, v| {
            let field = std::mem::offset_of!(abi::Block, executor) as i32;
            let loaded = b.ins().load(types::I64, MemFlagsData::new(), v[1], field);
            load(b, loaded, 0);
        })
        .is_err()
    );
    let (own, cluster) = (
        std::mem::offset_of!(abi::Block, shared_base) as i32,
        std::mem::offset_of!(abi::Block, cluster.shared_base) as i32,
    );
    let shared = |field: i32, widen: bool| {
        checked(|b, v| {
            let base = b.ins().load(types::I64, MemFlagsData::new(), v[1], field);
            let offset = if widen {
                let low = b.ins().ireduce(types::I32, v[4]);
                b.ins().uextend(types::I64, low)
            } else {
                v[4]
            };
            let address = b.ins().iadd(base, offset);
            load(b, address, 16);
        })
    };
    for field in [own, cluster] {
        assert_eq!(shared(field, true), Ok(()));
        assert!(shared(field, false).is_err());
    }
    // A block's own part of the cluster's memory, and no more than that and 32 bits: what lies farther on is another cluster's.
    let part = |twice: bool| {
        checked(|b, v| {
            let base = b.ins().load(types::I64, MemFlagsData::new(), v[1], cluster);
            let at = std::mem::offset_of!(abi::Block, cluster.shared_offset) as i32;
            let at = b.ins().load(types::I32, MemFlagsData::new(), v[1], at);
            let at = b.ins().uextend(types::I64, at);
            let mut address = b.ins().iadd(base, at);
            if twice {
                let low = b.ins().ireduce(types::I32, v[4]);
                let low = b.ins().uextend(types::I64, low);
                address = b.ins().iadd(address, low);
            }
            load(b, address, 16);
        })
    };
    assert_eq!(part(false), Ok(()));
    assert!(part(true).is_err());
    let constant = |address: u64| {
        checked(|b, _| {
            let address = b.ins().iconst(types::I64, address as i64);
            load(b, address, 0);
        })
    };
    assert_eq!((constant(ARENA.base), constant(16), constant(1 << 63)), (Ok(()), Ok(()), Ok(())));
    for address in [ARENA.base - 1, ARENA.end() - 7, 1 << 17, TABLE.base - 1, TABLE.end() - 7] {
        assert!(constant(address).is_err(), "{address:#x}");
    }
}

#[test]
fn a_frame_is_there_only_behind_the_look_whether_it_fits() {
    let frame = |cond: IntCC, top: usize, size: i64, at: i32, before: bool| {
        checked(|b, v| {
            let top = b.ins().load(types::I64, MemFlagsData::new(), v[0], top as i32);
            let size = b.ins().iconst(types::I64, size);
            let end = b.ins().iadd(v[2], size);
            let fits = b.ins().icmp(cond, end, top);
            if before {
                load(b, v[2], at);
            }
            let (go, beyond) = (b.create_block(), b.create_block());
            b.ins().brif(fits, go, &[], beyond, &[]);
            b.switch_to_block(beyond);
            let stopped = b.ins().iconst(types::I32, 1);
            b.ins().return_(&[stopped]);
            b.switch_to_block(go);
            if !before {
                load(b, v[2], at);
            }
        })
    };
    let (below, end) = (IntCC::UnsignedLessThanOrEqual, std::mem::offset_of!(abi::Thread, local_end));
    assert_eq!(frame(below, end, 64, 56, false), Ok(()));
    assert!(frame(below, end, 64, 57, false).is_err());
    assert!(frame(below, end, 64, -1, false).is_err());
    assert!(frame(below, end, 64, 0, true).is_err());
    assert!(frame(IntCC::UnsignedGreaterThan, end, 64, 0, false).is_err());
    assert!(frame(below, end - 8, 64, 0, false).is_err());
    assert!(frame(below, end, -64, 0, false).is_err());
}

/// Calls what the table holds, done right but for one thing.
fn through_table(wrong: &str) -> Result<(), &'static str> {
    checked(|b, v| {
        let count = if wrong == "index" { 5 } else { 4 };
        let count = b.ins().iconst(types::I64, count);
        let known = b.ins().icmp(IntCC::UnsignedLessThan, v[4], count);
        let zero = b.ins().iconst(types::I64, 0);
        let index = if wrong == "bound" { v[4] } else { b.ins().select(known, v[4], zero) };
        let at = b.ins().ishl_imm_u(index, if wrong == "step" { 3 } else { 4 });
        let table = b.ins().iconst(types::I64, TABLE.base as i64);
        let entry = b.ins().iadd(table, at);
        let other = b.ins().iadd_imm_s(entry, if wrong == "entry" { 16 } else { 0 });
        let shape = std::mem::offset_of!(TableEntry, shape) as i32;
        let found = b.ins().load(types::I32, MemFlagsData::trusted(), other, shape);
        let number = b.ins().iconst(types::I32, if wrong == "number" { 4 } else { 3 });
        let cond = if wrong == "condition" { IntCC::NotEqual } else { IntCC::Equal };
        let same = b.ins().icmp(cond, found, number);
        let code = b.ins().load(types::I64, MemFlagsData::trusted(), entry, 0);
        let nowhere = b.ins().iconst(types::I64, 0);
        let callee = if wrong == "select" { code } else { b.ins().select(same, code, nowhere) };
        let mut signature = Signature::new(CallConv::Fast);
        signature.params.extend([AbiParam::new(types::I64); 5]);
        signature.returns.push(AbiParam::new(if wrong == "signature" { types::I64 } else { types::I32 }));
        let signature = b.import_signature(signature);
        let mut given = v.to_vec();
        match wrong {
            "thread" => given[0] = v[4],
            "block" => given[1] = v[0],
            "frame" => given[2] = v[4],
            "bytes" => given[3] = v[4],
            _ => {}
        }
        b.ins().call_indirect(signature, callee, &given);
    })
}

#[test]
fn a_call_through_the_table_is_compared_with_what_is_called() {
    assert_eq!(through_table(""), Ok(()));
    for wrong in [
        "index",
        "bound",
        "step",
        "entry",
        "number",
        "condition",
        "select",
        "signature",
        "thread",
        "block",
        "frame",
        "bytes",
    ] {
        assert!(through_table(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn helpers_get_their_block_and_confined_addresses() {
    let call = |helper: usize, block: bool, confine: bool| {
        checked(|b, v| {
            let mut signature = Signature::new(CallConv::SystemV);
            signature.params.extend([AbiParam::new(types::I64); 3]);
            signature.returns.push(AbiParam::new(types::I32));
            let signature = b.import_signature(signature);
            let callee = b.ins().iconst(types::I64, helper as i64);
            let place = if confine { confined(b, v[4], WHOLE.0, WHOLE.1, 16) } else { v[4] };
            b.ins().call_indirect(signature, callee, &[if block { v[1] } else { v[0] }, place, place]);
        })
    };
    assert_eq!(call(HELPERS.vprintf, true, true), Ok(()));
    assert!(call(HELPERS.vprintf, true, false).is_err());
    assert!(call(HELPERS.vprintf, false, true).is_err());
    assert!(call(HELPERS.malloc, true, true).is_err());
    assert_eq!(call(HELPERS.texture, true, false), Ok(()), "it takes numbers");
    assert!(call(HELPERS.texture, false, false).is_err(), "another block's thread");
    assert_eq!(call(HELPERS.tensor, true, false), Ok(()), "it takes numbers, too");
    assert!(call(HELPERS.tensor, false, false).is_err(), "another block's thread");
    assert!(call(0x1234, true, true).is_err());
    assert!(
        checked(|b, v| {
            let signature = b.import_signature(Signature::new(CallConv::SystemV));
            b.ins().call_indirect(signature, v[4], &[]);
        })
        .is_err()
    );
}

#[test]
fn other_instructions_that_touch_memory_are_refused_whatever_they_are() {
    let flags = MemFlagsData::new();
    assert!(
        checked(|b, v| {
            b.ins().atomic_rmw(types::I64, flags, AtomicRmwOp::Add, v[4], v[4]);
        })
        .is_err()
    );
    assert!(
        checked(|b, v| {
            b.ins().atomic_cas(flags, v[4], v[4], v[4]);
        })
        .is_err()
    );
    assert!(
        checked(|b, v| {
            b.ins().uload8(types::I64, flags, v[0], 0);
        })
        .is_err()
    );
    assert!(
        checked(|b, v| {
            b.ins().istore8(flags.with_endianness(Endianness::Little), v[4], v[3], 0);
        })
        .is_err()
    );
    assert!(
        checked(|b, _| {
            let slot =
                b.create_sized_stack_slot(ir::StackSlotData::new(ir::StackSlotKind::ExplicitSlot, 8, 3));
            let address = b.ins().stack_addr(types::I64, slot, 0);
            load(b, address, 0);
        })
        .is_err()
    );
}
