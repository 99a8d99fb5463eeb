//! Clusters of blocks: addresses of each other's shared memory, their barrier, and operations that tell another block's barrier.

use super::case::{Case, Class, Want};
use super::values::Domain;

/// Threads of a block.
const BLOCK: usize = 128;
const B32: (Class, Domain) = (Class::B32, Domain::Int(32));

pub(crate) fn cases() -> Vec<Case> {
    vec![addresses(2), addresses(4), places(), told(), sent_to_several(), divergent()]
}

fn bits(values: impl IntoIterator<Item = u64>) -> Vec<Want> {
    values.into_iter().map(Want::Bits).collect()
}

/// Each thread reaches the words of the thread of its number in the next block.
fn addresses(blocks: usize) -> Case {
    let body = ".reg .b32 rank, count, next, at, far; .reg .b64 own, wide, g, h; .reg .pred p;
        mov.u32 rank, %cluster_ctarank; mov.u32 count, %cluster_nctarank; add.u32 next, rank, 1; rem.u32 next, next, count;
        mov.u32 at, words; mad.lo.u32 at, tid, 4, at; mapa.shared::cluster.u32 far, at, next;
        st.shared::cluster.u32 [far], a0;
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
        ld.shared.u32 d0, [at]; ld.shared::cluster.u32 d1, [far]; getctarank.shared::cluster.u32 d2, far; sub.u32 d2, d2, next;
        barrier.cluster.arrive.relaxed; barrier.cluster.wait;
        atom.shared::cluster.add.u32 d3, [far], 5; red.relaxed.cluster.shared::cluster.xor.b32 [far], 7;
        barrier.cluster.arrive; barrier.cluster.wait.acquire;
        cvt.u64.u32 wide, far; cvta.shared::cluster.u64 g, wide; ld.u32 d4, [g];
        cvt.u64.u32 wide, at; cvta.shared.u64 own, wide; mapa.u64 h, own, next; ld.relaxed.cluster.u32 d5, [h]; sub.u64 h, g, h; cvt.u32.u64 d6, h;
        getctarank.u64 d7, g; sub.u32 d7, d7, next; isspacep.shared::cluster d8, g; isspacep.shared::cta d9, g; isspacep.shared::cta d10, own;
        cvta.to.shared::cluster.u64 wide, g; cvt.u32.u64 d11, wide; sub.u32 d11, d11, far; isspacep.global d12, g;
        mapa.shared::cluster.u32 far, words+4, rank; ld.shared::cluster.u32 d13, [far]; ld.shared.u32 at, [words+4]; sub.u32 d13, d13, at;
        barrier.cluster.arrive.release; barrier.cluster.wait.acquire;";
    let (word, flag) = (Class::B32, Class::Pred);
    let outs = [word, word, word, word, word, word, word, word, flag, flag, flag, word, flag, word];
    let mut case =
        Case::group("mapa.shared::cluster.u32", body, &[B32], &outs, (blocks * BLOCK) as u32, move |all| {
            let value = |i: usize| all[i][0];
            let one = |i: usize| {
                let before = (i + (blocks - 1) * BLOCK) % (blocks * BLOCK);
                let after = (value(i) + 5 & 0xFFFF_FFFF) ^ 7;
                bits([value(before), value(i), 0, value(i), after, after, 0, 0, 1, 0, 1, 0, 0, 0])
            };
            (0..all.len()).map(one).collect()
        })
        .with(".shared .align 4 .b32 words[128];")
        .in_clusters(blocks as u32);
    for opcode in [
        "mapa.u64",
        "getctarank.shared::cluster.u32",
        "getctarank.u64",
        "st.shared::cluster.u32",
        "ld.shared::cluster.u32",
        "ld.relaxed.cluster.u32",
        "atom.shared::cluster.add.u32",
        "red.relaxed.cluster.shared::cluster.xor.b32",
        "barrier.cluster.arrive.release.aligned",
        "barrier.cluster.wait.acquire.aligned",
        "barrier.cluster.arrive.relaxed",
        "barrier.cluster.arrive.release",
        "barrier.cluster.arrive",
        "barrier.cluster.wait",
        "barrier.cluster.wait.acquire",
        "cvta.shared::cluster.u64",
        "cvta.to.shared::cluster.u64",
        "isspacep.shared::cluster",
        "isspacep.shared::cta",
    ] {
        case = case.and(opcode);
    }
    case
}

