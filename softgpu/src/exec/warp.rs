//! The operations that the lanes of a warp carry out together.

use smallvec::SmallVec;

use crate::abi::{CutKind, MOST_LANES, ROW_OPERANDS, ReduceOp, ShuffleMode, Thread, VoteMode, WARP, WIDTHS};

/// The lanes of a mask.
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// Whether an operation is one of a warp, not of several, of the block or of the thread alone.
pub(super) fn is_of_warp(kind: CutKind) -> bool {
    !matches!(
        kind,
        CutKind::Barrier
            | CutKind::BarrierArrive
            | CutKind::BarrierReduce(_)
            | CutKind::Yield
            | CutKind::GridYield(_)
            | CutKind::ClusterArrive
            | CutKind::ClusterWait
            | CutKind::Group(_)
    )
}

/// The first three of [`Thread::op`], of the lanes of a warp.
#[derive(Debug, Default)]
pub(super) struct Operands(pub [[u64; WARP]; 3]);

/// Carries an operation out for the lanes in `group`, at least one. `row` is the warp's threads.
pub(super) fn execute_on_threads(kind: CutKind, row: &mut [Thread], group: u32) {
    let mut operands = Operands::default();
    for lane in lanes(group) {
        (0..3).for_each(|n| operands.0[n][lane] = row[lane].op[n]);
    }
    execute(kind, &mut operands, group);
    for lane in lanes(group) {
        (0..2).for_each(|n| row[lane].op[n] = operands.0[n][lane]);
    }
}

/// Carries an operation out for the lanes in `members`, and for guests that name those lanes and not themselves. These get what members get; a
/// shuffle takes values from all, as hardware does where they go together.
pub(super) fn execute_with_guests(kind: CutKind, row: &mut [Thread], members: u32, guests: u32) {
    if guests == 0 || members == 0 || matches!(kind, CutKind::Shuffle(_)) {
        return execute_on_threads(kind, row, members | guests);
    }
    if let CutKind::Vote(mode) = kind {
        return vote_of_others(mode, row, members | guests);
    }
    let values: Vec<u64> = row.iter().map(|thread| thread.op[0]).collect();
    execute_on_threads(kind, row, members);
    let leader = members.trailing_zeros() as usize;
    let [first, second, ..] = row[leader].op;
    for guest in lanes(guests) {
        let same = || lanes(members).filter(|&l| values[l] == values[guest]).fold(0u32, |m, l| m | 1 << l);
        (row[guest].op[0], row[guest].op[1]) = match kind {
            CutKind::MatchAny => (same().into(), second),
            CutKind::Elect => (first, 0),
            _ => (first, second),
        };
    }
}

/// What comes of a vote of some lanes, of which those in `ballot` say yes.
fn vote(mode: VoteMode, ballot: u32, group: u32) -> u32 {
    match mode {
        VoteMode::All => u32::from(ballot == group),
        VoteMode::Any => u32::from(ballot != 0),
        VoteMode::Uniform => u32::from(ballot == 0 || ballot == group),
        VoteMode::Ballot => ballot,
    }
}

/// Carries out a vote in which each lane of `group` names others, in its fourth operand.
pub(super) fn vote_of_others(mode: VoteMode, row: &mut [Thread], group: u32) {
    let ballot = lanes(group).filter(|&l| row[l].op[0] & 1 != 0).fold(0u32, |m, l| m | 1 << l);
    for lane in lanes(group) {
        let named = row[lane].op[3] as u32 & group;
        row[lane].op[0] = u64::from(vote(mode, ballot & named, named));
    }
}

/// The most groups that a warp has.
const MOST_GROUPS: usize = WARP / WIDTHS[0];

/// The operands of the groups of a warp.
pub(super) struct OperandsOfGroups<'a> {
    /// Threads of a group.
    pub lanes: usize,
    /// Those of each group.
    pub rows: SmallVec<[&'a mut [[u64; MOST_LANES]; ROW_OPERANDS]; MOST_GROUPS]>,
}

/// Carries an operation out for all lanes of a warp whose operands are in rows.
pub(super) fn execute_in_rows(kind: CutKind, rows: OperandsOfGroups<'_>) {
    let mut operands = gather(&rows);
    execute(kind, &mut operands, !0);
    scatter(&operands, rows, !0);
}

