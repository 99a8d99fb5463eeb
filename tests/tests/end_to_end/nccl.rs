//! NCCL's operations among devices of one process, processes with a device inside, sessions at one server and at two,
//! and what becomes of those that wait for a rank that is gone.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process::Running;
use rgpu_tests::product::{Daemon, temporary};

use crate::context::{plain, product};

/// Tells hanging from working.
const LIMIT: Duration = Duration::from_secs(600);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("nccl::one_thread_drives_devices_inside_the_program", || inside("one", 3)),
        Test::new("nccl::threads_drive_devices_inside_the_program", || inside("threads", 4)),
        Test::new("nccl::one_thread_drives_devices_of_a_server", || of_a_server("one", 2)),
        Test::new("nccl::threads_drive_devices_of_a_server", || of_a_server("threads", 3)),
        Test::new("nccl::processes_with_devices_inside", || processes("rank", &[Way::Inside; 3])),
        Test::new("nccl::processes_that_know_beforehand_where_they_meet", known_beforehand),
        Test::new("nccl::processes_at_one_server", || processes("rank", &[Way::Server(0); 2])),
        Test::new("nccl::processes_at_several_servers", || {
            processes("rank", &[Way::Server(0), Way::Server(1), Way::Inside])
        }),
        Test::new("nccl::who_waits_for_a_process_that_is_gone_hears_of_it", || {
            processes("lost", &[Way::Inside; 3])
        }),
        Test::new("nccl::who_waits_for_a_session_that_is_gone_hears_of_it", || {
            processes("lost", &[Way::Server(0); 2])
        }),
    ]
}

fn servers(count: usize, device: &str) -> Result<Vec<Daemon>> {
    let options = ["--device", device, "--memory", "256M"];
    (0..count).map(|_| Daemon::start_with(product()?, &options)).collect()
}

fn right(command: &mut Command, ranks: u32) -> Result<()> {
    let finished = Running::start(command)?.finish_within(LIMIT)?.success()?;
    ensure!(finished.stdout.contains(&format!("nccl: ok {ranks}")), "{}", finished.output());
    Ok(())
}

fn inside(how: &str, ranks: u32) -> Result<()> {
    let mut command = product()?.run_in_process();
    command.args(["--devices", &ranks.to_string(), "--memory", "256M", "--"]);
    right(command.arg(plain("nccl")?).args([how, &ranks.to_string()]), ranks)
}

fn of_a_server(how: &str, ranks: u32) -> Result<()> {
    let daemons = servers(1, &format!("software:{ranks}"))?;
    let mut command = product()?.run(daemons[0].address());
    command.args(["--transport", "tcp", "--"]);
    right(command.arg(plain("nccl")?).args([how, &ranks.to_string()]), ranks)
}

/// Where a rank's device is.
#[derive(Clone, Copy)]
enum Way {
    Inside,
    Server(usize),
}

fn known_beforehand() -> Result<()> {
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let rank = |rank: &str, secret: &str| {
        let mut command = product()?.run_in_process();
        command.env("NCCL_COMM_ID", &free).env("RGPU_NCCL_SECRET", secret).arg("--").arg(plain("nccl")?);
        Running::start(command.args(["rank", rank, "2", "unused"]))
    };
    // Without a secret anybody could join.
    let refused = rank("0", "short")?.finish_within(LIMIT)?.expect_code(1)?;
    ensure!(refused.stderr.contains("RGPU_NCCL_SECRET"), "{}", refused.output());
    let secret = "sixteen characters or more";
    for running in [rank("1", secret)?, rank("0", secret)?] {
        let finished = running.finish_within(LIMIT)?.success()?;
        ensure!(finished.stdout.contains("nccl: ok"), "{}", finished.output());
    }
    Ok(())
}

fn processes(how: &str, ranks: &[Way]) -> Result<()> {
    let daemons = servers(2, "software")?;
    let folder = temporary("nccl");
    std::fs::create_dir_all(&folder)?;
    let mut running = Vec::new();
    for (rank, way) in ranks.iter().enumerate() {
        let mut command = match way {
            Way::Inside => product()?.run_in_process(),
            Way::Server(number) => product()?.run(daemons[*number].address()),
        };
        command.env("NCCL_SOCKET_IFNAME", "lo").arg("--").arg(plain("nccl")?);
        command.args([how, &rank.to_string(), &ranks.len().to_string()]).arg(folder.join("id"));
        running.push(Running::start(&mut command)?);
    }
    for (rank, running) in running.into_iter().enumerate() {
        let finished = running.finish_within(LIMIT)?.success()?;
        let gone = how == "lost" && rank == 1;
        ensure!(gone || finished.stdout.contains("nccl: ok"), "{}", finished.output());
        ensure!(gone || how != "lost" || finished.stderr.contains("NCCL, rank"), "{}", finished.output());
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
