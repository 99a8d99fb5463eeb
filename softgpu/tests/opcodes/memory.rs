//! Loads, stores, addresses, calls and control flow.

use super::case::{Case, Class, FILL, Want};
use super::values::{Domain, mask, signed};

const B64: (Class, Domain) = (Class::B64, Domain::Int(64));

/// A type of memory with the register that holds it: its class, and how many bits are in memory.
fn register(ty: &str) -> (Class, u32) {
    let bits = ty[1..].parse().unwrap();
    let class = match (ty, bits) {
        ("f32", _) => Class::F32,
        ("f64", _) => Class::F64,
        (_, 8 | 16) => Class::B16,
        (_, 32) => Class::B32,
        _ => Class::B64,
    };
    (class, bits)
}

fn class_bits(class: Class) -> u32 {
    match class {
        Class::B16 => 16,
        Class::B32 | Class::F32 => 32,
        _ => 64,
    }
}

const TYPES: [&str; 14] =
    ["b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"];

/// What a load of `bits` bits at `byte` of some 64-bit words leaves in a register.
fn loaded(words: &[u64], byte: u32, ty: &str, class: Class) -> Want {
    let bits: u32 = ty[1..].parse().unwrap();
    let at = (byte / 8) as usize;
    let value = words[at] >> (8 * (byte % 8)) & mask(bits);
    let value = if ty.starts_with('s') { signed(value, bits) as u64 } else { value };
    Want::Bits(value & mask(class_bits(class)))
}

/// Vectors of at most 16 bytes.
fn vectors(bits: u32) -> impl Iterator<Item = u32> {
    [1, 2, 4].into_iter().filter(move |v| v * bits <= 128)
}

fn tuple(prefix: &str, count: u32) -> String {
    if count == 1 {
        return format!("{prefix}0");
    }
    let names: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    format!("{{{}}}", names.join(", "))
}

fn vector_name(count: u32) -> String {
    if count == 1 { String::new() } else { format!(".v{count}") }
}

/// Kinds of loads: the words between `ld` and the vector, and the space they read.
const LOADS: &[(&str, &str)] = &[
    (".global", "global"),
    (".global.nc", "global"),
    (".volatile.global", "global"),
    (".mmio.relaxed.sys.global", "global"),
    (".relaxed.gpu.global", "global"),
    (".relaxed.sys.global", "global"),
    (".acquire.gpu.global", "global"),
    (".acquire.cta.global", "global"),
    (".weak.global", "global"),
    (".global.ca", "global"),
    (".global.cg", "global"),
    (".global.cs", "global"),
    (".global.cv", "global"),
    (".global.lu", "global"),
    (".global.L1::no_allocate", "global"),
    (".global.nc.L1::no_allocate.L2::128B", "global"),
    ("", "global"),
    (".volatile", "global"),
    (".relaxed.gpu", "global"),
    (".relaxed.sys", "global"),
    (".acquire.gpu", "global"),
    (".acquire.sys", "global"),
    (".shared", "shared"),
    (".volatile.shared", "shared"),
    (".relaxed.cta.shared", "shared"),
    (".shared::cta", "shared"),
    (".local", "local"),
    (".const", "const"),
    (".param", "param"),
    ("", "shared"),
    ("", "local"),
];

/// Loads of every type and vector from every space. The 16 bytes come from the two operands.
fn loads() -> Vec<Case> {
    let mut all = Vec::new();
    for (words, space) in LOADS {
        for ty in TYPES {
            let (class, bits) = register(ty);
            for count in vectors(bits) {
                let opcode = format!("ld{words}{}.{ty}", vector_name(count));
                let destination = tuple("d", count);
                // Where the bytes are, and how they got there.
                let (before, address) = match (*space, *words) {
                    ("global", _) => ("", "pin"),
                    ("shared", "") => (
                        ".shared .align 16 .b8 place[2048]; .reg .b32 at; .reg .b64 base, where; mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch; \
                         st.shared.u64 [at], a0; st.shared.u64 [at+8], a1; cvt.u64.u32 base, at; cvta.shared.u64 where, base;",
                        "where",
                    ),
                    ("shared", _) => (
                        ".shared .align 16 .b8 place[2048]; .reg .b32 at; mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch; \
                         st.shared.u64 [at], a0; st.shared.u64 [at+8], a1;",
                        "at",
                    ),
                    ("local", "") => (
                        ".local .align 16 .b8 place[64]; .reg .b64 base, where; mov.u64 base, place; cvta.local.u64 where, base; st.local.u64 [place], a0; st.local.u64 [base+8], a1;",
                        "where",
                    ),
                    ("local", _) => (
                        ".local .align 16 .b8 place[64]; .reg .b64 base; mov.u64 base, place; st.local.u64 [place], a0; st.local.u64 [base+8], a1;",
                        "base",
                    ),
                    ("const", _) => ("", "table+16"),
                    _ => ("", "extra+16"),
                };
                let size = count * bits / 8;
                let last = 16 - size;
                let constant = matches!(*space, "const" | "param");
                // Twice: the first bytes, and the last that the alignment allows.
                let body = if constant {
                    format!("{before} {opcode} {destination}, [{address}];")
                } else {
                    let again = destination.replace('d', "e");
                    let registers: String =
                        (0..count).map(|n| format!(".reg .b{} e{n};", class_bits(class))).collect();
                    let copies: String = (0..count)
                        .map(|n| format!("mov.b{} d{}, e{n};", class_bits(class), n + count))
                        .collect();
                    format!(
                        "{before} {registers} {opcode} {destination}, [{address}]; {opcode} {again}, [{address}+{last}]; {copies}"
                    )
                };
                let outs = vec![class; if constant { count } else { 2 * count } as usize];
                let model = move |a: &[u64]| -> Vec<Want> {
                    let bytes: [u8; 16] = std::array::from_fn(|i| i as u8 + 17);
                    let fixed = [
                        u64::from_le_bytes(bytes[..8].try_into().unwrap()),
                        u64::from_le_bytes(bytes[8..].try_into().unwrap()),
                    ];
                    let words = if constant { &fixed[..] } else { a };
                    let first = (0..count).map(|n| loaded(words, n * bits / 8, ty, class));
                    let second = (0..count).map(|n| loaded(words, last + n * bits / 8, ty, class));
                    if constant { first.collect() } else { first.chain(second).collect() }
                };
                let table: Vec<String> = (1..=64).map(|n: u32| n.to_string()).collect();
                // The record of a thread is 16 bytes at a multiple of 16.
                let case = Case::new(&opcode, &body, &[B64, B64], &outs, model);
                all.push(case.with(&format!(".const .align 16 .b8 table[64] = {{{}}};", table.join(", "))));
            }
        }
    }
    all
}

