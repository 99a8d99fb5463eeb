//! Kernels as the compiler would make them, cut by cut.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::helpers;
use super::Spec;
use crate::abi::{Block, CutKind, Hold, ReduceOp, STOP_EXIT, ShuffleMode, TRAP_ASSERT, Thread, VoteMode};

/// Runs a row of threads; `piece` runs one to its next stop and returns why it stops.
unsafe fn each(
    threads: *mut Thread,
    count: u32,
    block: *mut Block,
    piece: unsafe fn(&mut Thread, &mut Block) -> u32,
) {
    for i in 0..count as usize {
        // SAFETY: as `RunFn` promises.
        unsafe {
            let thread = threads.add(i);
            (*block).cursor = thread;
            (*thread).stop = piece(&mut *thread, &mut *block);
            if (*thread).stop >= crate::abi::STOP_TRAP {
                return;
            }
        }
    }
}

macro_rules! kernel {
    ($name:ident, [$($cut:expr),*], |$thread:ident, $block:ident| $body:expr) => {
        #[allow(non_upper_case_globals)]
        pub(super) const $name: Spec = {
            #[allow(unused_unsafe)]
            unsafe fn piece($thread: &mut Thread, $block: &mut Block) -> u32 {
                // SAFETY: the tests pass addresses that suit the kernel, or want a fault.
                unsafe { $body }
            }
            unsafe extern "C" fn run(threads: *mut Thread, count: u32, block: *mut Block) {
                // SAFETY: as `RunFn` promises.
                unsafe { each(threads, count, block, piece) }
            }
            Spec { name: stringify!($name), run, cuts: &[$($cut),*] }
        };
    };
}

unsafe fn arg(block: &Block, index: usize) -> u64 {
    // SAFETY: there are eight of them.
    unsafe { *(block.params as *const u64).add(index) }
}

fn global_id(thread: &Thread, block: &Block) -> u64 {
    u64::from(block.ctaid[0]) * u64::from(block.ntid[0]) + u64::from(thread.tid[0])
}

unsafe fn poke(base: u64, index: u64, value: u32) {
    // SAFETY: the caller's concern.
    unsafe { ((base + index * 4) as *mut u32).write_volatile(value) };
}

unsafe fn peek(base: u64, index: u64) -> u32 {
    // SAFETY: the caller's concern.
    unsafe { ((base + index * 4) as *const u32).read_volatile() }
}

unsafe fn atomic<'a>(addr: u64) -> &'a AtomicU32 {
    // SAFETY: the caller's concern.
    unsafe { AtomicU32::from_ptr(addr as *mut u32) }
}

kernel!(empty, [], |_thread, _block| STOP_EXIT);

// out[i] = i + arg1
kernel!(number, [], |thread, block| {
    let i = global_id(thread, block);
    poke(arg(block, 0), i, i as u32 + arg(block, 1) as u32);
    STOP_EXIT
});

// Counts in a cache line of each block's own, until arg1 is no longer 0.
kernel!(endless, [], |_thread, block| {
    let place = (arg(block, 0) + u64::from(block.ctaid[0]) * 64) as *mut u64;
    while peek(arg(block, 1), 0) == 0 {
        place.write_volatile(place.read_volatile() + 1);
    }
    STOP_EXIT
});

// data[i] = data[i] * 2 + 1
kernel!(step, [], |thread, block| {
    let (base, i) = (arg(block, 0), global_id(thread, block));
    poke(base, i, peek(base, i).wrapping_mul(2).wrapping_add(1));
    STOP_EXIT
});

// out[block] = packed coordinates of the thread that arg1 names
kernel!(coordinates, [], |thread, block| {
    let b = block.ctaid;
    let index = (b[2] * block.nctaid[1] + b[1]) * block.nctaid[0] + b[0];
    let t = thread.tid;
    poke(
        arg(block, 0),
        u64::from(index * 8 + (t[2] * 2 + t[1]) * 2 + t[0]),
        b[0] | b[1] << 4 | b[2] << 8 | t[0] << 12 | t[1] << 16 | t[2] << 20 | thread.lane << 24,
    );
    STOP_EXIT
});

kernel!(assertion, [], |thread, block| {
    if global_id(thread, block) == 5 { TRAP_ASSERT } else { STOP_EXIT }
});

