//! Ranks in threads, as one process or as if they were several.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Element, Factor, Failure, Group, Joining, Memory, Operator, Process, Reduction, Result, Stop, Transfer,
    UniqueId, Work, rendezvous,
};

/// The limit tells hanging from working alone.
const LIMIT: Duration = Duration::from_secs(120);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Memory whose addresses begin at this one.
const BASE: u64 = 0x1000;

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn read(&mut self, from: u64, to: &mut [u8]) -> std::result::Result<(), String> {
        let at = (from - BASE) as usize;
        let found = self.0.get(at..at + to.len()).ok_or("outside")?;
        to.copy_from_slice(found);
        Ok(())
    }

    fn write(&mut self, to: u64, from: &[u8]) -> std::result::Result<(), String> {
        let at = (to - BASE) as usize;
        self.0.get_mut(at..at + from.len()).ok_or("outside")?.copy_from_slice(from);
        Ok(())
    }
}

fn joining(id: &UniqueId, rank: u32, ranks: u32, process: u8) -> Joining {
    let (id, process) = (id.clone(), Process::pretended(process));
    Joining { id, rank, ranks, limit: LIMIT, address: None, process, device: rank }
}

/// Runs ranks, each of the process that `process` says. Yields what each came to.
fn together<T: Send>(
    ranks: u32,
    process: impl Fn(u32) -> u8 + Sync,
    body: impl Fn(&mut Group) -> T + Sync,
) -> Vec<T> {
    let id = rendezvous::announce(HERE, LIMIT).unwrap();
    std::thread::scope(|threads| {
        let rank = |rank| {
            let (id, process, body) = (&id, &process, &body);
            threads.spawn(move || {
                let stop = Arc::new(Stop::new().unwrap());
                body(&mut Group::join(&joining(id, rank, ranks, process(rank)), &stop).unwrap())
            })
        };
        let ranks: Vec<_> = (0..ranks).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The byte at `i` of rank `rank`'s memory.
fn byte(rank: u32, i: usize) -> u8 {
    (i as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 77).to_le_bytes()[2]
}

fn memory(rank: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| byte(rank, i)).collect()
}

/// Does one operation with `send` bytes to send, behind which `recv` bytes are to be received. Yields what each rank
/// received.
fn done(
    ranks: u32,
    process: fn(u32) -> u8,
    send: u64,
    recv: u64,
    work: impl Fn(u64, u64) -> Work + Sync,
) -> Vec<Vec<u8>> {
    together(ranks, process, |group| {
        let mut bytes = Bytes(memory(group.rank(), (send + recv) as usize));
        bytes.0[send as usize..].fill(0xEE);
        group.perform(&work(BASE, BASE + send), &mut bytes).unwrap();
        assert_eq!(
            bytes.0[..send as usize],
            memory(group.rank(), send as usize),
            "what was sent has changed"
        );
        bytes.0.split_off(send as usize)
    })
}

/// All in one process, each in its own, and two in each.
const PROCESSES: [fn(u32) -> u8; 3] = [|_| 0, |rank| rank as u8, |rank| rank as u8 / 2];

#[test]
fn blocks_go_where_they_belong() {
    for (ranks, bytes) in [(1, 5), (2, 3), (3, 100_000), (5, 0), (4, (8 << 20) / 4 + 13)] {
        for process in PROCESSES {
            let all = u64::from(ranks) * bytes;
            let block = |rank: u32, number: u32| {
                let begin = (u64::from(number) * bytes) as usize;
                (begin..begin + bytes as usize).map(|i| byte(rank, i)).collect::<Vec<_>>()
            };
            let gathered: Vec<u8> = (0..ranks).flat_map(|rank| block(rank, 0)).collect();
            let got = done(ranks, process, bytes, all, |send, recv| Work::AllGather { send, recv, bytes });
            assert!(got.iter().all(|got| *got == gathered), "gather {ranks} {bytes}");
            let root = ranks - 1;
            let got = done(ranks, process, bytes, all, |send, recv| Work::Gather { send, recv, bytes, root });
            assert!(got[root as usize] == gathered);
            assert!(got[..root as usize].iter().flatten().all(|byte| *byte == 0xEE));
            let got =
                done(ranks, process, all, bytes, |send, recv| Work::Scatter { send, recv, bytes, root });
            assert!((0..).zip(&got).all(|(rank, got)| *got == block(root, rank)));
            let got = done(ranks, process, all, all, |send, recv| Work::AllToAll { send, recv, bytes });
            for (rank, got) in (0..).zip(&got) {
                assert!(*got == (0..ranks).flat_map(|from| block(from, rank)).collect::<Vec<_>>());
            }
            let got =
                done(ranks, process, bytes, bytes, |send, recv| Work::Broadcast { send, recv, bytes, root });
            assert!(got.iter().all(|got| *got == block(root, 0)), "broadcast {ranks} {bytes}");
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn all_ranks_get_the_same_bits_however_long_it_is() {
    let reduction = |operator, factor| Reduction { element: Element::F32, operator, factor };
    for (ranks, count) in [(1u32, 3usize), (3, 2), (3, 1000), (4, 100_003), (2, (9 << 20) / 4)] {
        // Numbers of very different sizes, so that the order of the sum shows.
        let value = |rank: u32, i: usize| {
            (byte(rank, i) as f32 + 0.1) * 10f32.powi((i + rank as usize) as i32 % 9 - 4)
        };
        let run = |work: &(dyn Fn(u64, u64) -> Work + Sync), recv: usize| {
            together(
                ranks,
                |rank| rank as u8 / 2,
                |group| {
                    let mut bytes: Vec<u8> =
                        (0..count).flat_map(|i| value(group.rank(), i).to_le_bytes()).collect();
                    bytes.resize(count * 4 + recv * 4, 0xEE);
                    let mut bytes = Bytes(bytes);
                    group.perform(&work(BASE, BASE + count as u64 * 4), &mut bytes).unwrap();
                    floats(&bytes.0[count * 4..])
                },
            )
        };
        let sum = |i: usize| (1..ranks).fold(value(0, i), |sum, rank| sum + value(rank, i));
        let expected: Vec<f32> = (0..count).map(sum).collect();
        let all = count as u64;
        let got = run(
            &|send, recv| Work::AllReduce {
                send,
                recv,
                count: all,
                reduction: reduction(Operator::Sum, None),
            },
            count,
        );
        assert!(got.iter().all(|got| *got == expected), "{ranks} {count}");
        let half = Some(Factor::Value(u64::from(0.5f32.to_bits()).to_le_bytes()));
        let got = run(
            &|send, recv| Work::Reduce {
                send,
                recv,
                count: all,
                reduction: reduction(Operator::Sum, half),
                root: 0,
            },
            count,
        );
        // A half changes no bits but the exponent's.
        assert!(got[0].iter().zip(&expected).all(|(got, sum)| *got == sum * 0.5), "{ranks} {count}");
        assert!(got[1..].iter().flatten().all(|got| got.to_bits() == 0xEEEE_EEEE));
        let block = count / ranks as usize;
        let got = run(
            &|send, recv| Work::ReduceScatter {
                send,
                recv,
                count: block as u64,
                reduction: reduction(Operator::Max, None),
            },
            block,
        );
        for (rank, got) in got.iter().enumerate() {
            let max = |i: usize| (0..ranks).map(|r| value(r, rank * block + i)).fold(f32::MIN, f32::max);
            assert!(*got == (0..block).map(max).collect::<Vec<_>>());
        }
    }
}

#[test]
fn messages_go_to_and_fro_at_the_same_time() {
    const BYTES: u64 = (2 << 20) + 5;
    for process in PROCESSES {
        let got = together(3, process, |group| {
            let (rank, ranks) = (group.rank(), group.ranks());
            let mut bytes = Bytes(memory(rank, BYTES as usize));
            bytes.0.resize(BYTES as usize * 2 + 7, 0);
            let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let transfer = |is_send, peer, addr, bytes| Transfer { is_send, peer, addr, bytes };
            group.transfer(
                &[
                    transfer(true, next, BASE, BYTES),
                    transfer(true, rank, BASE, 7),
                    transfer(false, before, BASE + BYTES, BYTES),
                    transfer(false, rank, BASE + 2 * BYTES, 7),
                ],
                &mut bytes,
            )?;
            Ok::<_, Failure>((before, bytes.0.split_off(BYTES as usize)))
        });
        for (rank, got) in (0..).zip(got) {
            let (before, bytes) = got.unwrap();
            assert!(bytes[..BYTES as usize] == memory(before, BYTES as usize));
            assert_eq!(bytes[BYTES as usize..], memory(rank, 7));
        }
    }
}

#[test]
fn ranks_that_do_different_things_say_so() {
    for process in PROCESSES {
        let got = together(2, process, |group| {
            let bytes = 4 + u64::from(group.rank());
            let mut memory = Bytes(vec![0; 64]);
            group.perform(&Work::AllGather { send: BASE, recv: BASE + 16, bytes }, &mut memory)
        });
        for failure in got {
            let Err(Failure::Disagreement(why) | Failure::Lost(why)) = failure else { panic!("{failure:?}") };
            assert!(why.contains("Rank"), "{why}");
        }
    }
}

#[test]
fn who_waits_for_a_rank_that_is_gone_hears_of_it() {
    for process in PROCESSES {
        let got = together(3, process, |group| {
            if group.rank() == 1 {
                return Ok(());
            }
            let mut memory = Bytes(vec![0; 64]);
            let reduction = Reduction { element: Element::I32, operator: Operator::Sum, factor: None };
            group.perform(&Work::AllReduce { send: BASE, recv: BASE, count: 3, reduction }, &mut memory)
        });
        assert!(matches!(got[0], Err(Failure::Lost(_))), "{:?}", got[0]);
        assert!(matches!(got[2], Err(Failure::Lost(_))), "{:?}", got[2]);
    }
}

#[test]
fn a_stop_ends_joining_and_working() {
    let id = rendezvous::announce(HERE, LIMIT).unwrap();
    let stop = Arc::new(Stop::new().unwrap());
    std::thread::scope(|threads| {
        let alone = threads.spawn(|| Group::join(&joining(&id, 0, 2, 0), &stop).map(drop));
        stop.raise();
        assert_eq!(alone.join().unwrap(), Err(Failure::Stopped));
    });
    let got = together(
        2,
        |_| 0,
        |group| {
            if group.rank() == 1 {
                // It is there, and never does its part.
                let mut byte = [0; 1];
                return group.exchange(Vec::new(), vec![(0, Default::default(), &mut byte)]);
            }
            let stop = group.stop.clone();
            std::thread::scope(|threads| {
                let waiting = threads.spawn(|| {
                    group.transfer(
                        &[Transfer { is_send: false, peer: 1, addr: BASE, bytes: 8 }],
                        &mut Bytes(vec![0; 8]),
                    )
                });
                stop.raise();
                waiting.join().unwrap()
            })
        },
    );
    assert_eq!(got[0], Err(Failure::Stopped));
    assert!(matches!(got[1], Err(Failure::Lost(_))), "{got:?}");
}

fn all_join(joinings: &[Joining]) -> Vec<Result<()>> {
    std::thread::scope(|threads| {
        let join =
            |joining| threads.spawn(move || Group::join(joining, &Arc::new(Stop::new().unwrap())).map(drop));
        let ranks: Vec<_> = joinings.iter().map(join).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn who_does_not_belong_there_is_refused() {
    // Nobody who does not know the secret takes a place.
    let id = rendezvous::announce(HERE, LIMIT).unwrap();
    let stranger = UniqueId { secret: [1; 32], ..id.clone() };
    let strange = all_join(&[joining(&stranger, 0, 2, 3)]);
    assert!(matches!(&strange[0], Err(Failure::Lost(_))), "{strange:?}");
    let well = all_join(&[joining(&id, 0, 2, 0), joining(&id, 1, 2, 1)]);
    assert!(well.iter().all(Result::is_ok), "{well:?}");
    // Two that say different things hear so, and so do two of one number.
    for (second, ranks) in [(1, 3), (0, 2)] {
        let id = rendezvous::announce(HERE, LIMIT).unwrap();
        let refused = all_join(&[joining(&id, 0, 2, 0), joining(&id, second, ranks, 1)]);
        for refused in refused {
            let Err(Failure::Refused(why)) = refused else { panic!("{refused:?}") };
            assert!(
                why.contains("joined as rank 0") || why.contains("2 ranks") || why.contains("3 ranks"),
                "{why}"
            );
        }
    }
    // Two ranks of a process need two devices.
    let id = rendezvous::announce(HERE, LIMIT).unwrap();
    let same = |rank| Joining { device: 5, ..joining(&id, rank, 2, 0) };
    for refused in all_join(&[same(0), same(1)]) {
        let Err(Failure::Disagreement(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("device 5"), "{why}");
    }
    // Who is alone when the time is over hears how many have come.
    let id = rendezvous::announce(HERE, Duration::from_millis(300)).unwrap();
    let Err(Failure::Refused(why)) = &all_join(&[joining(&id, 0, 2, 0)])[0] else { panic!() };
    assert!(why.contains("1 of 2 ranks"), "{why}");
    // After that nobody listens there.
    assert!(matches!(all_join(&[joining(&id, 0, 2, 0)])[0], Err(Failure::Lost(_))));
    let wrong = all_join(&[joining(&id, 2, 2, 0)]);
    assert!(matches!(wrong[0], Err(Failure::Invalid(_))), "{wrong:?}");
}

#[test]
fn ranks_meet_at_an_address_that_is_known_beforehand() {
    let port = std::net::TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap();
    let id = UniqueId { address: port, secret: [9; 32], fixed: true };
    // Whoever comes before rank 0 tries again.
    for _ in 0..5 {
        let met = all_join(&[joining(&id, 1, 3, 1), joining(&id, 2, 3, 2), joining(&id, 0, 3, 0)]);
        assert!(met.iter().all(Result::is_ok), "{met:?}");
    }
}

#[test]
fn groups_tell_each_other_what_they_need_for_another_group() {
    let got = together(
        3,
        |rank| rank as u8,
        |group| {
            let all = group.tell_all(0, &[group.rank() as u8; 2]).unwrap();
            let mut message = [group.rank() as u8 + 10];
            if group.rank() != 0 {
                group.tell(&[1, 2], &mut message).unwrap();
            }
            (all, message[0])
        },
    );
    assert!(got.iter().all(|(all, _)| *all == [[0, 0], [1, 1], [2, 2]]));
    assert_eq!(got.iter().map(|(_, message)| *message).collect::<Vec<_>>(), [10, 11, 11]);
}