/// Results in registers wider than the type.
fn wide_loads() -> Vec<Case> {
    let mut all = Vec::new();
    for ty in ["u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32"] {
        let bits = register(ty).1;
        let body = format!(".reg .b64 w; .reg .b32 h; ld.global.{ty} w, [pin]; mov.b64 d0, w;");
        all.push(Case::new(&format!("ld.global.{ty}"), &body, &[B64], &[Class::B64], move |a| {
            vec![loaded(a, 0, ty, Class::B64)]
        }));
        if bits < 32 {
            let body = format!("ld.global.{ty} d0, [pin];");
            all.push(Case::new(&format!("ld.global.{ty}"), &body, &[B64], &[Class::B32], move |a| {
                vec![loaded(a, 0, ty, Class::B32)]
            }));
        }
    }
    all
}

const STORES: &[(&str, &str)] = &[
    (".global", "global"),
    (".volatile.global", "global"),
    (".mmio.relaxed.sys.global", "global"),
    (".relaxed.gpu.global", "global"),
    (".release.gpu.global", "global"),
    (".global.wb", "global"),
    (".global.cg", "global"),
    (".global.cs", "global"),
    (".global.wt", "global"),
    (".weak.global", "global"),
    ("", "global"),
    (".volatile", "global"),
    (".relaxed.gpu", "global"),
    (".relaxed.sys", "global"),
    (".release.gpu", "global"),
    (".release.sys", "global"),
    (".shared", "shared"),
    (".volatile.shared", "shared"),
    (".shared::cta", "shared"),
    (".local", "local"),
    ("", "shared"),
    ("", "local"),
];

/// Stores of every type and vector to every space: 16 bytes are filled, some are overwritten, all are
/// looked at.
fn stores() -> Vec<Case> {
    let mut all = Vec::new();
    for (words, space) in STORES {
        for ty in TYPES {
            let (class, bits) = register(ty);
            for count in vectors(bits) {
                let opcode = format!("st{words}{}.{ty}", vector_name(count));
                let source = tuple("a", count);
                let size = count * bits / 8;
                let (setup, at) = match (*space, *words) {
                    ("global", _) => ("", "pout"),
                    ("shared", "") => (
                        ".shared .align 16 .b8 place[2048]; .reg .b32 at; .reg .b64 base, where; mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch; cvt.u64.u32 base, at; cvta.shared.u64 where, base;",
                        "where",
                    ),
                    ("shared", _) => (
                        ".shared .align 16 .b8 place[2048]; .reg .b32 at; mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch;",
                        "at",
                    ),
                    ("local", "") => (
                        ".local .align 16 .b8 place[64]; .reg .b64 base, where; mov.u64 base, place; cvta.local.u64 where, base;",
                        "where",
                    ),
                    _ => (".local .align 16 .b8 place[64]; .reg .b64 base; mov.u64 base, place;", "base"),
                };
                // Not at the beginning, if the alignment allows it.
                let offset = 16 - size;
                let body = match *space {
                    "global" => format!("{opcode} [pout+{offset}], {source};"),
                    _ => {
                        let (generic, access) = if words.is_empty() { (true, "") } else { (false, *space) };
                        let suffix = if generic { String::new() } else { format!(".{access}") };
                        format!(
                            "{setup} .reg .b64 x; mov.b64 x, {FILL:#x}; st{suffix}.b64 [{at}], x; st{suffix}.b64 [{at}+8], x; {opcode} [{at}+{offset}], {source};
                             ld{suffix}.b64 x, [{at}]; st.global.b64 [pout], x; ld{suffix}.b64 x, [{at}+8]; st.global.b64 [pout+8], x;"
                        )
                    }
                };
                let model = move |a: &[u64]| -> Vec<Want> {
                    let mut bytes = [0xA5u8; 16];
                    for (n, value) in a.iter().enumerate() {
                        let from = (offset + n as u32 * bits / 8) as usize;
                        let wide = value.to_le_bytes();
                        bytes[from..from + bits as usize / 8].copy_from_slice(&wide[..bits as usize / 8]);
                    }
                    bytes
                        .chunks_exact(8)
                        .map(|c| Want::Bits(u64::from_le_bytes(c.try_into().unwrap())))
                        .collect()
                };
                let ins = vec![(class, Domain::Int(class_bits(class))); count as usize];
                all.push(Case::new(&opcode, &body, &ins, &[Class::Raw, Class::Raw], model));
            }
        }
    }
    all
}