/// Carries an operation out for the lanes of a warp that wait at it, each with those whom it names in its fourth operand: the lanes that go on, which
/// are whole groups. Nothing is done where some do not name each other and themselves; lanes stay whose group, or the group of one whom they name,
/// does not wait as a whole.
pub(super) fn execute_by_name(kind: CutKind, rows: OperandsOfGroups<'_>, waiting: u32) -> u32 {
    let mut masks: [u32; WARP] = std::array::from_fn(|lane| 1 << lane);
    for lane in lanes(waiting) {
        masks[lane] = rows.rows[lane / rows.lanes][3][lane % rows.lanes] as u32;
    }
    if masks == [!0; WARP] {
        execute_in_rows(kind, rows);
        return !0;
    }
    // Each lane belongs to one set, all of whom name the same lanes, which are these.
    let mut sets = [0; WARP];
    let (mut count, mut rest) = (0, waiting);
    while rest != 0 {
        let lane = rest.trailing_zeros();
        let set = masks[lane as usize];
        if set >> lane & 1 == 0 || set & !rest != 0 || !lanes(set).all(|other| masks[other] == set) {
            return 0;
        }
        sets[count] = set;
        count += 1;
        rest &= !set;
    }
    let mut goes = waiting;
    loop {
        let group = u32::MAX >> (WARP - rows.lanes);
        let groups = (0..WARP).step_by(rows.lanes).map(|first| group << first);
        let whole = groups.filter(|group| goes & group == *group);
        let whole = whole.fold(0, |whole, group| whole | group);
        let left = sets[..count].iter().filter(|&set| set & !whole == 0).fold(0, |left, set| left | set);
        if std::mem::replace(&mut goes, left) == left {
            break;
        }
    }
    let mut operands = gather(&rows);
    match kind {
        CutKind::Shuffle(mode) => shuffle_by(mode, &mut operands, |lane| masks[lane]),
        _ => {
            let made = sets[..count].iter().filter(|&set| set & goes == *set);
            made.for_each(|&set| execute(kind, &mut operands, set));
        }
    }
    scatter(&operands, rows, goes);
    goes
}

/// The operands that are in rows.
fn gather(rows: &OperandsOfGroups<'_>) -> Operands {
    let mut operands = Operands::default();
    let lanes = rows.lanes;
    for (group, row) in rows.rows.iter().enumerate() {
        (0..3).for_each(|n| operands.0[n][group * lanes..][..lanes].copy_from_slice(&row[n][..lanes]));
    }
    operands
}

/// Puts the results of those lanes there, which are whole groups.
fn scatter(operands: &Operands, rows: OperandsOfGroups<'_>, of: u32) {
    let OperandsOfGroups { lanes, rows } = rows;
    let goes = |group: &usize| of >> (group * lanes) & 1 != 0;
    for (group, row) in rows.into_iter().enumerate().filter(|(group, _)| goes(group)) {
        (0..2).for_each(|n| row[n][..lanes].copy_from_slice(&operands.0[n][group * lanes..][..lanes]));
    }
}

/// Carries an operation out for the lanes in `group`, at least one: results are where operands were.
pub(super) fn execute(kind: CutKind, operands: &mut Operands, group: u32) {
    let [first, second, _] = &mut operands.0;
    match kind {
        CutKind::Shuffle(mode) => shuffle(mode, operands, group),
        CutKind::Vote(mode) => {
            let ballot = lanes(group).filter(|&l| first[l] & 1 != 0).fold(0u32, |m, l| m | 1 << l);
            let result = vote(mode, ballot, group);
            lanes(group).for_each(|l| first[l] = u64::from(result));
        }
        CutKind::MatchAny => {
            let values = *first;
            for lane in lanes(group) {
                let same = lanes(group).filter(|&l| values[l] == values[lane]).fold(0u32, |m, l| m | 1 << l);
                first[lane] = u64::from(same);
            }
        }
        CutKind::MatchAll => {
            let value = first[group.trailing_zeros() as usize];
            let all = lanes(group).all(|l| first[l] == value);
            for lane in lanes(group) {
                first[lane] = if all { u64::from(group) } else { 0 };
                second[lane] = u64::from(all);
            }
        }
        CutKind::Redux(op) => {
            let result = lanes(group).map(|l| first[l] as u32).reduce(|a, b| reduce(op, a, b));
            lanes(group).for_each(|l| first[l] = u64::from(result.unwrap_or(0)));
        }
        CutKind::ActiveMask => lanes(group).for_each(|l| first[l] = u64::from(group)),
        CutKind::Elect => {
            let leader = group.trailing_zeros() as usize;
            for lane in lanes(group) {
                first[lane] = leader as u64;
                second[lane] = u64::from(lane == leader);
            }
        }
        // A matrix operation needs the lanes' states, and is carried out where those are known.
        CutKind::WarpSync | CutKind::Matrix(_) => {}
        CutKind::Barrier
        | CutKind::BarrierArrive
        | CutKind::BarrierReduce(_)
        | CutKind::Yield
        | CutKind::GridYield(_)
        | CutKind::ClusterArrive
        | CutKind::ClusterWait
        | CutKind::Group(_) => {}
    }
}

