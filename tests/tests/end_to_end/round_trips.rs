//! How often a program waits for the wire, counted by a proxy, and compared with `--stats`.

use std::time::Duration;

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, Stats, temporary};
use rgpu_tests::proxy::{Counts, Proxy};

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("round_trips::vector_add_takes_3", vector_add),
        Test::new("round_trips::a_hundred_thousand_launches_take_3", many_launches),
        Test::new("round_trips::a_step_of_139_launches_and_one_read_takes_one", many_small_kernels),
        Test::new("round_trips::a_launch_is_50_bytes_and_its_arguments", launch_bytes),
        Test::new("round_trips::host_functions_see_shared_memory_without_asking", host_functions),
        Test::new("round_trips::a_step_of_a_transformer_of_12_layers_takes_one", transformer),
    ]
}

/// Runs a program through the proxy. Checks that the proxy and `--stats` agree.
fn watch(daemon: &Daemon, name: &str) -> Result<(Counts, Stats)> {
    watch_with(daemon, name, &[])
}

fn watch_with(daemon: &Daemon, name: &str, arguments: &[&str]) -> Result<(Counts, Stats)> {
    let proxy = Proxy::start(daemon.address())?;
    let file = temporary("stats.json");
    let mut command = product()?.run(proxy.address());
    command.arg(format!("--stats=json:{}", file.display())).arg("--").arg(plain(name)?).args(arguments);
    process::run(&mut command)?.success()?;
    let stats = Stats::take(&file)?;
    // What the client sent last, without waiting, may still be on its way through the proxy.
    let bytes_sent = stats.number("bytes_sent")?;
    process::wait_until("what was sent passes the proxy", Duration::from_secs(60), || {
        proxy.counts().map_or(true, |c| c.to_server >= bytes_sent)
    })?;
    let counts = proxy.counts()?;
    for (key, seen) in [
        ("round_trips", counts.round_trips),
        ("posted_calls", counts.posted_calls),
        ("bytes_sent", counts.to_server),
    ] {
        let told = stats.number(key)?;
        ensure!(told == seen, "--stats tells {told} {key}, the wire saw {seen}: {counts:?}, {}", stats.0);
    }
    let told = stats.number("bytes_received")?;
    // What the server says last, nobody may be there to read.
    ensure!(told <= counts.to_client, "--stats tells {told} bytes received, {counts:?}");
    println!("{name}: {counts:?}");
    Ok((counts, stats))
}

fn vector_add() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let (counts, _) = watch(&daemon, "vector_add")?;
    ensure!(counts.round_trips <= 3, "{} round trips", counts.round_trips);
    Ok(())
}

fn many_small_kernels() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let (counts, _) = watch(&daemon, "many_small_kernels")?;
    // 20 steps, after connecting and the hello.
    ensure!(counts.round_trips <= 20 + 2, "{} round trips for 20 steps", counts.round_trips);
    ensure!(counts.posted_calls >= 20 * 139, "{} posted calls", counts.posted_calls);
    Ok(())
}

/// The server sends what kernels have written to pinned memory before it tells of a host function, which reads it.
fn host_functions() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let (_, stats) = watch(&daemon, "hostfunc_callback")?;
    let asked = stats.0["calls"]["collect_shared_writes"]["count"].as_u64().unwrap_or(0);
    ensure!(asked == 0, "{asked} round trips for shared writes");
    Ok(())
}

/// What is set, asked and described by way of cuBLAS and cuBLASLt costs nothing: a step is its launches and products.
fn transformer() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let (few, _) = watch_with(&daemon, "transformer", &["10"])?;
    let (many, _) = watch_with(&daemon, "transformer", &["30"])?;
    let of_step = |few: u64, many: u64| (many - few) as f64 / 20.0;
    let (trips, posted) =
        (of_step(few.round_trips, many.round_trips), of_step(few.posted_calls, many.posted_calls));
    // 5 kernels and 6 products in each layer, and what is sent before and fetched afterwards.
    ensure!(trips <= 1.0, "a step takes {trips} round trips");
    ensure!(posted <= 12.0 * 11.0 + 4.0, "a step takes {posted} posted calls");
    Ok(())
}

fn launch_bytes() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let (few, _) = watch_with(&daemon, "launch_four", &["1000"])?;
    let (many, _) = watch_with(&daemon, "launch_four", &["3000"])?;
    let per_launch = (many.to_server - few.to_server) as f64 / 2000.0;
    // Two pointers, an int and a float.
    let arguments = 24.0;
    ensure!(per_launch == arguments + 50.0, "a launch takes {per_launch} bytes on the wire");
    Ok(())
}

fn many_launches() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let (counts, _) = watch(&daemon, "many_launches")?;
    ensure!(counts.round_trips <= 3, "{} round trips", counts.round_trips);
    // The server counts what it has executed, and says so when the session ends.
    let executed = |line: &String| {
        line.contains("launches")
            && line.split(|c: char| !c.is_ascii_digit()).any(|number| number == "100000")
    };
    process::wait_until("the daemon logs 100000 executed launches", Duration::from_secs(60), || {
        daemon.log().iter().any(executed)
    })
    .map_err(|e| anyhow::anyhow!("{e}; its log:\n{}", daemon.log().join("\n")))?;
    Ok(())
}