/// What special registers say: how they belong together, whatever the block.
fn places() -> Case {
    let body = ".reg .b32 x, y, n; .reg .pred p;
        mov.u32 x, %clusterid.x; mov.u32 y, %cluster_ctaid.x; mov.u32 n, %cluster_nctaid.x; mad.lo.u32 x, x, n, y; mov.u32 y, %ctaid.x; sub.u32 d0, x, y;
        mov.u32 x, %nclusterid.x; mul.lo.u32 x, x, n; mov.u32 y, %nctaid.x; sub.u32 d1, x, y;
        mov.u32 x, %cluster_ctarank; mov.u32 y, %cluster_ctaid.x; sub.u32 d2, x, y; mov.u32 d3, %cluster_nctarank;
        mov.pred p, %is_explicit_cluster; selp.u32 d4, 1, 0, p;
        mov.u32 x, %cluster_ctaid.y; mov.u32 y, %cluster_ctaid.z; add.u32 d5, x, y; mov.u32 x, %clusterid.y; mov.u32 y, %clusterid.z; add.u32 d5, d5, x; add.u32 d5, d5, y;
        mov.u32 x, %cluster_nctaid.y; mov.u32 y, %cluster_nctaid.z; mul.lo.u32 d6, x, y; mov.u32 x, %nclusterid.y; mov.u32 y, %nclusterid.z; mad.lo.u32 d6, x, y, d6;";
    Case::group("mov.pred", body, &[B32], &[Class::B32; 7], 4 * BLOCK as u32, |all| {
        all.iter().map(|_| bits([0, 0, 0, 4, 1, 0, 2])).collect()
    })
    .in_clusters(4)
}

/// Each thread has a barrier, on which the thread of its number in the other block arrives, and a box, which that fills.
fn told() -> Case {
    let body = ".reg .b32 other, at, box, source, far, there, from; .reg .pred p;
        mov.u32 other, %cluster_ctarank; xor.b32 other, other, 1;
        mov.u32 at, objects; mad.lo.u32 at, tid, 8, at; mov.u32 box, boxes; mad.lo.u32 box, tid, 48, box; mov.u32 source, sources; mad.lo.u32 source, tid, 16, source;
        mapa.shared::cluster.u32 far, at, other; mapa.shared::cluster.u32 there, box, other;
        mbarrier.init.shared::cta.b64 [at], 2; mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [at], 36;
        st.shared.v4.u32 [box], {1, 1, 1, 1}; not.b32 from, a0; st.shared.v2.u32 [source], {a0, from}; st.shared.v2.u32 [source+8], {from, a0};
        fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [there], a0, [far];
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [there+4+4], {a0, from}, [far];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [there+4], a0, [far];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 [there+4], 0x7fffffff, [far];
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there+16], [source], 16, [far];
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [far];
        barrier.cluster.arrive; barrier.cluster.wait;
        mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 d0, [at], 0; mbarrier.test_wait.parity.shared::cta.b64 d1, [at], 1;
        ld.shared.u32 d2, [box]; ld.shared.u32 d3, [box+4]; ld.shared.v2.u32 {d4, d5}, [box+8]; ld.shared.u32 d6, [box+16]; ld.shared.u32 d7, [box+20];
        ld.shared.u32 d8, [box+28];";
    let mut outs = vec![Class::Pred; 2];
    outs.resize(9, Class::B32);
    let mut case = Case::group(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32",
        body,
        &[B32],
        &outs,
        2 * BLOCK as u32,
        |all| {
            let one = |i: usize| {
                let given = all[i ^ BLOCK][0];
                let (not, sum) = (!given & 0xFFFF_FFFF, given + 1 & 0xFFFF_FFFF);
                bits([1, 0, given, sum, given, not, given, not, given])
            };
            (0..all.len()).map(one).collect()
        },
    )
    .with(".shared .align 8 .b64 objects[128]; .shared .align 16 .b8 boxes[6144]; .shared .align 16 .b8 sources[2048];")
    .in_clusters(2);
    for opcode in [
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes",
        "mbarrier.arrive.release.cluster.shared::cluster.b64",
        "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64",
        "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64",
    ] {
        case = case.and(opcode);
    }
    case
}

