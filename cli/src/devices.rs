//! `rgpu devices`: which GPUs there are.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rgpu_control::settings::SERVER_VARIABLE;
use rgpu_control::units;
use rgpu_protocol::hello::DeviceInfo;

use crate::{Failure, Outcome, probe, run};

/// List the GPUs of a server, or those that this machine could serve.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  rgpu devices --server gpuhost:7070\n  rgpu devices --local")]
pub(crate) struct Arguments {
    /// The server to ask
    #[arg(long, value_name = "HOST:PORT", env = SERVER_VARIABLE)]
    server: Option<String>,
    /// List this machine's NVIDIA GPUs, which `rgpu serve --device nvidia` would serve
    #[arg(long)]
    local: bool,
    /// The NVIDIA driver's library, where it is not where drivers are [default: looked for]
    #[arg(long, value_name = "PATH", requires = "local")]
    driver: Option<PathBuf>,
    /// A file with the token that the server asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Lists them.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    if arguments.local {
        return list_local(arguments.driver.as_deref());
    }
    let Some(server) = &arguments.server else {
        let text = "Say which server to ask: --server HOST:PORT, or RGPU_SERVER; or --local for this machine";
        return Err(Failure::with_status(text, 2));
    };
    run::check_address(server)?;
    let token = probe::token(arguments.token_file.as_deref())?;
    let found = probe::ask(server, &token)?;
    for (ordinal, device) in found.answer.devices.iter().enumerate() {
        println!("{}", describe(ordinal, device));
    }
    if found.answer.devices.is_empty() {
        return Err(Failure::new(format!("The server {server} has no device for you")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the GPUs that this machine could serve.
#[cfg(feature = "serve")]
fn list_local(driver: Option<&Path>) -> Outcome {
    let found = rgpu_server::inventory::nvidia_devices(driver);
    for (ordinal, device) in found.map_err(|e| Failure::new(e.to_string()))?.iter().enumerate() {
        println!("{}", describe(ordinal, device));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "serve"))]
fn list_local(_: Option<&Path>) -> Outcome {
    Err(crate::left_out::failure("`rgpu devices --local`", "serve"))
}

/// A device in one line.
pub(crate) fn describe(ordinal: usize, device: &DeviceInfo) -> String {
    /// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
    const MULTIPROCESSORS: u32 = 16;
    let multiprocessors = device
        .attributes
        .iter()
        .find(|(number, _)| *number == MULTIPROCESSORS)
        .map_or(String::new(), |(_, count)| format!(", {count} multiprocessors"));
    let (major, minor) = device.compute_capability;
    format!(
        "{ordinal}: {}, compute capability {major}.{minor}, {}{multiprocessors}, CUDA {}.{}, {}",
        device.name,
        units::bytes(device.total_memory),
        device.driver_version / 1000,
        device.driver_version % 1000 / 10,
        uuid(device.uuid)
    )
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        hex(&bytes[..4]),
        hex(&bytes[4..6]),
        hex(&bytes[6..8]),
        hex(&bytes[8..10]),
        hex(&bytes[10..])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_one_line() {
        let device = DeviceInfo {
            name: "Some GPU".into(),
            uuid: std::array::from_fn(|i| i as u8),
            total_memory: 6 << 30,
            compute_capability: (8, 6),
            driver_version: 12040,
            attributes: vec![(16, 108)],
            ..DeviceInfo::default()
        };
        assert_eq!(
            describe(1, &device),
            "1: Some GPU, compute capability 8.6, 6.0 GiB, 108 multiprocessors, CUDA 12.4, \
             GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
        );
    }
}