// Reverses a block of words through shared memory; threads from arg1 on exit before the barrier.
kernel!(reverse, [(CutKind::Barrier, false, 10)], |thread, block| {
    let (base, i, n) = (arg(block, 0), u64::from(thread.tid[0]), arg(block, 1));
    if thread.resume == 0 {
        if i >= n {
            return STOP_EXIT;
        }
        let start = u64::from(block.ctaid[0]) * n;
        poke(block.shared_base, i, peek(base, start + i));
        thread.op = [0; 6];
        thread.resume = 1;
        return 1;
    }
    let start = u64::from(block.ctaid[0]) * n;
    poke(base, start + i, peek(block.shared_base, n - 1 - i));
    STOP_EXIT
});

// Threads of even number wait at barrier 0, the others at barrier 1: for ever.
kernel!(deadlock, [(CutKind::Barrier, false, 21), (CutKind::Barrier, false, 22)], |thread, _block| {
    if thread.resume == 1 {
        return STOP_EXIT;
    }
    thread.resume = 1;
    thread.op = [u64::from(thread.tid[0] % 2), 0, 0, 0, 0, 0];
    1 + thread.tid[0] % 2
});

// How many threads have a tid divisible by 3, found by bar.red.popc; a second warp-sized group uses a
// counted barrier of its own.
kernel!(
    count_threes,
    [(CutKind::BarrierReduce(ReduceOp::Popc), false, 31), (CutKind::Barrier, false, 32)],
    |thread, block| {
        let i = thread.tid[0];
        match thread.resume {
            0 => {
                thread.resume = 1;
                thread.op = [0, 0, u64::from(i.is_multiple_of(3)), 0, 0, 0];
                1
            }
            1 => {
                poke(arg(block, 0), u64::from(i), thread.op[0] as u32);
                thread.resume = 2;
                thread.op = [1 + u64::from(i / 32), 32, 0, 0, 0, 0];
                2
            }
            _ => STOP_EXIT,
        }
    }
);

// Producer warps arrive, the consumer warp waits.
kernel!(arrive, [(CutKind::BarrierArrive, false, 41), (CutKind::Barrier, false, 42)], |thread, block| {
    let i = u64::from(thread.tid[0]);
    if thread.resume == 0 {
        thread.resume = 1;
        thread.op = [3, 64, 0, 0, 0, 0];
        if i >= 32 {
            poke(block.shared_base, i - 32, i as u32 * 10);
            return 1;
        }
        return 2;
    }
    if i < 32 {
        poke(arg(block, 0), i, peek(block.shared_base, i));
    }
    STOP_EXIT
});

// The halves of a warp shuffle on their own, at different places; then all take part in a sum.
kernel!(
    divergent,
    [
        (CutKind::Shuffle(ShuffleMode::Down), false, 51),
        (CutKind::Shuffle(ShuffleMode::Index), false, 52),
        (CutKind::Redux(ReduceOp::Add), false, 53),
        (CutKind::ActiveMask, false, 54)
    ],
    |thread, block| {
        let (i, lane) = (u64::from(thread.tid[0]), thread.lane);
        match thread.resume {
            0 => {
                thread.resume = 1;
                if lane < 16 {
                    thread.op = [i, 1, 31, 0xffff, 0, 0];
                    1
                } else {
                    thread.op = [i, 20, 31, 0xffff_0000, 0, 0];
                    2
                }
            }
            1 => {
                poke(arg(block, 0), i, thread.op[0] as u32);
                thread.resume = 2;
                thread.op = [1, 0, 0, 0xffff_ffff, 0, 0];
                3
            }
            2 => {
                poke(arg(block, 1), i, thread.op[0] as u32);
                if lane % 2 == 0 {
                    return STOP_EXIT;
                }
                thread.resume = 3;
                4
            }
            _ => {
                poke(arg(block, 1), i, peek(arg(block, 1), i) | thread.op[0] as u32);
                STOP_EXIT
            }
        }
    }
);

// A ballot whose mask names lanes that have ended already.
kernel!(ballot, [(CutKind::Vote(VoteMode::Ballot), false, 61)], |thread, block| {
    if thread.resume == 0 {
        if thread.lane >= 20 {
            return STOP_EXIT;
        }
        thread.resume = 1;
        thread.op = [u64::from(thread.lane % 2), 0, 0, 0xffff_ffff, 0, 0];
        return 1;
    }
    poke(arg(block, 0), u64::from(thread.tid[0]), thread.op[0] as u32);
    STOP_EXIT
});