/// Combines two values.
pub(super) fn reduce(op: ReduceOp, a: u32, b: u32) -> u32 {
    match op {
        ReduceOp::Add | ReduceOp::Popc => a.wrapping_add(b),
        ReduceOp::MinS32 => (a as i32).min(b as i32) as u32,
        ReduceOp::MaxS32 => (a as i32).max(b as i32) as u32,
        ReduceOp::MinU32 => a.min(b),
        ReduceOp::MaxU32 => a.max(b),
        ReduceOp::And | ReduceOp::PredicateAnd => a & b,
        ReduceOp::Or | ReduceOp::PredicateOr => a | b,
        ReduceOp::Xor => a ^ b,
    }
}

fn shuffle(mode: ShuffleMode, operands: &mut Operands, group: u32) {
    if group == !0 {
        return shuffle_by(mode, operands, |_| !0);
    }
    let values = operands.0[0];
    for lane in lanes(group) {
        shuffle_to(mode, operands, &values, lane, group);
    }
}

/// Has all lanes of a warp get values, each from those that it names.
#[inline(always)]
fn shuffle_by(mode: ShuffleMode, operands: &mut Operands, named: impl Fn(usize) -> u32) {
    let values = operands.0[0];
    let mut all = |mode| (0..WARP).for_each(|lane| shuffle_to(mode, operands, &values, lane, named(lane)));
    // Each mode has a loop of its own.
    match mode {
        ShuffleMode::Up => all(ShuffleMode::Up),
        ShuffleMode::Down => all(ShuffleMode::Down),
        ShuffleMode::Butterfly => all(ShuffleMode::Butterfly),
        ShuffleMode::Index => all(ShuffleMode::Index),
    }
}

/// Has a lane get one of these values.
#[inline(always)]
fn shuffle_to(mode: ShuffleMode, operands: &mut Operands, values: &[u64; WARP], lane: usize, group: u32) {
    let [result, b, c] = &mut operands.0;
    let (source, inside) = source(mode, lane, b[lane], c[lane]);
    // What a lane that takes no part would hand over is undefined; devices (seen on capability 9.0) give 0, so that sums over half a
    // warp with the mask of a whole one come out right.
    let value = if group >> source & 1 != 0 { values[source] } else { 0 };
    (result[lane], b[lane]) = (value, u64::from(inside));
}

