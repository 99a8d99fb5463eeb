//! `rgpu-kubernetes`: the parts of the Kubernetes driver.

use clap::Parser;
use rgpu_kubernetes::{controller, device_plugin, node};
use tracing_subscriber::filter::LevelFilter;

/// Pods get GPUs that rgpu's broker leases (docs/kubernetes.md)
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Publishes the pool of GPUs, and has a lease for each claim; one in a cluster
    Controller(controller::Arguments),
    /// Prepares claims for pods of its node; one on each node
    Node(node::Arguments),
    /// Offers GPUs as a resource, for clusters without dynamic resource allocation; one on each node
    DevicePlugin(device_plugin::Arguments),
}

#[tokio::main(worker_threads = 2)]
async fn main() -> std::process::ExitCode {
    let level = match std::env::var("RGPU_LOG").as_deref() {
        Ok(text) => text.parse().unwrap_or(LevelFilter::INFO),
        Err(_) => LevelFilter::INFO,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
    let done = match Command::parse() {
        Command::Controller(arguments) => controller::run(arguments).await,
        Command::Node(arguments) => node::run(arguments).await,
        Command::DevicePlugin(arguments) => device_plugin::run(arguments).await,
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rgpu-kubernetes: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
