//! Warps whose lanes exchange values through memory and count on going abreast, as a device's do. The kernels are those of
//! `abreast.cu`; each result is computed here step by step, all lanes at a time. Where `RGPU_TEST_DRIVER` names the driver of a real GPU,
//! that GPU runs the kernels, which shows whether its lanes do go so.

use rgpu_conformance::hardware::{Hardware, Shape};
use rgpu_device::{Device, Launch, ModuleInfo};

use super::{LEGACY, Rig};

const PTX: &str = include_str!("abreast.ptx");
/// The same source as a compiler translates it that optimizes nothing: functions are called, and get pointers that may lead anywhere.
const UNOPTIMIZED: &str = include_str!("abreast_unoptimized.ptx");
/// The variable by which a process of tests is told to take that.
const VARIABLE: &str = "ABREAST_UNOPTIMIZED";
const MODULE: u64 = 8;

/// Bytes from one array to the next.
const APART: u64 = 64 << 10;

struct Warps {
    rig: Rig,
    module: ModuleInfo,
    ptx: &'static str,
    hardware: Option<Hardware>,
}

impl Warps {
    fn new() -> Self {
        let rig = Rig::new();
        let ptx = if std::env::var_os(VARIABLE).is_some() { UNOPTIMIZED } else { PTX };
        let module = rig.gpu.module_load(0, MODULE, ptx.as_bytes(), &[]).unwrap();
        Self { rig, module, ptx, hardware: Hardware::asked() }
    }

    fn is_unoptimized_on_hardware(&self) -> bool {
        self.hardware.is_some() && self.ptx == UNOPTIMIZED
    }

    /// Addresses of three arrays, which lie far apart.
    fn array(&self, index: u64) -> u64 {
        self.hardware.as_ref().map_or(self.rig.memory, Hardware::memory) + index * APART
    }

    /// Writes to the array of that number.
    fn write(&self, index: u64, data: &[i32]) {
        let Some(gpu) = &self.hardware else { return self.rig.write(self.array(index), data) };
        let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        gpu.write((index * APART) as usize, &bytes).unwrap();
    }