/// Addresses: conversions, and the addresses of variables.
fn addresses() -> Vec<Case> {
    let mut all = Vec::new();
    // To a space and back.
    let shared = ".shared .align 8 .b8 place[1024]; .reg .b64 s, g, h; .reg .pred p; .reg .b32 t;
        mov.u64 s, place; mul.wide.u32 g, tid, 8; add.u64 s, s, g; cvta.shared.u64 g, s; cvta.to.shared.u64 h, g;
        st.u64 [g], a0; ld.shared.u64 d0, [h]; cvt.u32.u64 t, s; st.shared.u64 [t], a1; ld.u64 d1, [g];
        isspacep.shared p, g; selp.u32 d2, 1, 0, p; isspacep.global p, g; selp.u32 d3, 1, 0, p; isspacep.local p, g; selp.u32 d4, 1, 0, p;";
    let outs = [Class::B64, Class::B64, Class::B32, Class::B32, Class::B32];
    let model = |which: usize| {
        move |a: &[u64]| {
            let is = |n: usize| Want::Bits(u64::from(n == which));
            vec![Want::Bits(a[0]), Want::Bits(a[1]), is(0), is(1), is(2)]
        }
    };
    all.push(
        Case::new("cvta.shared.u64", shared, &[B64, B64], &outs, model(0))
            .and("cvta.to.shared.u64")
            .and("isspacep.shared")
            .and("isspacep.global")
            .and("isspacep.local"),
    );
    let local = ".local .align 8 .b8 place[16]; .reg .b64 s, g, h; .reg .pred p;
        mov.u64 s, place; cvta.local.u64 g, s; cvta.to.local.u64 h, g;
        st.u64 [g], a0; ld.local.u64 d0, [h]; st.local.u64 [place+8], a1; ld.u64 d1, [g+8];
        isspacep.shared p, g; selp.u32 d2, 1, 0, p; isspacep.global p, g; selp.u32 d3, 1, 0, p; isspacep.local p, g; selp.u32 d4, 1, 0, p;";
    all.push(Case::new("cvta.local.u64", local, &[B64, B64], &outs, model(2)).and("cvta.to.local.u64"));
    // Addresses of 32 bits.
    let short = ".local .align 8 .b8 place[16]; .reg .b32 s, t; .reg .b64 g, w; .reg .pred p;
        mov.b32 s, place; add.u32 t, s, 8; cvt.u64.u32 w, s; cvta.local.u64 g, w;
        st.local.b64 [s], a0; ld.u64 d0, [g]; st.u64 [g+8], a1; ld.local.b64 d1, [t];
        isspacep.shared p, g; selp.u32 d2, 1, 0, p; isspacep.global p, g; selp.u32 d3, 1, 0, p; isspacep.local p, g; selp.u32 d4, 1, 0, p;";
    all.push(
        Case::new("cvta.local.u64", short, &[B64, B64], &outs, model(2))
            .and("st.local.b64")
            .and("ld.local.b64"),
    );
    let global = ".reg .b64 s, g, h, w; .reg .pred p;
        mov.u64 s, place; mul.wide.u32 w, gid, 16; add.u64 s, s, w; cvta.global.u64 g, s; cvta.to.global.u64 h, g;
        st.u64 [g], a0; ld.global.u64 d0, [h]; st.global.u64 [s+8], a1; ld.u64 d1, [g+8];
        isspacep.shared p, g; selp.u32 d2, 1, 0, p; isspacep.global p, g; selp.u32 d3, 1, 0, p; isspacep.local p, g; selp.u32 d4, 1, 0, p;";
    all.push(
        Case::new("cvta.global.u64", global, &[B64, B64], &outs, model(1))
            .and("cvta.to.global.u64")
            .with(".global .align 16 .b8 place[65536];"),
    );
    // Initial values, with addresses among them.
    let body = ".reg .b64 p; ld.global.u64 p, [table+8]; ld.u32 d0, [p]; ld.global.u64 p, [table]; ld.global.u32 d1, [p+4];
        ld.const.u64 p, [ctable]; ld.u32 d2, [p]; cvta.const.u64 p, ctable; ld.u64 d3, [p+8]; ld.const.f32 d4, [ctable+16];";
    all.push(
        Case::new(
            "ld.global.u64",
            body,
            &[],
            &[Class::B32, Class::B32, Class::B32, Class::B64, Class::F32],
            |_| [0x2222_2222, 0x2222_2222, 0x1111_1111, u64::MAX - 1, 0x3FC0_0000].map(Want::Bits).to_vec(),
        )
        .and("cvta.const.u64")
        .with(
            ".global .align 4 .u32 words[2] = {0x11111111, 0x22222222};
             .global .align 8 .u64 table[2] = {words, generic(words)+4};
             .const .align 8 .u64 ctable[3] = {generic(words), -2, 0x3FC00000};",
        ),
    );
    let body = "prefetch.global.L1 [pin]; prefetch.global.L2 [pin]; prefetch.L1 [pin]; prefetchu.L1 [pin]; membar.cta; membar.gl; membar.sys;
        fence.acq_rel.cta; fence.acq_rel.gpu; fence.acq_rel.sys; fence.sc.cta; fence.sc.gpu; fence.sc.sys;
        fence.proxy.async; fence.proxy.async.shared::cta; fence.proxy.async.global; fence.proxy.alias; fence.mbarrier_init.release.cluster;
        fence.acq_rel.cluster; fence.sc.cluster; fence.acquire.sync_restrict::shared::cluster.cluster; fence.release.sync_restrict::shared::cta.cluster;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; cp.async.bulk.wait_group.read 0;
        griddepcontrol.wait; griddepcontrol.launch_dependents; applypriority.global.L2::evict_normal [pin], 128; applypriority.L2::evict_normal [pin], 128;
        mov.b64 d0, a0; discard.global.L2 [unused], 128; discard.L2 [unused+128], 128;";
    let mut hints = Case::new("prefetch.global.L2", body, &[B64], &[Class::B64], |a| vec![Want::Bits(a[0])])
        .with(".global .align 128 .b8 unused[256];")
        .target("sm_90");
    for opcode in [
        "prefetch.global.L1",
        "prefetch.L1",
        "prefetchu.L1",
        "griddepcontrol.wait",
        "griddepcontrol.launch_dependents",
        "applypriority.global.L2::evict_normal",
        "applypriority.L2::evict_normal",
        "discard.global.L2",
        "discard.L2",
        "membar.cta",
        "membar.gl",
        "membar.sys",
        "fence.acq_rel.cta",
        "fence.acq_rel.gpu",
        "fence.acq_rel.sys",
        "fence.sc.cta",
        "fence.sc.gpu",
        "fence.sc.sys",
        "fence.proxy.async",
        "fence.proxy.async.shared::cta",
        "fence.proxy.async.global",
        "fence.proxy.alias",
        "fence.mbarrier_init.release.cluster",
        "fence.acq_rel.cluster",
        "fence.sc.cluster",
        "fence.acquire.sync_restrict::shared::cluster.cluster",
        "fence.release.sync_restrict::shared::cta.cluster",
        "cp.async.bulk.commit_group",
        "cp.async.bulk.wait_group",
        "cp.async.bulk.wait_group.read",
    ] {
        hints = hints.and(opcode);
    }
    all.push(hints);
    all.extend(elements());
    all.extend(barrier_objects());
    all.extend(copies());
    all.extend(policies());
    all
}

