//! Operations of a warp, and barriers of a block.

use super::case::{Case, Class, Want};
use super::values::{Domain, mask, signed};

const INT: (Class, Domain) = (Class::B32, Domain::Int(32));
const PRED: (Class, Domain) = (Class::Pred, Domain::Bool);

pub(crate) fn cases() -> Vec<Case> {
    let mut all = shuffles();
    all.extend(votes());
    all.extend(matches());
    all.extend(barriers());
    all
}

/// The source lane of a shuffle, and whether it is in range: PTX's own description.
fn source(mode: &str, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (segment, clamp, b) = (c >> 8 & 0x1F, c & 0x1F, b & 0x1F);
    let max_lane = lane & segment | clamp & !segment;
    let min_lane = lane & segment;
    let (j, valid) = match mode {
        "up" => (lane.wrapping_sub(b), lane as i32 - b as i32 >= max_lane as i32),
        "down" => (lane + b, lane + b <= max_lane),
        "bfly" => (lane ^ b, lane ^ b <= max_lane),
        _ => {
            let j = min_lane | b & !segment;
            (j, j <= max_lane)
        }
    };
    if valid { (j, true) } else { (lane, false) }
}

fn shuffles() -> Vec<Case> {
    let mut all = Vec::new();
    for mode in ["up", "down", "bfly", "idx"] {
        for c in [0x1Fu32, 0, 0x181F, 0x1C1F, 0x1E1F, 0x101F, 0x1800, 0x1F1F] {
            for b in [0u32, 1, 3, 8, 16, 31, 33] {
                let opcode = format!("shfl.sync.{mode}.b32");
                let body =
                    format!("{opcode} d0|d1, a0, {b}, {c:#x}, -1; {opcode} d2, a0, {b}, {c:#x}, 0xffffffff;");
                all.push(Case::group(
                    &opcode,
                    &body,
                    &[INT],
                    &[Class::B32, Class::Pred, Class::B32],
                    32,
                    move |a| {
                        (0..32)
                            .map(|lane| {
                                let (from, valid) = source(mode, lane, b, c);
                                let value = Want::Bits(a[from as usize][0]);
                                vec![value.clone(), Want::Bits(u64::from(valid)), value]
                            })
                            .collect()
                    },
                ));
            }
        }
        // A different distance and segment in each lane.
        let opcode = format!("shfl.sync.{mode}.b32");
        let clamp = if mode == "up" { 0 } else { 31 };
        let body = format!("{opcode} d0|d1, a0, a1, {clamp}, -1;");
        let ins = [INT, (Class::B32, Domain::Below(32))];
        all.push(Case::group(&opcode, &body, &ins, &[Class::B32, Class::Pred], 32, move |a| {
            (0..32)
                .map(|lane| {
                    let (from, valid) = source(mode, lane, a[lane as usize][1] as u32, clamp);
                    vec![Want::Bits(a[from as usize][0]), Want::Bits(u64::from(valid))]
                })
                .collect()
        }));
        // Half of the warp only, inside a branch.
        let body = format!(
            ".reg .pred odd; and.b32 scratch, tid, 1; setp.ne.u32 odd, scratch, 0; mov.u32 d0, 5; @!odd bra SKIP; {opcode} d0, a0, 2, {clamp}, 0xaaaaaaaa; SKIP: bar.warp.sync -1;"
        );
        all.push(
            Case::group(&opcode, &body, &[INT], &[Class::B32], 32, move |a| {
                (0..32u32)
                    .map(|lane| {
                        if lane % 2 == 0 {
                            return vec![Want::Bits(5)];
                        }
                        let (from, _) = source(mode, lane, 2, clamp);
                        // From a lane that does not take part, anything may come.
                        vec![if from % 2 == 1 { Want::Bits(a[from as usize][0]) } else { Want::Any }]
                    })
                    .collect()
            })
            .and("bar.warp.sync"),
        );
    }
    all
}

