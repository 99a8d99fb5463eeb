//! Memory that several parties have at once: the host and a running kernel, streams that wait for words of it, several processes.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process;
use rgpu_tests::product::{Stats, temporary};
use std::net::SocketAddr;
use std::process::Command;

use crate::context::{driver_daemon, plain, product, shared_daemon};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("sharing::memory_is_one_in_process", || words(product()?.run_in_process(), "one")),
        Test::new("sharing::memory_is_one_through_shared_memory", || words(over("shm")?, "one")),
        Test::new("sharing::memory_has_two_copies_over_tcp", || words(over("tcp")?, "two")),
        Test::new("sharing::memory_has_two_copies_behind_a_driver", || {
            words(product()?.run(driver_daemon()?), "two")
        }),
        Test::new("sharing::taking_turns_with_one_memory_costs_a_launch_and_a_wait", turns),
        Test::new("sharing::processes_open_each_others_memory_in_process", || {
            processes(product()?.run_in_process())
        }),
        Test::new("sharing::processes_open_each_others_memory_through_shared_memory", || {
            processes(over("shm")?)
        }),
        Test::new("sharing::processes_open_each_others_memory_over_tcp", || processes(over("tcp")?)),
    ]
}

fn through(server: SocketAddr, transport: &str) -> Result<Command> {
    let mut command = product()?.run(server);
    command.args(["--transport", transport]);
    Ok(command)
}

fn over(transport: &str) -> Result<Command> {
    through(shared_daemon()?, transport)
}

fn words(mut command: Command, what: &str) -> Result<()> {
    process::run(command.arg("--").arg(plain("shared_words")?).arg(what))?.success()?;
    Ok(())
}

fn processes(mut command: Command) -> Result<()> {
    process::run(command.arg("--").arg(plain("ipc")?))?.success()?;
    Ok(())
}

/// Round trips, posted calls and bytes for each of so many steps in which host and device change a page in turn.
fn step(transport: &str) -> Result<[f64; 3]> {
    let count = |steps: u32| -> Result<[u64; 3]> {
        let file = temporary("stats.json");
        let mut command = over(transport)?;
        command.arg(format!("--stats=json:{}", file.display())).arg("--").arg(plain("shared_words")?);
        process::run(command.args(["steps", &steps.to_string()]))?.success()?;
        let stats = Stats::take(&file)?;
        let of = |key| stats.number(key);
        Ok([of("round_trips")?, of("posted_calls")?, of("bytes_received")?])
    };
    let (few, many) = (count(10)?, count(110)?);
    Ok(std::array::from_fn(|i| (many[i] as f64 - few[i] as f64) / 100.0))
}

fn turns() -> Result<()> {
    let ([trips, posted, _], [_, copied, _]) = (step("shm")?, step("tcp")?);
    println!("posted calls for each step: {posted} with one memory, {copied} with two copies");
    ensure!(trips <= 1.0 && posted <= 1.0, "{trips} round trips and {posted} posted calls for each step");
    ensure!(copied > posted, "two copies cost {copied} posted calls, one memory {posted}");
    Ok(())
}