/// `mbarrier`, each thread with an object of its own, so that it is known how many arrivals are missing.
fn barrier_objects() -> Vec<Case> {
    let body = ".reg .b32 at, n, left; .reg .b64 before, last; .reg .pred p, more; mov.u32 at, objects; mad.lo.u32 at, tid, 8, at;
        add.u32 n, a0, 2; add.u32 left, n, -1;
        mbarrier.init.shared.b64 [at], n;
        mbarrier.arrive.shared.b64 before, [at]; mbarrier.pending_count.b64 d0, before;
        mbarrier.test_wait.shared.b64 d1, [at], before; mbarrier.test_wait.parity.shared.b64 d2, [at], 1;
        mbarrier.arrive_drop.shared.b64 before, [at]; add.u32 left, left, -1;
        add.u32 left, left, -1; setp.gt.s32 more, left, 0; @more mbarrier.arrive.noComplete.release.cta.shared.b64 last, [at], left;
        setp.ge.s32 more, left, 0; @more mbarrier.arrive.shared.b64 _, [at];
        mbarrier.try_wait.shared.b64 d3, [at], before, 1000; mbarrier.try_wait.parity.shared.b64 d4, [at], 0;
        mbarrier.arrive.shared.b64 before, [at]; mbarrier.pending_count.b64 d5, before; mbarrier.inval.shared.b64 [at];";
    let outs = [Class::B32, Class::Pred, Class::Pred, Class::Pred, Class::Pred, Class::B32];
    let ins = [(Class::B32, Domain::Below(9))];
    let mut case = Case::new("mbarrier.init.shared.b64", body, &ins, &outs, |a| {
        // Of so many arrivals, one was dropped, and is not expected in the second phase.
        let n = a[0] + 2;
        [n, 0, 1, 1, 1, n - 1].map(Want::Bits).to_vec()
    })
    .with(".shared .align 8 .b64 objects[128];")
    .target("sm_90");
    for opcode in [
        "mbarrier.arrive.shared.b64",
        "mbarrier.arrive_drop.shared.b64",
        "mbarrier.arrive.noComplete.release.cta.shared.b64",
        "mbarrier.pending_count.b64",
        "mbarrier.test_wait.shared.b64",
        "mbarrier.test_wait.parity.shared.b64",
        "mbarrier.try_wait.shared.b64",
        "mbarrier.try_wait.parity.shared.b64",
        "mbarrier.inval.shared.b64",
    ] {
        case = case.and(opcode);
    }
    let mut all = vec![case];
    all.extend(["shared::cluster", "shared::cta"].map(bulk_copies));
    all
}