/// Each thread has a barrier and a box. The threads of a number send their inputs to those of this number in some of the blocks:
/// the sender's block is told by the number, and so are the receivers'.
fn sent_to_several() -> Case {
    const OPCODE: &str =
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster";
    const BLOCKS: usize = 4;
    let body = format!(
        ".reg .b32 rank, at, box, sender; .reg .b16 mask; .reg .b64 from; .reg .pred sends, p;
        mov.u32 rank, %cluster_ctarank; mov.u32 at, objects; mad.lo.u32 at, tid, 8, at; mov.u32 box, boxes; mad.lo.u32 box, tid, 16, box;
        mbarrier.init.shared::cta.b64 [at], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [at], 16; st.shared.v2.u64 [box], {{1, 1}};
        mov.u64 from, given; mad.wide.u32 from, gid, 16, from; st.global.v2.u64 [from], {{a0, a1}};
        fence.mbarrier_init.release.cluster; fence.proxy.async; barrier.cluster.arrive; barrier.cluster.wait;
        and.b32 sender, tid, 3; setp.eq.u32 sends, sender, rank; shr.u32 sender, tid, 2; and.b32 sender, sender, 15; cvt.u16.u32 mask, sender;
        @sends {OPCODE} [box], [from], 16, [at], mask;
        barrier.cluster.arrive; barrier.cluster.wait;
        mbarrier.test_wait.parity.shared::cta.b64 d0, [at], 0; ld.shared.v2.u64 {{d1, d2}}, [box];"
    );
    let outs = [Class::Pred, Class::B64, Class::B64];
    let ins = [(Class::B64, Domain::Int(64)); 2];
    Case::group(OPCODE, &body, &ins, &outs, (BLOCKS * BLOCK) as u32, |all| {
        let one = |i: usize| {
            let (rank, number) = (i / BLOCK, i % BLOCK);
            let there = number >> 2 >> rank & 1 == 1;
            let sent = &all[number % BLOCKS * BLOCK + number];
            bits(if there { [1, sent[0], sent[1]] } else { [0, 1, 1] })
        };
        (0..all.len()).map(one).collect()
    })
    .with(
        ".shared .align 8 .b64 objects[128]; .shared .align 16 .b8 boxes[2048]; .global .align 16 .b8 given[65536];",
    )
    .in_clusters(BLOCKS as u32)
}

/// Threads that arrive in loops of different lengths, do something else before they wait, or end early: those count as there.
fn divergent() -> Case {
    let body = ".reg .b32 rank, other, at, far, i, n, v; .reg .pred more, odd;
        mov.u32 d0, 0; and.b32 i, tid, 63; setp.eq.u32 odd, i, 63; @odd bra DONE_EARLY;
        mov.u32 rank, %cluster_ctarank; xor.b32 other, rank, 1; mov.u32 at, words; mad.lo.u32 at, tid, 4, at; mapa.shared::cluster.u32 far, at, other;
        mov.u32 v, a0; mov.u32 i, 0;
        ROUND: st.shared::cluster.u32 [far], v; barrier.cluster.arrive; and.b32 n, tid, 3;
        SPIN: setp.eq.u32 more, n, 0; @more bra WAIT; sub.u32 n, n, 1; bra SPIN;
        WAIT: barrier.cluster.wait; ld.shared.u32 v, [at]; add.u32 v, v, 1; barrier.cluster.arrive; barrier.cluster.wait;
        add.u32 i, i, 1; setp.lt.u32 more, i, 3; @more bra ROUND; mov.u32 d0, v;
        DONE_EARLY:";
    Case::group("barrier.cluster.wait", body, &[B32], &[Class::B32], 2 * BLOCK as u32, |all| {
        let one = |i: usize| {
            let ended = i % 64 == 63;
            bits([if ended { 0 } else { all[i ^ BLOCK][0] + 3 & 0xFFFF_FFFF }])
        };
        (0..all.len()).map(one).collect()
    })
    .with(".shared .align 4 .b32 words[128];")
    .in_clusters(2)
}