fn votes() -> Vec<Case> {
    let mut all = Vec::new();
    for (mode, ty) in [("all", "pred"), ("any", "pred"), ("uni", "pred"), ("ballot", "b32")] {
        let out = if ty == "pred" { Class::Pred } else { Class::B32 };
        for members in [u32::MAX, 0xAAAA_AAAA, 0x0000_FFFF, 0x8000_0001] {
            let vote = move |predicates: Vec<bool>| -> u64 {
                let inside = |n: &usize| members >> n & 1 != 0;
                let those: Vec<bool> = (0..32).filter(inside).map(|n| predicates[n]).collect();
                match mode {
                    "all" => u64::from(those.iter().all(|p| *p)),
                    "any" => u64::from(those.iter().any(|p| *p)),
                    "uni" => u64::from(those.iter().all(|p| *p == those[0])),
                    _ => (0..32).filter(inside).filter(|n| predicates[*n]).map(|n| 1u64 << n).sum(),
                }
            };
            let opcode = format!("vote.sync.{mode}.{ty}");
            let default = if ty == "pred" {
                "setp.ne.u32 d0, 0, 0; setp.ne.u32 d1, 0, 0; setp.ne.u32 d2, 0, 0;"
            } else {
                "mov.u32 d0, 0; mov.u32 d1, 0; mov.u32 d2, 0;"
            };
            // Nearly all true, nearly all false, and mixed.
            let body = format!(
                ".reg .pred inside, most, few; .reg .b32 bit; {default} mov.u32 bit, %lanemask_eq; and.b32 bit, bit, {members:#x}; setp.ne.u32 inside, bit, 0;
                 setp.lt.u32 most, a1, 98; setp.ge.u32 few, a1, 98; @!inside bra SKIP; {opcode} d0, a0, {members:#x}; {opcode} d1, most, {members:#x}; {opcode} d2, !most, {members:#x}; SKIP:"
            );
            let ins = [PRED, (Class::B32, Domain::Below(100))];
            all.push(Case::group(&opcode, &body, &ins, &[out; 3], 32, move |a| {
                let mixed = vote(a.iter().map(|v| v[0] != 0).collect());
                let most = vote(a.iter().map(|v| v[1] < 98).collect());
                let few = vote(a.iter().map(|v| v[1] >= 98).collect());
                (0..32)
                    .map(|lane| {
                        if members >> lane & 1 != 0 { [mixed, most, few] } else { [0; 3] }
                            .map(Want::Bits)
                            .to_vec()
                    })
                    .collect()
            }));
        }
    }
    // The order of words that inline assembly often has.
    all.push(Case::group(
        "vote.ballot.sync.b32",
        "vote.ballot.sync.b32 d0, a0, -1;",
        &[PRED],
        &[Class::B32],
        32,
        |a| {
            let ballot = a.iter().enumerate().map(|(n, v)| (v[0] & 1) << n).sum();
            vec![vec![Want::Bits(ballot)]; 32]
        },
    ));
    // Which threads run together is not specified, but the thread itself does, and others don't.
    let body = ".reg .pred odd; .reg .b32 self; mov.u32 self, %lanemask_eq; and.b32 scratch, tid, 1; setp.ne.u32 odd, scratch, 0; mov.u32 d1, 0; activemask.b32 d0; @odd activemask.b32 d1;
        and.b32 d0, d0, self; setp.eq.u32 d2, d0, self; and.b32 self, d1, self; setp.ne.u32 d3, self, 0; and.b32 d1, d1, 0x55555555;";
    let outs = [Class::B32, Class::B32, Class::Pred, Class::Pred];
    all.push(Case::group("activemask.b32", body, &[], &outs, 32, |_| {
        (0..32u64).map(|lane| [1 << lane, 0, 1, lane & 1].map(Want::Bits).to_vec()).collect()
    }));
    let body = ".reg .b32 leader; elect.sync leader|d0, -1; mov.b32 d1, leader; mov.b32 d2, %laneid; setp.eq.u32 d3, leader, d2;";
    let outs = [Class::Pred, Class::B32, Class::B32, Class::Pred];
    all.push(
        Case::group("elect.sync", body, &[], &outs, 32, |_| {
            // Which lane is chosen is not specified; the software GPU takes the lowest.
            (0..32u64)
                .map(|lane| [u64::from(lane == 0), 0, lane, u64::from(lane == 0)].map(Want::Bits).to_vec())
                .collect()
        })
        .target("sm_90"),
    );
    all
}

fn matches() -> Vec<Case> {
    let mut all = Vec::new();
    for (bits, class) in [(32, Class::B32), (64, Class::B64)] {
        let opcode = format!("match.any.sync.b{bits}");
        let body = format!("{opcode} d0, a0, -1;");
        all.push(Case::group(&opcode, &body, &[(class, Domain::Below(6))], &[Class::B32], 32, |a| {
            a.iter()
                .map(|mine| {
                    vec![Want::Bits(
                        a.iter().enumerate().filter(|(_, v)| *v == mine).map(|(n, _)| 1 << n).sum(),
                    )]
                })
                .collect()
        }));
        let opcode = format!("match.all.sync.b{bits}");
        let body = format!(
            ".reg .b{bits} same, nearly; and.b{bits} same, a0, 0; {opcode} d0|d1, a0, -1; {opcode} d2|d3, same, -1;"
        );
        all.push(Case::group(&opcode, &body, &[(class, Domain::Below(6))], &[Class::B32, Class::Pred, Class::B32, Class::Pred], 32, |a| {
            let equal = a.iter().all(|v| v == &a[0]);
            vec![[if equal { mask(32) } else { 0 }, u64::from(equal), mask(32), 1].map(Want::Bits).to_vec(); 32]
        }));
    }
    for (op, types) in [
        ("add", &["u32", "s32"][..]),
        ("min", &["u32", "s32"]),
        ("max", &["u32", "s32"]),
        ("and", &["b32"]),
        ("or", &["b32"]),
        ("xor", &["b32"]),
    ] {
        for ty in types {
            for members in [u32::MAX, 0x5555_5555] {
                let opcode = format!("redux.sync.{op}.{ty}");
                let body = format!(
                    ".reg .pred inside; .reg .b32 bit; mov.u32 d0, 9; mov.u32 bit, %lanemask_eq; and.b32 bit, bit, {members:#x}; setp.ne.u32 inside, bit, 0; @inside {opcode} d0, a0, {members:#x};"
                );
                let is_signed = *ty == "s32";
                all.push(Case::group(&opcode, &body, &[INT], &[Class::B32], 32, move |a| {
                    let those = (0..32)
                        .filter(|n| members >> n & 1 != 0)
                        .map(|n| if is_signed { signed(a[n][0], 32) } else { i128::from(a[n][0]) });
                    let result = those.reduce(|x, y| match op {
                        "add" => x + y,
                        "min" => x.min(y),
                        "max" => x.max(y),
                        "and" => x & y,
                        "or" => x | y,
                        _ => x ^ y,
                    });
                    let result = result.unwrap_or(0) as u64 & mask(32);
                    (0..32)
                        .map(|lane| vec![Want::Bits(if members >> lane & 1 != 0 { result } else { 9 })])
                        .collect()
                }));
            }
        }
    }
    all
}

fn barriers() -> Vec<Case> {
    let mut all = Vec::new();
    // Each thread reads what another wrote before the barrier, several times over.
    let exchange = |wait: &str| {
        format!(
            ".shared .align 4 .b32 place[128]; .reg .b32 mine, other, base, rounds; .reg .pred more; mov.u32 base, place; mov.u32 d0, a0; mov.u32 rounds, 3;
             shl.b32 mine, tid, 2; add.u32 mine, mine, base; add.u32 other, tid, 37; and.b32 other, other, 127; shl.b32 other, other, 2; add.u32 other, other, base;
             AGAIN: st.shared.u32 [mine], d0; {wait} ld.shared.u32 d0, [other]; {wait} sub.u32 rounds, rounds, 1; setp.ne.u32 more, rounds, 0; @more bra AGAIN;"
        )
    };
    for (opcode, wait) in [
        ("bar.sync", "bar.sync 0;"),
        ("bar.sync", "bar.sync 3, 128;"),
        ("bar.sync", "mov.u32 scratch, 2; bar.sync scratch;"),
        ("barrier.sync", "barrier.sync 1;"),
        ("barrier.sync", "barrier.sync 1, 128;"),
        ("barrier.sync.aligned", "barrier.sync.aligned 0;"),
        ("bar.cta.sync", "bar.cta.sync 0;"),
        ("barrier.cta.sync", "barrier.cta.sync 0;"),
        ("barrier.cta.sync.aligned", "barrier.cta.sync.aligned 0;"),
    ] {
        all.push(Case::group(opcode, &exchange(wait), &[INT], &[Class::B32], 128, |a| {
            (0..128).map(|tid| vec![Want::Bits(a[(tid + 3 * 37) % 128][0])]).collect()
        }));
    }
    for (op, ty) in [("popc", "u32"), ("and", "pred"), ("or", "pred")] {
        let out = if ty == "u32" { Class::B32 } else { Class::Pred };
        for base in ["bar.red", "barrier.red", "barrier.cta.red"] {
            let opcode = format!("{base}.{op}.{ty}");
            let body = format!(
                ".reg .pred most; setp.lt.u32 most, a1, 99; {opcode} d0, 0, a0; {opcode} d1, 1, 128, most; {opcode} d2, 0, !most;"
            );
            all.push(Case::group(
                &opcode,
                &body,
                &[PRED, (Class::B32, Domain::Below(100))],
                &[out; 3],
                128,
                move |a| {
                    let reduce = |predicates: &dyn Fn(&Vec<u64>) -> bool| {
                        let count = a.iter().filter(|v| predicates(v)).count() as u64;
                        match op {
                            "popc" => count,
                            "and" => u64::from(count == 128),
                            _ => u64::from(count > 0),
                        }
                    };
                    let all = [reduce(&|v| v[0] != 0), reduce(&|v| v[1] < 99), reduce(&|v| v[1] >= 99)];
                    vec![all.map(Want::Bits).to_vec(); 128]
                },
            ));
        }
    }
    // Half of the block produces and goes on, the other half waits for it.
    for (opcode, wait) in [("bar.arrive", "bar.sync 1, 128;"), ("barrier.arrive", "barrier.sync 1, 128;")] {
        let body = format!(
            ".shared .align 4 .b32 place[64]; .reg .pred second; .reg .b32 at, base; mov.u32 base, place; and.b32 at, tid, 63; shl.b32 at, at, 2; add.u32 at, at, base;
             mov.u32 d0, 1; setp.ge.u32 second, tid, 64; @second bra WAIT; st.shared.u32 [at], a0; {opcode} 1, 128; bra OVER; WAIT: {wait} ld.shared.u32 d0, [at]; OVER:"
        );
        all.push(Case::group(opcode, &body, &[INT], &[Class::B32], 128, |a| {
            (0..128).map(|tid| vec![Want::Bits(if tid < 64 { 1 } else { a[tid - 64][0] })]).collect()
        }));
    }
    let body = ".shared .align 4 .b32 place[128]; .reg .b32 at, base; mov.u32 base, place; shl.b32 at, tid, 2; add.u32 at, at, base; st.shared.u32 [at], a0; bar.warp.sync 0xffffffff;
        xor.b32 at, tid, 31; shl.b32 at, at, 2; add.u32 at, at, base; ld.shared.u32 d0, [at];";
    all.push(Case::group("bar.warp.sync", body, &[INT], &[Class::B32], 32, |a| {
        (0..32).map(|lane| vec![Want::Bits(a[lane ^ 31][0])]).collect()
    }));
    all
}