/// Copies that a barrier counts: bytes that are there before they are expected, and bytes that are expected before they come.
fn bulk_copies(space: &str) -> Case {
    let copy = format!("cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes");
    let body = format!(
        ".reg .b32 at, to; .reg .b64 token; mov.u32 at, objects; mad.lo.u32 at, tid, 8, at; mov.u32 to, places; mad.lo.u32 to, tid, 16, to;
        mbarrier.init.shared.b64 [at], 1; fence.proxy.async.shared::cta;
        {copy} [to], [pin], 16, [at]; mbarrier.test_wait.parity.shared.b64 d0, [at], 0;
        mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 token, [at], 16; FIRST: mbarrier.test_wait.parity.shared.b64 d1, [at], 0; @!d1 bra FIRST;
        ld.shared.u64 d2, [to]; ld.shared.u64 d3, [to+8];
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [at], 48; mbarrier.arrive.shared.b64 token, [at];
        mbarrier.test_wait.parity.shared.b64 d4, [at], 1;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [at], 32; mbarrier.test_wait.parity.shared.b64 d5, [at], 1;
        st.shared.u64 [to], token; {copy} [to], [pin], 16, [at]; SECOND: mbarrier.test_wait.parity.shared.b64 d6, [at], 1; @!d6 bra SECOND; ld.shared.u64 d7, [to];"
    );
    let (flag, word) = (Class::Pred, Class::B64);
    let outs = [flag, flag, word, word, flag, flag, flag, word];
    Case::new(&copy, &body, &[B64, B64], &outs, |a| {
        let mut wants = [0, 1, a[0], a[1], 0, 0, 1, a[0]].map(Want::Bits).to_vec();
        // An H100 takes some of the barriers for complete here, before the last bytes have come.
        wants[5] = Want::Any;
        wants
    })
    .with(".shared .align 8 .b64 objects[128]; .shared .align 16 .b8 places[2048];")
    .target("sm_90")
    .and("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64")
    .and("mbarrier.expect_tx.relaxed.cta.shared::cta.b64")
    .and("mbarrier.complete_tx.relaxed.cta.shared::cta.b64")
}

/// `name[index]`: an element of an array, in each space that has them.
fn elements() -> Vec<Case> {
    let mut all = Vec::new();
    let body = ".shared .align 8 .b64 own[128]; .local .align 8 .b32 l[2][3]; .reg .b64 at; .reg .b32 s;
        ld.global.u32 d0, words[0]; ld.global.u32 d1, words[5-1]; ld.const.u16 d2, halves[1]; ld.global.u64 d3, [pairs[1]+8];
        st.local.b32 l[1][2], 7; st.local.b32 l[1][0], a0; ld.local.b32 d4, [l+12]; ld.local.b32 d5, l[1][2];
        mov.u32 s, own[0]; mov.u32 scratch, own[127]; sub.u32 d6, scratch, s;
        mov.u64 at, words[3]; ld.global.u32 d7, [at]; mov.u64 at, words[6]; ld.global.u32 d8, [at+-4];
        cvta.global.u64 at, words[2]; ld.u32 d9, [at]; ld.param.u8 d10, extra[63]; ld.global.v2.u64 {d11, at}, pairs[1];";
    let outs = [
        Class::B32,
        Class::B32,
        Class::B16,
        Class::B64,
        Class::B32,
        Class::B32,
        Class::B32,
        Class::B32,
        Class::B32,
        Class::B32,
        Class::B16,
        Class::B64,
    ];
    all.push(
        Case::new("mov.u64", body, &[(Class::B32, Domain::Int(32))], &outs, |a| {
            [11, 15, 22, 34, a[0], 7, 127 * 8, 14, 16, 13, 64, 33].map(Want::Bits).to_vec()
        })
        .with(
            ".global .align 4 .u32 words[6] = {11, 12, 13, 14, 15, 16}; .const .align 2 .u16 halves[2] = {21, 22};
             .global .align 16 .v2 .u64 pairs[2] = {{31, 32}, {33, 34}};",
        )
        .refused_by_ptxas(),
    );
    // A register says which element, in memory of each kind.
    let body = ".shared .align 8 .b64 own[128]; .local .align 8 .b64 l[5]; .reg .b32 i; .reg .b16 h; .reg .b64 w, at; .reg .s16 n;
        st.local.b64 l[1], a1; st.local.b64 l[2], a1; st.local.b64 l[4], a1; st.local.b64 l[a0], 9; cvt.u16.u32 h, a0;
        ld.local.b64 d0, l[0]; ld.local.b64 d1, l[3]; ld.local.b64 d2, l[h+1]; cvt.u64.u32 w, a0; add.u64 w, w, 0x100000000;
        st.shared.b64 own[tid], a1; ld.shared.b64 d3, own[tid]; ld.global.u32 d4, words[w+2]; ld.const.u16 d5, halves[a0];
        mov.u64 at, words[a0]; ld.global.u32 d6, [at]; sub.u32 i, 3, a0; ld.global.u32 d7, [words[i]+4]; ld.global.v2.u64 {d8, at}, pairs[h];
        mov.b16 n, -1; ld.global.u32 d9, words[n+6];";
    let outs =
        [B64.0, B64.0, B64.0, B64.0, Class::B32, Class::B16, Class::B32, Class::B32, B64.0, Class::B32];
    let of_lane = |a: &[u64]| {
        let i = a[0];
        let l = |n: u64| match n {
            _ if n == i => Want::Bits(9),
            0 | 3 => Want::Any,
            _ => Want::Bits(a[1]),
        };
        let words = [13 + i, 21 + i, 11 + i, 15 - i, 31 + 2 * i, 16];
        let [word, half, same, from_behind, pair, last] = words.map(Want::Bits);
        vec![l(0), l(3), l(i + 1), Want::Bits(a[1]), word, half, same, from_behind, pair, last]
    };
    all.push(
        Case::new("ld.local.b64", body, &[(Class::B32, Domain::Below(2)), B64], &outs, of_lane)
            .and("st.local.b64")
            .with(
                ".global .align 4 .u32 words[6] = {11, 12, 13, 14, 15, 16}; .const .align 2 .u16 halves[2] = {21, 22};
                 .global .align 16 .v2 .u64 pairs[2] = {{31, 32}, {33, 34}};",
            )
            .refused_by_ptxas(),
    );
    // All threads do the same here, so that each finds what the others have left.
    let body =
        "atom.global.exch.b32 d0, cells[2], 5; red.global.or.b32 cells[0], 1; ld.global.u32 d1, cells[0];";
    all.push(
        Case::new("atom.global.exch.b32", body, &[], &[Class::B32; 2], |_| [5, 1].map(Want::Bits).to_vec())
            .with(".global .align 4 .b32 cells[4] = {1, 2, 5, 4};")
            .refused_by_ptxas(),
    );
    all
}