// Every block counts itself, then spins until arg1 blocks have; a barrier of the grid made by hand.
kernel!(grid_barrier, [(CutKind::Yield, false, 71)], |thread, block| {
    let counter = atomic(arg(block, 0));
    if thread.resume == 0 {
        thread.resume = 1;
        counter.fetch_add(1, Ordering::SeqCst);
    }
    if counter.load(Ordering::SeqCst) < arg(block, 1) as u32 { 1 } else { STOP_EXIT }
});

// Each block waits for the block before it, then adds its own.
kernel!(look_back, [(CutKind::Yield, false, 81)], |thread, block| {
    let mine = u64::from(block.ctaid[0]);
    if mine > 0 {
        let before = atomic(arg(block, 0) + (mine - 1) * 4).load(Ordering::SeqCst);
        if before == 0 {
            thread.resume = 1;
            return 1;
        }
        atomic(arg(block, 0) + mine * 4).store(before + 1, Ordering::SeqCst);
    } else {
        atomic(arg(block, 0)).store(1, Ordering::SeqCst);
    }
    STOP_EXIT
});

// Each block whose number is a multiple of arg2 lets all others go first. Each then writes at arg1 how many it has found counted at arg0, and counts itself.
kernel!(let_go_first, [(CutKind::GridYield(Hold::ToTheEnd), false, 85)], |thread, block| {
    let mine = u64::from(block.ctaid[0]);
    if thread.resume == 0 && mine % arg(block, 2) == 0 {
        thread.resume = 1;
        return 1;
    }
    let before = atomic(arg(block, 0)).fetch_add(1, Ordering::SeqCst);
    poke(arg(block, 1), mine, before);
    STOP_EXIT
});

// arg1 barriers of the grid, one after the other: at each a block lets others have a turn, counts itself at arg0, and spins until just all have.
kernel!(
    exact_barriers,
    [(CutKind::GridYield(Hold::ForATurn), false, 86), (CutKind::Yield, false, 87)],
    |thread, block| {
        let counter = atomic(arg(block, 0));
        let blocks = block.nctaid[0];
        // How many barriers it has passed.
        let passed = &mut thread.op[4];
        match thread.resume {
            0 => *passed = 0,
            1 => _ = counter.fetch_add(1, Ordering::SeqCst),
            _ => {}
        }
        if thread.resume > 0 {
            if counter.load(Ordering::SeqCst) != (*passed as u32 + 1) * blocks {
                thread.resume = 2;
                return 2;
            }
            *passed += 1;
            if *passed == arg(block, 1) {
                return STOP_EXIT;
            }
        }
        thread.resume = 1;
        1
    }
);

// Spins until the word at arg0 is arg1, then writes arg3 to arg2.
kernel!(wait_for, [(CutKind::Yield, false, 91)], |_thread, block| {
    if atomic(arg(block, 0)).load(Ordering::SeqCst) != arg(block, 1) as u32 {
        return 1;
    }
    if arg(block, 2) != 0 {
        poke(arg(block, 2), 0, arg(block, 3) as u32);
    }
    STOP_EXIT
});

// printf(arg0, arg1) in block order of one block.
kernel!(print, [], |_thread, block| {
    let vprintf: extern "C" fn(*mut Block, u64, u64) -> i32 =
        std::mem::transmute(helpers::addresses().vprintf);
    let result = vprintf(block, arg(block, 0), arg(block, 1));
    poke(arg(block, 2), 0, result as u32);
    STOP_EXIT
});

// out[i] = malloc'd, written, read back, freed
kernel!(allocate, [], |thread, block| {
    let malloc: extern "C" fn(*mut Block, u64) -> u64 = std::mem::transmute(helpers::addresses().malloc);
    let free: extern "C" fn(*mut Block, u64) = std::mem::transmute(helpers::addresses().free);
    let i = global_id(thread, block);
    let at = malloc(block, 100);
    poke(at, 0, i as u32);
    poke(arg(block, 0), i, peek(at, 0) + u32::from(at != 0));
    free(block, at);
    STOP_EXIT
});