    /// Reads that array.
    fn read(&self, index: u64, count: usize) -> Vec<i32> {
        let Some(gpu) = &self.hardware else { return self.rig.read(self.array(index), count) };
        let mut bytes = vec![0; count * 4];
        gpu.read((index * APART) as usize, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    /// Runs a kernel over `data`, with so many threads to a block, and gives back what becomes of it. `more` are the parameters
    /// behind the array's address.
    fn run(&self, name: &str, data: &[i32], block: u32, threads: u32, more: &[u64], last: i32) -> Vec<i32> {
        self.write(0, data);
        let mut params = self.array(0).to_le_bytes().to_vec();
        more.iter().for_each(|addr| params.extend(addr.to_le_bytes()));
        params.extend(last.to_le_bytes());
        let (grid, block, shared) = ([threads / block, 1, 1], [block, 1, 1], 128);
        let function = self.module.functions.iter().position(|f| f.name == name).unwrap();
        if let Some(gpu) = &self.hardware {
            // A driver refuses more than the kernel takes.
            params.truncate(self.module.functions[function].param_bytes() as usize);
            let kernel = gpu.load(self.ptx, name).unwrap();
            gpu.launch(&kernel, Shape { grid, block, shared }, &params).unwrap();
            return self.read(0, data.len());
        }
        let launch = Launch {
            stream: LEGACY,
            module: MODULE,
            function: function as u32,
            grid,
            block,
            shared_bytes: shared,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        };
        self.rig.gpu.launch(launch).unwrap();
        self.rig.sync().unwrap();
        self.read(0, data.len())
    }
}

/// So many numbers without much order.
fn numbers(count: usize) -> Vec<i32> {
    (0..count as i64).map(|i| ((i * 7919 + 13) % 1009 - 300) as i32).collect()
}

/// Applies a function to each warp's part of the data.
fn by_warp(data: &[i32], width: usize, f: impl Fn(&mut [i32])) -> Vec<i32> {
    let mut data = data.to_vec();
    data.chunks_mut(width).for_each(f);
    data
}

fn sums(warp: &mut [i32]) {
    for lane in 1..warp.len() {
        warp[lane] += warp[lane - 1];
    }
}

#[test]
fn trees_and_butterflies_sum_a_warp() {
    let warps = Warps::new();
    for (block, threads) in [(32, 32), (64, 256), (256, 512)] {
        let data = numbers(threads as usize);
        let expected = by_warp(&data, 32, |warp| warp.fill(warp.iter().sum()));
        assert_eq!(warps.run("tree", &data, block, threads, &[], 16), expected, "tree, {block}");
        assert_eq!(warps.run("butterfly", &data, block, threads, &[], 16), expected, "butterfly, {block}");
    }
    let data = numbers(32);
    // Of the tree that has no end all lanes add, of what lies behind the warp, too; the first lane's sum is right.
    assert_eq!(warps.run("volatile_tree", &data, 32, 32, &[], 0)[0], data.iter().sum::<i32>());
}

#[test]
fn sums_of_all_before_go_through_global_memory() {
    let warps = Warps::new();
    for (block, threads) in [(32, 32), (96, 192)] {
        let data = numbers(threads as usize);
        assert_eq!(warps.run("scan", &data, block, threads, &[], 32), by_warp(&data, 32, sums), "{block}");
    }
}

#[test]
fn a_fence_between_two_steps_has_nobody_wait() {
    let warps = Warps::new();
    let data = numbers(128);
    let expected = by_warp(&data, 32, |warp| {
        let sum = warp.iter().sum::<i32>();
        sums(warp);
        warp.rotate_right(1);
        warp[0] = 0;
        warp.iter_mut().for_each(|before| *before += 7 * sum);
    });
    assert_eq!(warps.run("fenced", &data, 32, 128, &[], 7), expected);
}

#[test]
fn all_lanes_have_stored_before_one_of_them_changes_what_is_there() {
    let warps = Warps::new();
    let data = numbers(128);
    // The array is cleared turn by turn, and then a place is counted up or set by each lane, or by the first one.
    let place = |value: i32| value.rem_euclid(97) as usize;
    let expected = by_warp(&data, 32, |warp| {
        let counts: Vec<i32> =
            warp.iter().map(|v| warp.iter().filter(|w| place(**w) == place(*v)).count() as i32).collect();
        warp.copy_from_slice(&counts);
    });
    assert_eq!(warps.run("hashed", &data, 32, 128, &[warps.array(1)], 97), expected);
    for last in [0, 31, 32, 96] {
        assert_eq!(warps.run("cleared", &data, 32, 128, &[warps.array(1)], last), vec![1; 128], "{last}");
    }
    // One lane takes away a bit that another has stored.
    let expected: Vec<i32> = by_warp(&data, 32, |warp| warp.fill(warp.iter().rev().nth(1).unwrap() & 0xffff));
    assert_eq!(warps.run("released", &data, 32, 128, &[warps.array(1)], 0xffff), expected);
}

#[test]
fn all_lanes_have_looked_at_a_number_before_one_raises_it() {
    let warps = Warps::new();
    let data = numbers(128);
    let expected = by_warp(&data, 32, |warp| {
        let mut count = 0;
        for round in 0..9 {
            let before = count;
            count = if before >= 40 { 0 } else { before };
            count += warp.iter().filter(|v| (**v + round) % 3 == 0).count() as i32;
        }
        warp.fill(count);
    });
    assert_eq!(warps.run("raised", &data, 32, 128, &[], 9), expected);
}

#[test]
fn all_lanes_of_a_warp_have_read_its_element_before_one_writes_there() {
    let warps = Warps::new();
    let data = numbers(128);
    for block in [32, 64, 128] {
        let sum = (0..5).map(|round| 100 + round).sum();
        assert_eq!(warps.run("led", &data, block, 128, &[], 5), vec![sum; 128], "{block}");
    }
}

#[test]
fn lanes_that_gather_in_a_loop_are_of_one_round() {
    let warps = Warps::new();
    let data = numbers(128);
    for rounds in [1, 5, 20] {
        let expected = by_warp(&data, 32, |warp| {
            let before = warp.to_vec();
            for (own, sum) in before.iter().zip(warp) {
                let is_set = |value: &i32, round: i32| value >> round & 1 != 0;
                *sum = (0..rounds).fold(0i32, |sum, round| {
                    let there = before.iter().filter(|value| is_set(value, round)).count() as i32;
                    sum.wrapping_add(if is_set(own, round) { there << (round % 8) } else { own % 7 })
                });
            }
        });
        assert_eq!(warps.run("gathered", &data, 64, 128, &[], rounds), expected, "{rounds}");
    }
}

#[test]
fn no_warp_clears_what_another_has_found_out() {
    let warps = Warps::new();
    for (block, rounds) in [(64, 17), (128, 30)] {
        let data = numbers(256);
        let expected: Vec<i32> = data
            .chunks(block)
            .flat_map(|block| {
                let of_round =
                    |round: i32| block.chunks(32).map(move |warp| warp.iter().map(|v| v + round).sum());
                let mut found: Vec<i32> = (0..rounds).flat_map(of_round).collect();
                found.resize(block.len(), -1);
                found
            })
            .collect();
        assert_eq!(warps.run("wiped", &data, block as u32, 256, &[], rounds), expected, "{block}");
    }
}

#[test]
fn no_warp_begins_a_window_whose_neighbour_still_reads_the_last_one() {
    let warps = Warps::new();
    for (block, count) in [(64, 3), (128, 5)] {
        let data = numbers(2 * block * count);
        let mut expected = data.clone();
        for part in expected.chunks_mut(block * count) {
            let mut before = 0;
            for window in part.chunks_mut(block) {
                let mut sum = 0;
                window.iter_mut().for_each(|v| sum += std::mem::replace(v, before + sum));
                before += sum & 0xff;
            }
        }
        let threads = 2 * block as u32;
        assert_eq!(
            warps.run("windows", &data, block as u32, threads, &[], count as i32),
            expected,
            "{block}"
        );
    }
}

#[test]
fn one_lane_takes_a_row_before_the_others_begin_the_next_one() {
    let warps = Warps::new();
    for (block, rows) in [(32, 6), (64, 3), (256, 12)] {
        let data = numbers(256);
        let expected = by_warp(&data, 32, |warp| {
            let whole: i32 = warp.iter().sum();
            let sums = (0..rows).fold(0i32, |sum, row| sum.wrapping_mul(3).wrapping_add(whole + 32 * row));
            warp.fill(0);
            warp[0] = sums;
        });
        assert_eq!(warps.run("taken", &data, block, 256, &[], rows), expected, "{block}");
    }
}

#[test]
fn all_lanes_have_stored_where_data_lead_before_one_changes_its_element() {
    let warps = Warps::new();
    let table: Vec<i32> = (0..32).map(|lane| (lane * 7 + 3) % 32).collect();
    warps.write(1, &table);
    for (block, rounds) in [(32, 1), (64, 5), (128, 9)] {
        let data = numbers(128);
        let expected = by_warp(&data, 32, |warp| {
            for round in 0..rounds {
                let before = warp.to_vec();
                for (lane, &to) in table.iter().enumerate() {
                    warp[to as usize] = before[lane ^ 1].wrapping_mul(5).wrapping_add(round);
                }
                warp.iter_mut().for_each(|v| *v ^= round);
            }
        });
        assert_eq!(warps.run("scattered", &data, block, 128, &[warps.array(1)], rounds), expected, "{block}");
    }
}

#[test]
fn lanes_that_walk_a_tree_together_stay_together() {
    let warps = Warps::new();
    // Eight branches of eight leaves.
    let (leaves, all) = (9, 73);
    let children: Vec<i32> = (0..all * 8).map(|child| if child + 1 < all { child + 1 } else { -1 }).collect();
    warps.write(1, &children);
    let data = numbers(128);
    let expected = by_warp(&data, 32, |warp| {
        let is_whole = |child: i32| warp.iter().all(|own| own & 31 > child);
        let of = |child: i32| if is_whole(child) { child } else { (8 * child + 1..8 * child + 9).sum() };
        let sum = (1..9).map(of).sum();
        warp.fill(sum);
    });
    for block in [32, 64, 128] {
        let result = warps.run("walked", &data, block, 128, &[warps.array(1)], leaves);
        assert_eq!(result, expected, "{block}");
    }
}

#[test]
fn all_lanes_take_from_a_stack_what_one_has_put_there() {
    let warps = Warps::new();
    // A tree: the left child of each node, beside which the right one lies, or none.
    let mut next = 4;
    let child = |node: i32| {
        let has = next + 1 < 200 && (node < 40 || node % 3 != 0);
        next += if has { 2 } else { 0 };
        if has { next - 2 } else { -1 }
    };
    let children: Vec<i32> = (0..200).map(child).collect();
    warps.write(1, &children);
    let walk = |warp: i32| {
        let (mut stack, mut node, mut sum) = (Vec::new(), warp, 0i32);
        loop {
            sum = sum.wrapping_mul(3).wrapping_add(node);
            match children[node as usize] {
                -1 => match stack.pop() {
                    Some(last) => node = last,
                    None => return sum,
                },
                child => {
                    stack.push(child + 1);
                    node = child;
                }
            }
        }
    };
    for warps_of_block in [1, 2, 4] {
        let block = 32 * warps_of_block;
        let expected: Vec<i32> = (0..128).map(|thread| walk((thread % block) / 32)).collect();
        let result = warps.run("stacked", &[0; 128], block as u32, 128, &[warps.array(1)], 1000);
        assert_eq!(result, expected, "{block}");
    }
}

#[test]
fn all_lanes_have_fetched_elements_before_one_stores_its_own() {
    let warps = Warps::new();
    let table: Vec<i32> = (0..32).map(|lane| (lane * 11 + 5) % 32).collect();
    warps.write(1, &table);
    for (block, rounds) in [(32, 1), (64, 3), (128, 6)] {
        let data = numbers(128);
        let expected = by_warp(&data, 32, |warp| {
            for round in 0..rounds {
                let told: Vec<i32> = table.iter().map(|&at| warp[at as usize].wrapping_add(round)).collect();
                (0..32).for_each(|lane| warp[lane] = told[lane ^ 8].wrapping_mul(3));
            }
        });
        assert_eq!(warps.run("fetched", &data, block, 128, &[warps.array(1)], rounds), expected, "{block}");
    }
}

#[test]
fn all_lanes_have_added_before_one_of_them_looks() {
    let warps = Warps::new();
    let data = numbers(256);
    for how in 0..4 {
        if how == 2 && warps.is_unoptimized_on_hardware() {
            // Lanes that take no part look first.
            continue;
        }
        warps.write(1, &[0; 8]);
        let expected = by_warp(&data, 32, |warp| {
            let sum = warp.iter().sum::<i32>();
            match how {
                0 => warp[0] = sum + 5,
                1 => {
                    let sum = warp.iter().map(|value| (value & 1023) + 1).sum::<i32>();
                    warp.fill(-1);
                    // The lanes come in their order.
                    warp[0] = sum;
                }
                2 => {
                    let most = warp.iter().copied().filter(|value| value & 1 != 0).max();
                    warp.fill(most.unwrap_or(-5000));
                }
                _ => warp[0] = sum,
            }
        });
        assert_eq!(warps.run("summed", &data, 128, 256, &[warps.array(1)], how), expected, "{how}");
    }
    let mut data = vec![7; 128];
    let told = [3, 45, 64, 127];
    told.iter().for_each(|&thread: &usize| data[thread] = 19);
    let expected: Vec<i32> = (0..128).map(|thread| told[thread / 32] as i32).collect();
    assert_eq!(warps.run("announced", &data, 128, 128, &[], 19), expected);
}

#[test]
fn lanes_meet_in_loops_that_begin_in_their_middle() {
    let warps = Warps::new();
    warps.write(1, &[0]);
    let taken = |count: usize| vec![1; count].into_iter().chain(vec![0; 1024 - count]).collect::<Vec<i32>>();
    assert_eq!(warps.run("rounds", &[0; 32], 32, 32, &[], 9), vec![9; 32]);
    assert_eq!(warps.run("pool", &[0; 1024], 32, 32, &[warps.array(1)], 1000), taken(1000));
    let mut walked = vec![1; 32 * 32];
    walked.extend([63; 32]);
    assert_eq!(warps.run("packet", &[0; 33 * 32], 32, 32, &[], 31), walked);
}

#[test]
fn neighbours_change_places_until_all_are_in_order() {
    let warps = Warps::new();
    for (block, threads) in [(32, 32), (64, 128)] {
        let data = numbers(2 * threads as usize);
        let expected = by_warp(&data, 64, <[i32]>::sort_unstable);
        assert_eq!(warps.run("odd_even", &data, block, threads, &[], 64), expected, "{block}");
    }
}

#[test]
fn numbers_are_kept_at_places_counted_in_memory() {
    let warps = Warps::new();
    let data = numbers(128);
    let expected = by_warp(&data, 32, |warp| {
        let mut kept: Vec<i32> = warp.iter().filter(|v| **v & 1 == 1).map(|v| v * 2).collect();
        kept.resize(32, -1);
        warp.copy_from_slice(&kept);
    });
    let more = [warps.array(1), warps.array(2)];
    assert_eq!(warps.run("compact", &data, 64, 128, &more, 32), expected);
}

#[test]
fn one_lane_writes_and_the_others_read() {
    let warps = Warps::new();
    let data = numbers(64);
    let table: Vec<i32> = (0..32)
        .scan(3i32, |value, k| {
            *value = value.wrapping_mul(5).wrapping_add(k);
            Some(*value)
        })
        .collect();
    let expected = by_warp(&data, 32, |warp| {
        for (lane, value) in warp.iter_mut().enumerate() {
            *value = table[lane].wrapping_sub(table[(lane + 1) % 32]);
        }
    });
    assert_eq!(warps.run("produce", &data, 64, 64, &[warps.array(1)], 3), expected);
}

#[test]
fn lanes_meet_again_behind_a_loop_that_they_leave_one_after_another() {
    let warps = Warps::new();
    let data: Vec<i32> = (0..64).map(|i| (i * 37 + 5) % 61).collect();
    let sum = |n: i32| (1..=n).map(|k| k * k).sum::<i32>();
    let expected: Vec<i32> = (0..64).map(|i| sum(data[i ^ 1])).collect();
    assert_eq!(warps.run("uneven", &data, 64, 64, &[warps.array(1)], 0), expected);
}

#[test]
fn a_lane_in_a_long_loop_is_waited_for() {
    let warps = Warps::new();
    for turns in [1, 30, 100, 1000] {
        let data = numbers(256);
        let expected = by_warp(&data, 32, |warp| {
            let sum = warp.iter().sum::<i32>() + turns + 31;
            warp.fill(sum);
        });
        assert_eq!(warps.run("late", &data, 32, 256, &[], turns), expected, "{turns}");
    }
}

#[test]
fn all_lanes_have_read_before_one_of_them_writes() {
    let warps = Warps::new();
    let data = numbers(64);
    let expected = by_warp(&data, 32, |warp| {
        warp.rotate_left(1);
        warp[31] = -1;
        let pairs: Vec<i32> = (0..32).map(|lane| warp[lane] + warp[lane ^ 1]).collect();
        warp.copy_from_slice(&pairs);
    });
    assert_eq!(warps.run("shift", &data, 64, 64, &[], 0), expected);
}

#[test]
fn all_lanes_of_a_pipe_have_taken_before_one_puts_down() {
    let warps = Warps::new();
    let data = numbers(64);
    for rounds in [1, 2, 40] {
        let expected = by_warp(&data, 32, |warp| {
            let own = warp.to_vec();
            for round in 0..rounds {
                let before = warp.to_vec();
                for (lane, value) in warp.iter_mut().enumerate() {
                    let from = if lane > 0 { before[lane - 1] } else { round };
                    *value = from.wrapping_mul(3).wrapping_add(own[lane]);
                }
            }
        });
        assert_eq!(warps.run("pipe", &data, 32, 64, &[], rounds), expected, "{rounds}");
    }
}

#[test]
fn all_threads_have_read_a_sum_before_the_next_one_begins() {
    let warps = Warps::new();
    let data = numbers(512);
    for (name, block) in [("twice", 64), ("twice", 256), ("twice_outside", 128), ("twice_outside", 256)] {
        let expected = by_warp(&data, block as usize, |block| {
            let sum = block.iter().sum::<i32>();
            block.fill(sum * 4);
        });
        assert_eq!(warps.run(name, &data, block, 512, &[], 5), expected, "{name} {block}");
    }
}

#[test]
fn what_lanes_store_as_volatile_others_add_as_if_it_were_not() {
    let warps = Warps::new();
    let data = numbers(32);
    let rounds = 5;
    let mut expected = data.clone();
    for round in 0..rounds {
        let sum: i32 = expected.iter().map(|own| if own & 1 != 0 { 1 } else { -1 }).sum();
        expected.iter_mut().for_each(|own| *own += sum + round);
    }
    assert_eq!(warps.run("voted", &data, 32, 32, &[], rounds), expected);
}

#[test]
fn all_threads_have_read_what_a_function_clears_that_is_told_where_it_is() {
    let warps = Warps::new();
    let beyond = |sums: &[i64], limit: i64| {
        let at = sums.windows(2).position(|pair| pair[0] <= limit && pair[1] > limit);
        at.map_or((0, 0), |at| (at as i64 + 1, limit - sums[at]))
    };
    for (block, limit) in [(64, 100), (256, 777), (128, 2000)] {
        let data = vec![7; block];
        let with_end =
            |value: fn(i64) -> i64| (0..block as i64).map(value).chain([1 << 30]).collect::<Vec<_>>();
        let (found, left) = beyond(&with_end(|i| 7 * i), limit);
        let (found, left) = beyond(&with_end(|i| i * (i + 1) / 2), found + left);
        let expected = vec![(found * 1000 + left) as i32; block];
        assert_eq!(
            warps.run("beyond", &data, block as u32, block as u32, &[], limit as i32),
            expected,
            "{block}"
        );
    }
}

#[test]
fn all_lanes_come_to_where_a_warp_asks_who_has_come() {
    let warps = Warps::new();
    let rounds = 40;
    let own = |lane: u32, round: u32| ((lane + round * 9).wrapping_mul(2_654_435_761) >> 20) as i32;
    let mut expected = [vec![0; 32], vec![1 << 12; 16]].concat();
    for (lane, round) in (0..32).flat_map(|lane| (0..rounds).map(move |round| (lane, round))) {
        let depth = &mut expected[32 + ((lane * lane * 7 + round * 11) & 15) as usize];
        *depth = own(lane, round).min(*depth);
    }
    assert_eq!(warps.run("asked", &[7; 48], 32, 32, &[], rounds as i32), expected);
    // An H100 lets some lanes come later.
    if warps.hardware.is_none() {
        assert_eq!(warps.run("asked_behind_loops", &[7; 32], 32, 32, &[], rounds as i32), [0; 32]);
    }
}

#[test]
fn lanes_that_begin_in_later_turns_of_loops_ask_with_those_of_their_turn() {
    let warps = Warps::new();
    let box_of = |lane: usize| {
        let (row, column) = (lane * 11 % 14, lane * 5 % 13);
        (row..=row + lane % 3 / 2, column..=column + lane % 2)
    };
    let mut expected = vec![0; 16 * 16 * 32];
    for (place, lanes) in expected.chunks_mut(32).enumerate() {
        let is_here = |&lane: &usize| {
            let (rows, columns) = box_of(lane);
            rows.contains(&(place / 16)) && columns.contains(&(place % 16))
        };
        let here: i32 = (0..32).filter(is_here).map(|lane| 1 << lane).sum();
        (0..32).filter(is_here).for_each(|lane| lanes[lane] = here);
    }
    let rows: Vec<i32> = (0..32).map(|lane| (*box_of(lane).0.start() as i32) << 16).collect();
    warps.write(1, &rows);
    assert_eq!(warps.run("boxes", &vec![0; expected.len()], 32, 32, &[warps.array(1)], 16), expected);
}

#[test]
fn kernels_that_exchange_nothing_or_have_barriers_do_what_they_did() {
    let warps = Warps::new();
    let n = 300;
    let (other, data) = (numbers(n), numbers(n));
    warps.write(1, &other);
    warps.write(2, &vec![1; 5 * n]);
    let expected: Vec<i32> = (0..n).map(|i| data[i] * 2 + other[n - 1 - i]).collect();
    let more = [warps.array(1), warps.array(2)];
    assert_eq!(warps.run("ordinary", &data, 64, 128, &more, n as i32), expected);
    let part = warps.read(2, 5 * n);
    for (i, value) in expected.iter().enumerate() {
        assert_eq!(part[i], 1 + value);
        let mut own = [1i32; 4];
        for k in 0..4 {
            own[k] += own[3 - k] + k as i32;
        }
        assert_eq!(part[n + 4 * i..][..4], own);
    }
    let data = numbers(512);
    let expected = by_warp(&data, 256, |block| block.fill(block.iter().sum()));
    assert_eq!(warps.run("barriers", &data, 256, 512, &[], 0), expected);
}

/// The other tests of this file, in a process with an environment of its own.
fn others_pass_with(variable: &str, value: &str) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["abreast::", "--skip", "_as_well"]).env(variable, value);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains(" 0 passed"), "{variable}={value}: {said}");
}

#[test]
fn vectors_of_lanes_go_abreast_as_well() {
    // Kernels are compiled for vectors of threads before they run, where the machine can.
    for tier in ["first", "wide", "warp"] {
        others_pass_with(rgpu_softgpu::compile::vector::VARIABLE, tier);
    }
}

#[test]
fn code_that_was_not_optimized_goes_abreast_as_well() {
    others_pass_with(VARIABLE, "1");
}