/// `createpolicy`, and what takes a policy: whatever it says, no result depends on it.
fn policies() -> Vec<Case> {
    let mut all = Vec::new();
    let mut forms = vec![
        ("createpolicy.range.global.L2::evict_last.L2::evict_first.b64".to_owned(), "[pin], 64, 128"),
        ("createpolicy.range.L2::evict_first.L2::evict_unchanged.b64".to_owned(), "[pin], size, size"),
        ("createpolicy.range.global.L2::evict_normal.b64".to_owned(), "[pin+8], size, 4294967295"),
        ("createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64".to_owned(), "0f3E000000"),
    ];
    for priority in ["evict_last", "evict_normal", "evict_first", "evict_unchanged"] {
        for fraction in ["", "1.0", "fraction"] {
            forms.push((format!("createpolicy.fractional.L2::{priority}.b64"), fraction));
        }
    }
    for (opcode, operands) in forms {
        let comma = if operands.is_empty() { "" } else { ", " };
        let body = format!(
            ".shared .align 16 .b8 place[2048]; .reg .b32 at, size; .reg .f32 fraction; .reg .b64 policy; .reg .pred odd;
             mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch;
             cvt.u32.u64 size, a0; mov.f32 fraction, 0.25; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;
             and.b32 scratch, size, 1; setp.ne.u32 odd, scratch, 0;
             @odd {opcode} policy{comma}{operands};
             ld.global.L2::cache_hint.b64 d0, [pin], policy;
             cp.async.ca.shared.global.L2::cache_hint [at], [pin], 8, policy;
             cp.async.ca.shared.global.L2::cache_hint [at+8], [pin], 8, 4, policy; cp.async.wait_all;
             ld.shared.u64 d1, [at]; ld.shared.u64 d2, [at+8];
             st.global.L2::cache_hint.b64 [pout+24], a0, policy;
             atom.global.exch.L2::cache_hint.b64 d4, [pout+40], a0, policy;
             red.global.xor.L2::cache_hint.b64 [pout+40], a1, policy;"
        );
        let outs = [Class::B64, Class::B64, Class::B64, Class::Raw, Class::B64, Class::Raw];
        let mut case = Case::new(&opcode, &body, &[B64, B64], &outs, |a| {
            [a[0], a[0], a[0] & 0xFFFF_FFFF, a[0], FILL, a[0] ^ a[1]].map(Want::Bits).to_vec()
        });
        for hinted in [
            "ld.global.L2::cache_hint.b64",
            "st.global.L2::cache_hint.b64",
            "atom.global.exch.L2::cache_hint.b64",
            "red.global.xor.L2::cache_hint.b64",
            "cp.async.ca.shared.global.L2::cache_hint",
        ] {
            case = case.and(hinted);
        }
        all.push(case);
    }
    // As an opaque number, a policy can be kept and passed on.
    // Of numbers that are no properties it makes an illegal instruction on devices: never executed.
    let body = ".reg .b64 p; .reg .pred odd; setp.ne.u32 odd, tid, tid; @odd createpolicy.cvt.L2.b64 p, a0; mov.b64 d0, 0;";
    all.push(Case::new("createpolicy.cvt.L2.b64", body, &[B64], &[Class::B64], |_| vec![Want::Bits(0)]));
    all
}

