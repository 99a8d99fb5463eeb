//! `rgpu serve --device nvidia`: what is said where there is no driver, and what stands in for one.

use anyhow::{Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, clean};

use crate::context::product;

/// All tests about the driver.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("driver::a_machine_without_one_says_where_it_looked", without_one),
        Test::new("driver::what_is_named_must_be_one", wrong_one),
        Test::new("driver::our_own_library_stands_in_for_one_when_named", our_own),
        Test::new("driver::auto_serves_the_software_gpu_without_one", auto),
    ]
}

fn has_driver() -> Result<bool> {
    let listed = process::run(clean(&product()?.rgpu()).args(["devices", "--local"]))?;
    Ok(listed.success().is_ok())
}

fn without_one() -> Result<()> {
    if has_driver()? {
        return Err(Skip("this machine has an NVIDIA driver".into()).into());
    }
    let listen = ["serve", "--listen", "127.0.0.1:0", "--device", "nvidia"];
    for arguments in [&listen[..], &["devices", "--local"]] {
        let ended = process::run(clean(&product()?.rgpu()).args(arguments))?;
        let text = ended.stderr.clone();
        ensure!(ended.success().is_err(), "it went well");
        for word in ["libcuda.so.1", "--driver", "/usr/lib"] {
            ensure!(text.contains(word), "it does not mention {word}: {text}");
        }
    }
    Ok(())
}

fn wrong_one() -> Result<()> {
    for driver in ["/nowhere/libcuda.so.1", "/etc/passwd"] {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--device", "auto", "--driver", driver];
        let ended = process::run(clean(&product()?.rgpu()).args(arguments))?;
        let text = ended.stderr.clone();
        ensure!(ended.success().is_err() && text.contains(driver), "{text}");
    }
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--device", "software", "--driver", "/etc/passwd"];
    let ended = process::run(clean(&product()?.rgpu()).args(arguments))?;
    let text = ended.stderr.clone();
    ensure!(ended.success().is_err() && text.contains("--driver"), "{text}");
    Ok(())
}

fn our_own() -> Result<()> {
    let product = product()?;
    let mut list = clean(&product.rgpu());
    list.args(["devices", "--local", "--driver"]).arg(product.shim());
    // What is meant for programs must not reach the driver's stand-in.
    list.env("RGPU_SERVER", "127.0.0.1:1").env("RGPU_IN_PROCESS", "0");
    let listed = process::run(&mut list)?.success()?;
    ensure!(listed.stdout.contains("software GPU"), "{}", listed.output());
    Ok(())
}

fn auto() -> Result<()> {
    if has_driver()? {
        return Err(Skip("this machine has an NVIDIA driver".into()).into());
    }
    let daemon = Daemon::start_auto(product()?)?;
    let mut list = clean(&product()?.rgpu());
    list.args(["devices", "--server", &daemon.address().to_string()]);
    let listed = process::run(&mut list)?.success()?;
    ensure!(listed.stdout.contains("software GPU"), "{}", listed.output());
    let log = daemon.log().join("\n");
    ensure!(log.contains("there is no NVIDIA GPU"), "{log}");
    Ok(())
}