/// The lane that another one gets its value from, and whether that is as its operands b and c say.
#[inline(always)]
fn source(mode: ShuffleMode, lane: usize, b: u64, c: u64) -> (usize, bool) {
    let (this, b, c) = (lane as u32, b as u32 & 31, c as u32);
    let (clamp, segment) = (c & 31, c >> 8 & 31);
    let first = this & segment;
    let last = first | clamp & !segment;
    let (source, inside) = match mode {
        ShuffleMode::Up => (this.wrapping_sub(b), this as i32 - b as i32 >= last as i32),
        ShuffleMode::Down => (this + b, this + b <= last),
        ShuffleMode::Butterfly => (this ^ b, this ^ b <= last),
        ShuffleMode::Index => {
            let source = first | b & !segment;
            (source, source <= last)
        }
    };
    (if inside { source as usize & 31 } else { lane }, inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Vec<Thread> {
        (0..32)
            .map(|lane| Thread {
                tid: [lane, 0, 0],
                lane,
                resume: 0,
                stop: 0,
                fuel: 0,
                error: 0,
                op: [u64::from(lane) + 100, 0, 0, 0, 0, 0],
                local_base: 0,
                local_end: 0,
                state: std::ptr::null_mut(),
            })
            .collect()
    }

    fn shuffled(mode: ShuffleMode, b: u64, c: u64) -> Vec<(u64, u64)> {
        let mut row = row();
        row.iter_mut().for_each(|t| (t.op[1], t.op[2]) = (b, c));
        execute_on_threads(CutKind::Shuffle(mode), &mut row, !0);
        row.iter().map(|t| (t.op[0] - 100, t.op[1])).collect()
    }

    #[test]
    fn shuffles_follow_the_segment_rules() {
        // Expected values from the definition of the CUDA intrinsics, width 32 and width 8.
        let up = shuffled(ShuffleMode::Up, 3, 0);
        let down = shuffled(ShuffleMode::Down, 3, 31);
        let xor = shuffled(ShuffleMode::Butterfly, 5, 31);
        let up8 = shuffled(ShuffleMode::Up, 2, (32 - 8) << 8);
        let down8 = shuffled(ShuffleMode::Down, 2, (32 - 8) << 8 | 31);
        let index8 = shuffled(ShuffleMode::Index, 5, (32 - 8) << 8 | 31);
        for lane in 0..32u64 {
            let l = lane as usize;
            assert_eq!(up[l], if lane >= 3 { (lane - 3, 1) } else { (lane, 0) });
            assert_eq!(down[l], if lane + 3 < 32 { (lane + 3, 1) } else { (lane, 0) });
            assert_eq!(xor[l], (lane ^ 5, 1));
            assert_eq!(up8[l], if lane % 8 >= 2 { (lane - 2, 1) } else { (lane, 0) });
            assert_eq!(down8[l], if lane % 8 + 2 < 8 { (lane + 2, 1) } else { (lane, 0) });
            assert_eq!(index8[l], (lane / 8 * 8 + 5, 1));
        }
    }

    #[test]
    fn who_takes_no_part_hands_over_nothing() {
        let mut row = row();
        row.iter_mut().for_each(|t| (t.op[1], t.op[2]) = (8, 31));
        execute_on_threads(CutKind::Shuffle(ShuffleMode::Down), &mut row, 0xffff);
        assert_eq!((row[3].op[0], row[12].op[0]), (111, 0));
    }

    #[test]
    fn members_get_what_they_would_without_guests() {
        let (members, guests) = (0x3fff_ffffu32, 0xc000_0000u32);
        let given = || {
            let mut row = row();
            row.iter_mut()
                .for_each(|t| (t.op[0], t.op[1], t.op[2], t.op[3]) = (t.op[0] / 3, 1, 31, members.into()));
            row
        };
        let kinds = [
            CutKind::Shuffle(ShuffleMode::Butterfly),
            CutKind::Vote(VoteMode::Ballot),
            CutKind::MatchAny,
            CutKind::MatchAll,
            CutKind::Redux(ReduceOp::Add),
            CutKind::Elect,
        ];
        for kind in kinds {
            let (mut alone, mut with) = (given(), given());
            execute_on_threads(kind, &mut alone, members);
            execute_with_guests(kind, &mut with, members, guests);
            let results = |row: &[Thread]| row.iter().map(|t| [t.op[0], t.op[1]]).collect::<Vec<_>>();
            let (alone, with) = (results(&alone), results(&with));
            assert_eq!(alone[..30], with[..30], "{kind:?}");
            let expected = match kind {
                CutKind::Shuffle(_) => [131 / 3, 1],
                // Lane 29, as the guest, has 43.
                CutKind::MatchAny => [1 << 29, with[0][1]],
                CutKind::Elect => [0, 0],
                _ => with[0],
            };
            assert_eq!(with[30], expected, "{kind:?}");
        }
    }

    #[test]
    fn lanes_of_one_warp_exchange_by_name() {
        WIDTHS.into_iter().for_each(exchange_by_name_in_groups_of);
    }

    fn exchange_by_name_in_groups_of(size: usize) {
        type Rows = Vec<[[u64; MOST_LANES]; ROW_OPERANDS]>;
        let rows = |mask: fn(usize) -> u32| -> Rows {
            let row = |group: usize| {
                std::array::from_fn(|n| {
                    std::array::from_fn(|l| {
                        let lane = group * size + l;
                        if l < size { [lane as u64, 1, 31, mask(lane).into(), 0, 0][n] } else { 0 }
                    })
                })
            };
            (0..WARP / size).map(row).collect()
        };
        let make_some = |kind, rows: &mut Rows, waiting| {
            execute_by_name(kind, OperandsOfGroups { lanes: size, rows: rows.iter_mut().collect() }, waiting)
        };
        let make = |kind, rows: &mut Rows| make_some(kind, rows, !0) == !0;
        let results = |rows: &Rows| rows.iter().flat_map(|row| row[0][..size].to_vec()).collect::<Vec<u64>>();
        // Each half for itself, and what the last lane of one would get of the other is nothing.
        let halves = |lane| if lane < 16 { 0xffff } else { 0xffff_0000 };
        let mut shifted = rows(halves);
        assert!(make(CutKind::Shuffle(ShuffleMode::Down), &mut shifted));
        let expected: Vec<u64> = (1..32).map(|lane| if lane == 16 { 0 } else { lane }).chain([31]).collect();
        assert_eq!(results(&shifted), expected);
        let mut sums = rows(|lane| 0x1111_1111 << (lane % 4));
        assert!(make(CutKind::Redux(ReduceOp::Add), &mut sums));
        assert_eq!(results(&sums), (0..32).map(|lane| 112 + lane % 4 * 8).collect::<Vec<u64>>());
        // Nothing is done where lanes do not name themselves, or others name more than they do.
        for mask in [|_| 0xffff, |lane| if lane == 5 { 1 << 5 } else { !0 }] as [fn(usize) -> u32; 2] {
            let mut unnamed = rows(mask);
            assert!(!make(CutKind::Vote(VoteMode::Ballot), &mut unnamed));
            assert_eq!(unnamed, rows(mask));
        }
        // A whole warp has no other groups.
        if size == WARP {
            return;
        }
        // Of a part of the warp, too, whole groups whose lanes name no others; these find what they would alone.
        let first: fn(usize) -> u32 = match size {
            8 => |lane| if lane < 8 { 0xff } else { 0xff_ff00 },
            _ => |lane| if lane < 16 { 0xffff } else { 0xffff_0000 },
        };
        let (mut part, own) = (rows(first), first(0));
        let others = first(31) & !(first(31) >> size);
        assert_eq!(
            make_some(CutKind::Redux(ReduceOp::Add), &mut part, own | others & 0xff_0000),
            0,
            "lanes that are not there are named"
        );
        assert_eq!(make_some(CutKind::Redux(ReduceOp::Add), &mut part, own), own);
        let sum = (0..size as u64).sum();
        let expected: Vec<u64> = (0..32).map(|lane| if lane < size as u64 { sum } else { lane }).collect();
        assert_eq!(results(&part), expected);
        // Lanes of a group that is there in part stay, and so do those who share a group with them.
        let mut halves_of_groups = rows(|lane| 0xf << (lane / 4 * 4));
        let waiting = own | 0xf << size;
        assert_eq!(make_some(CutKind::Vote(VoteMode::Ballot), &mut halves_of_groups, waiting), own);
    }

    #[test]
    fn votes_matches_and_reductions_see_members_only() {
        let group = 0x0000_ff0f;
        let mut votes = row();
        votes.iter_mut().for_each(|t| t.op[0] = u64::from(t.lane % 2 == 0));
        execute_on_threads(CutKind::Vote(VoteMode::Ballot), &mut votes, group);
        assert_eq!(votes[0].op[0], u64::from(group & 0x5555_5555));
        assert_eq!(votes[16].op[0], 1, "not a member");
        let mut any = row();
        any.iter_mut().for_each(|t| t.op[0] = u64::from(t.lane / 4));
        execute_on_threads(CutKind::MatchAny, &mut any, group);
        assert_eq!((any[1].op[0], any[9].op[0]), (0xf, 0xf00));
        let mut sum = row();
        execute_on_threads(CutKind::Redux(ReduceOp::MaxS32), &mut sum, group);
        assert_eq!(sum[3].op[0], 115);
        let mut leader = row();
        execute_on_threads(CutKind::Elect, &mut leader, 0xf0);
        assert_eq!((leader[5].op[0], leader[5].op[1], leader[4].op[1]), (4, 0, 1));
    }
}