/// `cp.async`: what has been copied once its group has been waited for.
fn copies() -> Vec<Case> {
    let mut all = Vec::new();
    for (opcode, size) in [
        ("cp.async.ca.shared.global", 4),
        ("cp.async.ca.shared.global", 8),
        ("cp.async.ca.shared.global", 16),
        ("cp.async.cg.shared.global", 16),
        ("cp.async.cg.shared.global.L2::128B", 16),
        ("cp.async.ca.shared.global.L2::128B", 8),
    ] {
        for (wait, name) in [
            ("cp.async.commit_group; cp.async.wait_group 0;", "cp.async.wait_group"),
            ("cp.async.wait_all;", "cp.async.wait_all"),
        ] {
            // Whole, and with only the first 4 bytes taken and the rest zeroed.
            for source in ["", ", 4"] {
                let body = format!(
                    ".shared .align 16 .b8 place[2048]; .reg .b32 at; mul.lo.u32 at, tid, 16; mov.u32 scratch, place; add.u32 at, at, scratch;
                     .reg .b64 x; mov.b64 x, {FILL:#x}; st.shared.u64 [at], x; st.shared.u64 [at+8], x;
                     {opcode} [at], [pin], {size}{source}; {wait} ld.shared.u64 d0, [at]; ld.shared.u64 d1, [at+8];"
                );
                let case = Case::new(opcode, &body, &[B64, B64], &[Class::B64; 2], move |a| {
                    let mut bytes = [0xA5u8; 16];
                    let from: Vec<u8> = a.iter().flat_map(|v| v.to_le_bytes()).collect();
                    bytes[..size].copy_from_slice(&from[..size]);
                    if !source.is_empty() {
                        bytes[4..size].fill(0);
                    }
                    bytes
                        .chunks_exact(8)
                        .map(|c| Want::Bits(u64::from_le_bytes(c.try_into().unwrap())))
                        .collect()
                });
                all.push(case.and(name).and("cp.async.commit_group"));
            }
        }
    }
    all
}

/// Branches, predicates, calls.
fn control() -> Vec<Case> {
    let mut all = Vec::new();
    let int = (Class::B32, Domain::Int(32));
    let below = (Class::B32, Domain::Below(7));
    // A loop, branches both ways, and guards.
    let body = ".reg .pred p, q; mov.u32 d0, 0; mov.u32 d1, a0;
        LOOP: and.b32 scratch, d1, 1; setp.ne.u32 p, scratch, 0; @!p bra.uni EVEN; add.u32 d0, d0, 3; bra NEXT;
        EVEN: add.u32 d0, d0, 1;
        NEXT: shr.u32 d1, d1, 1; setp.ne.u32 q, d1, 0; @q bra LOOP; @p add.u32 d1, d1, 7;";
    all.push(
        Case::new("bra", body, &[int], &[Class::B32; 2], |a| {
            let digits = (64 - a[0].leading_zeros()).max(1);
            let ones = a[0].count_ones();
            vec![Want::Bits(u64::from(digits + 2 * ones)), Want::Bits(if ones > 0 { 7 } else { 0 })]
        })
        .and("bra.uni"),
    );
    let body = "T: .branchtargets A, B, C, A, D, B, A; mov.u32 d0, 0; brx.idx a0, T;
        A: mov.u32 d0, 10; bra E; B: mov.u32 d0, 20; bra E; C: mov.u32 d0, 30; D: add.u32 d0, d0, 4; E:";
    all.push(Case::new("brx.idx", body, &[below], &[Class::B32], |a| {
        vec![Want::Bits([10, 20, 34, 10, 4, 20, 10][a[0] as usize])]
    }));
    let functions = ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 v; ld.param.b32 v, [x]; add.u32 v, v, v; st.param.b32 [r], v; ret; }
        .func (.param .b32 r) factorial(.param .b32 x) { .reg .b32 v, w; .reg .pred p; ld.param.b32 v, [x]; setp.gt.u32 p, v, 1; @p bra DEEP;
            st.param.b32 [r], 1; ret;
            DEEP: sub.u32 w, v, 1; { .param .b32 a; .param .b32 b; st.param.b32 [a], w; call.uni (b), factorial, (a); ld.param.b32 w, [b]; }
            mul.lo.u32 v, v, w; st.param.b32 [r], v; ret.uni; }
        .func (.param .align 16 .b8 r[16]) swap(.param .align 16 .b8 x[16], .param .b64 plus) { .reg .b64 a, b, c; ld.param.v2.b64 {a, b}, [x]; ld.param.b64 c, [plus];
            add.u64 a, a, c; st.param.v2.b64 [r], {b, a}; ret; }
        .global .u64 functions[2] = {twice, factorial};";
    let body = "{ .param .b32 p; .param .b32 q; st.param.b32 [p], a0; call.uni (q), twice, (p); ld.param.b32 d0, [q]; }
        { .param .b32 p; .param .b32 q; st.param.b32 [p], a1; call (q), factorial, (p); ld.param.b32 d1, [q]; }";
    all.push(
        Case::new("call.uni", body, &[int, below], &[Class::B32; 2], |a| {
            vec![Want::Bits(a[0] * 2 & mask(32)), Want::Bits((1..=a[1]).product())]
        })
        .and("call")
        .and("ret")
        .and("ret.uni")
        .and("st.param.b32")
        .and("ld.param.b32")
        .with(functions),
    );
    let body = "{ .param .align 16 .b8 p[16]; .param .b64 c; .param .align 16 .b8 q[16]; st.param.v2.b64 [p], {a0, a1}; st.param.b64 [c], a2;
        call.uni (q), swap, (p, c); ld.param.b64 d0, [q]; ld.param.b64 d1, [q+8]; }";
    all.push(
        Case::new("call.uni", body, &[B64; 3], &[Class::B64; 2], |a| {
            vec![Want::Bits(a[1]), Want::Bits(a[0].wrapping_add(a[2]))]
        })
        .and("st.param.b64")
        .and("ld.param.b64")
        .and("st.param.v2.b64")
        .and("ld.param.v2.b64")
        .with(functions),
    );
    let body = ".reg .b64 f; .reg .b32 even; and.b32 even, a0, 1; mul.wide.u32 f, even, 8; mov.u64 offset, functions; add.u64 f, f, offset; ld.global.u64 f, [f];
        { .param .b32 p; .param .b32 q; st.param.b32 [p], a0; prototype: .callprototype (.param .b32 _) _ (.param .b32 _); call (q), f, (p), prototype; ld.param.b32 d0, [q]; }";
    all.push(
        Case::new("call", body, &[below], &[Class::B32], |a| {
            vec![Want::Bits(if a[0] & 1 == 0 { 2 * a[0] } else { (1..=a[0]).product() })]
        })
        .with(functions),
    );
    // Every type through a parameter.
    for ty in ["f32", "f64", "u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "u64", "s64"] {
        let (class, bits) = register(ty);
        let body = format!(
            "{{ .param .{ty} p; .param .{ty} q; st.param.{ty} [p], a0; call.uni (q), same, (p); ld.param.{ty} d0, [q]; }}"
        );
        let function = format!(
            ".func (.param .{ty} r) same(.param .{ty} x) {{ .reg .b{} v; ld.param.{ty} v, [x]; st.param.{ty} [r], v; ret; }}",
            class_bits(class)
        );
        let opcode = format!("st.param.{ty}");
        let ins = [(class, Domain::Int(class_bits(class)))];
        let model = move |a: &[u64]| vec![loaded(&[a[0] & mask(bits)], 0, ty, class)];
        let case = Case::new(&opcode, &body, &ins, &[class], model);
        let case = case.and(&format!("ld.param.{ty}")).with(&function);
        let is_small = ["u8", "s8", "u16", "s16"].contains(&ty);
        all.push(if is_small { case.refused_by_ptxas() } else { case });
    }
    // Some threads end early.
    for opcode in ["ret", "exit"] {
        let body = format!(
            ".reg .pred p; and.b32 scratch, tid, 1; setp.ne.u32 p, scratch, 0; st.global.u64 [pout], a0; @p {opcode}; st.global.u64 [pout+8], a0;"
        );
        all.push(Case::group(opcode, &body, &[B64], &[Class::Raw; 2], 2, |a| {
            vec![vec![Want::Bits(a[0][0]), Want::Bits(a[0][0])], vec![Want::Bits(a[1][0]), Want::Bits(FILL)]]
        }));
    }
    let body = ".reg .pred p; setp.ne.b32 p, a0, a0; @p trap; @p brkpt; nanosleep.u32 20; nanosleep.u32 a1; pmevent 3; mov.b32 d0, a0;";
    all.push(
        Case::new("trap", body, &[int, below], &[Class::B32], |a| vec![Want::Bits(a[0])])
            .and("nanosleep.u32")
            .and("pmevent")
            .and("brkpt"),
    );
    let body = "{ .param .b64 size; .param .b64 p; st.param.b64 [size], 64; call.uni (p), malloc, (size); ld.param.b64 offset, [p]; }
        st.u64 [offset], a0; st.u64 [offset+56], a1; ld.u64 d0, [offset]; ld.u64 d1, [offset+56];
        { .param .b64 p; st.param.b64 [p], offset; call.uni free, (p); }";
    all.push(
        Case::new("malloc", body, &[B64, B64], &[Class::B64; 2], |a| {
            vec![Want::Bits(a[0]), Want::Bits(a[1])]
        })
        .and("free")
        .with(".extern .func (.param .b64 r) malloc (.param .b64 n); .extern .func free (.param .b64 p);"),
    );
    all.extend(special_registers());
    all
}

fn special_registers() -> Vec<Case> {
    let body = "mov.u32 d0, %tid.x; mov.u32 d1, %ntid.x; mov.u32 d2, %ctaid.x; mov.u32 d3, %laneid; mov.u32 d4, %lanemask_eq; mov.u32 d5, %lanemask_lt;
        mov.u32 d6, %lanemask_le; mov.u32 d7, %lanemask_gt; mov.u32 d8, %lanemask_ge; mov.u32 d9, %tid.y; mov.u32 d10, %ntid.z; mov.u32 d11, %nctaid.y; mov.u32 d12, WARP_SZ;";
    let places = Case::group("mov.u32", body, &[], &[Class::B32; 13], 128, |a| {
        (0..a.len() as u64)
            .map(|tid| {
                let lane = tid % 32;
                let (eq, lt) = (1u64 << lane, (1u64 << lane) - 1);
                let gt = mask(32) & !(eq | lt);
                [tid, 128, FILL, lane, eq, lt, eq | lt, gt, gt | eq, 0, 1, 1, 32]
                    .map(|v| if v == FILL { Want::Any } else { Want::Bits(v) })
                    .to_vec()
            })
            .collect()
    });
    // Clocks do not run backwards.
    let body = ".reg .b64 x, y; .reg .b32 u, v; mov.u64 x, %clock64; mov.u64 y, %clock64; setp.ge.u64 d0, y, x; mov.u64 x, %globaltimer; mov.u64 y, %globaltimer; setp.ge.u64 d1, y, x;
        mov.u32 u, %clock; mov.u32 v, %clock; sub.u32 v, v, u; setp.lt.u32 d2, v, 0x80000000; setp.ne.u64 d3, y, 0;";
    let clocks = Case::new("mov.u64", body, &[], &[Class::Pred; 4], |_| vec![Want::Bits(1); 4]);
    vec![places, clocks]
}

pub(crate) fn load_cases() -> Vec<Case> {
    let mut all = loads();
    all.extend(wide_loads());
    let body = "ldu.global.u32 d0, [pin]; ldu.global.v2.u64 {d1, d2}, [pin]; ldu.f64 d3, [pin+8];";
    let outs = [Class::B32, Class::B64, Class::B64, Class::F64];
    let uniform = Case::new("ldu.global.u32", body, &[B64, B64], &outs, |a| {
        [a[0] & 0xFFFF_FFFF, a[0], a[1], a[1]].map(Want::Bits).to_vec()
    });
    all.push(uniform.and("ldu.global.v2.u64").and("ldu.f64"));
    all
}

pub(crate) fn store_cases() -> Vec<Case> {
    stores()
}

pub(crate) fn other_cases() -> Vec<Case> {
    let mut all = addresses();
    all.extend(control());
    all
}
