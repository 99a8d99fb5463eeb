//! `rgpu serve`: lets programs on other machines use this machine's GPU.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rgpu_control::api::NvmeReport;
use rgpu_control::settings;
use rgpu_control::units::{parse_bytes, parse_capability, parse_duration, parse_mbps};
use rgpu_protocol::transport::Choice;
use rgpu_server::agent::AgentOptions;
use rgpu_server::nvme::{COMMAND_TIME, NvmeOptions, Template};
use rgpu_server::{DeviceSpec, Encryption, Options, ProcessorOptions, TlsOptions};

use crate::control::{BrokerArguments, Identity, is_folder, parse_identity};
use crate::joined::Joined;
use crate::{Failure, Outcome, folders};

/// Serve GPUs to CUDA programs: one process of its own for each.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu serve --listen 127.0.0.1:7070 --device software\n  \
    rgpu serve --listen 0.0.0.0:7070 --device software:2 --memory 4G --token-file token\n  \
    rgpu serve --listen 0.0.0.0:7070 --device nvidia --token-file token\n  \
    rgpu serve --listen 0.0.0.0:7070 --broker https://broker:7080 --broker-token-file node.token\n\n\
    Prints one line with the address when it listens; port 0 picks a free port.")]
pub(crate) struct Arguments {
    /// Where to listen; other than on this machine itself, a token is needed, or --insecure
    #[arg(long, value_name = "ADDR", default_value = settings::SERVE_LISTEN)]
    listen: String,
    /// The GPUs: `nvidia` for the machine's own, `software` for a software GPU (each also with `:N` for N of them),
    /// or `auto`: NVIDIA's where there are any, else a software GPU
    #[arg(long, value_name = "KIND[:N]", default_value = "auto")]
    device: DeviceSpec,
    /// The NVIDIA driver's library, where it is not where drivers are [default: looked for]
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Folders with NVIDIA's mathematical libraries (cuBLAS, cuFFT, ...), where they are not where such libraries are; each with its
    /// subfolders' `lib`, as Python's packages have them [default: looked for]
    #[arg(long, value_name = "FOLDER[:FOLDER...]")]
    libraries: Option<std::ffi::OsString>,
    /// How NVIDIA GPUs are divided among leases: by `pacing` launches; by NVIDIA's multi-process service (`mps`), which has to
    /// run; as instances of partitioned GPUs (`mig`) and no whole ones; or `auto`: instances as they are, whole GPUs by the
    /// service where it runs, else by pacing
    #[arg(long, value_name = "HOW", default_value = "auto")]
    partition: rgpu_server::Partition,
    #[arg(help = format!("Memory of each GPU, shared by all applications, such as 512M or 2G [default: all; of a software GPU half of what the machine \
         has available, at least {}G]", settings::SOFTWARE_MEMORY >> 30),
        long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Processor cores that each application's software GPU uses [default: all]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// Multiprocessors that the software GPU says it has, for programs that want more than its workers [default: one for each worker]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=224))]
    multiprocessors: Option<u32>,
    /// Let kernels on software GPUs fault in the first page of 4 KiB beside an allocation. As GPUs look at pages of 2 MiB, accesses in
    /// those round an allocation otherwise reach zeros, and what was written there
    #[arg(long)]
    exact_bounds: bool,
    #[arg(help = format!("Compute capability that the software GPU reports [default: {}.{}]",
        settings::SOFTWARE_CAPABILITY.0, settings::SOFTWARE_CAPABILITY.1),
        long, value_name = "X.Y", value_parser = parse_capability)]
    compute_capability: Option<(u32, u32)>,
    #[arg(long, value_name = "KIND", default_value = "auto", help = Choice::help("Which transports to offer"))]
    transport: Choice,
    /// The most applications that are served at a time
    #[arg(long, value_name = "N")]
    max_sessions: Option<usize>,
    /// The most memory that the process of each application may have beside what is on the GPUs, such as 4G; 0 for any amount
    /// [default: half of the machine's; any amount with NVIDIA GPUs]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    session_memory: Option<u64>,
    /// The most threads of each application's process [default: 512, and two for each worker of a software GPU]
    #[arg(long, value_name = "N")]
    session_threads: Option<u32>,
    /// Serve NVIDIA GPUs on which kernels can follow pointers into all memory of the process that serves their program
    #[arg(long)]
    allow_host_pointers: bool,
    /// Where to keep programs' GPU code, and what the software GPU makes of it, from one session to the next [default: ~/.cache/rgpu/images]
    #[arg(long, value_name = "DIR")]
    image_cache: Option<PathBuf>,
    /// How much of it to keep; 0 keeps nothing
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = IMAGE_CACHE_SIZE)]
    image_cache_size: u64,
    /// Servers that programs' copies may go to without passing through the program, separated by commas: HOST, HOST:PORT,
    /// or `any` [default: those that the broker names; on a loopback address, servers on loopback addresses]
    #[arg(long, value_name = "SERVER", value_delimiter = ',')]
    peers: Vec<rgpu_server::peer::rule::Named>,
    /// A file with a token that clients must know
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let anybody who reaches the address use the GPUs, which means to run code on this machine
    #[arg(long, conflicts_with = "token_file")]
    insecure: bool,
    /// Encrypt connections with programs on other machines: `off`, `offer` to those that ask for it, or `require`
    /// [default: offer with --broker, else off]
    #[arg(long, value_name = "WHEN")]
    tls: Option<Encryption>,
    /// The certificate (PEM) to encrypt with; it and its key are made if neither file exists [default: one is made at each start]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    cluster: Cluster,
}

/// [`settings::IMAGE_CACHE_BYTES`] as people write it.
const IMAGE_CACHE_SIZE: &str = "1G";

/// The cluster that this machine's GPUs belong to.
#[derive(clap::Args)]
#[command(next_help_heading = "With a broker")]
struct Cluster {
    /// The broker that leases the GPUs: programs then need leases of it. Or the folder that `rgpu join` has written
    #[arg(long, value_name = "URL", group = "authority")]
    broker: Option<String>,
    /// Without talking to a broker: the file with its public key, with which leases for --node are checked
    #[arg(long, value_name = "FILE", requires = "node", group = "authority")]
    broker_key: Option<PathBuf>,
    /// The file with the node's token for the broker (`rgpu broker token --role node --name NAME`)
    #[arg(long, value_name = "FILE", requires = "broker")]
    broker_token_file: Option<PathBuf>,
    /// Certificates (PEM) that sign the broker's [default: RGPU_BROKER_CA, else the machine's own]
    #[arg(long, value_name = "FILE", requires = "broker")]
    broker_ca: Option<PathBuf>,
    /// This node's certificate and private key (PEM), for a broker that asks for them
    #[arg(long, value_name = "CERT,KEY", value_parser = parse_identity, requires = "broker")]
    broker_identity: Option<Identity>,
    /// Speak to a broker on another machine without encryption: others on the way can then read this node's token, and give
    /// it orders [default: RGPU_BROKER_INSECURE]
    #[arg(long, requires = "broker")]
    broker_insecure: bool,
    /// For how long a lease goes on whose time is over, while the broker cannot be heard, such as 12h [default: 1d]
    #[arg(long, value_name = "TIME", requires = "broker", value_parser = parse_duration)]
    lease_grace: Option<Duration>,
    /// The node's name [default: the one in the token]
    #[arg(long, value_name = "NAME", requires = "authority")]
    node: Option<String>,
    /// Where programs on other machines reach this server [default: where it listens; at 0.0.0.0 the address that faces the
    /// broker]
    #[arg(long, value_name = "HOST:PORT", requires = "broker")]
    advertise: Option<String>,
    /// What the network interface can carry, in Mbit/s [default: what its driver says, else 1000]
    #[arg(long, value_name = "N", requires = "broker", value_parser = clap::value_parser!(u64).range(1..))]
    nic_mbps: Option<u64>,
    /// The switch that the machine is connected to, as the broker's configuration names it
    #[arg(long, value_name = "NAME", requires = "broker")]
    switch: Option<String>,
    /// An NVMe device that leases can have besides, with its capacity and bandwidth, such as nvme0n1=1T,25Gbit; can be given
    /// several times
    #[arg(long, value_name = "NAME=CAPACITY,BANDWIDTH", value_parser = parse_nvme, requires_all = ["broker", "nvme_attach", "nvme_detach"])]
    nvme: Vec<NvmeReport>,
    /// The command that brings an NVMe device to the host of a lease, without a shell: words, in which {device}, {lease}, {target}
    /// (this node) and {host} are filled in. Its last line of output says where the device is there
    #[arg(long, value_name = "COMMAND", requires = "nvme")]
    nvme_attach: Option<Template>,
    /// The command that takes it back
    #[arg(long, value_name = "COMMAND", requires = "nvme")]
    nvme_detach: Option<Template>,
    /// How long each of them may take [default: 30s]
    #[arg(long, value_name = "TIME", requires = "nvme", value_parser = parse_duration)]
    nvme_time: Option<Duration>,
    /// The folder where it is written down which are attached [default: ~/.local/state/rgpu]
    #[arg(long, value_name = "DIR", requires = "nvme")]
    nvme_state: Option<PathBuf>,
    #[arg(help = format!("Where resctrl is mounted, by which leases are given cache ways and memory bandwidth [default: {}]",
        settings::RESCTRL),
        long, value_name = "FOLDER", requires = "broker")]
    resctrl: Option<PathBuf>,
    /// A cgroup (version 2) that was given to this server, in which leases are given weights [default: none, and no weights]
    #[arg(long, value_name = "FOLDER", requires = "broker")]
    cgroup: Option<PathBuf>,
}

/// An NVMe device, as `--nvme` describes it.
fn parse_nvme(text: &str) -> Result<NvmeReport, String> {
    let (name, amounts) =
        text.split_once('=').ok_or("give NAME=CAPACITY,BANDWIDTH, such as nvme0n1=1T,25Gbit")?;
    let (capacity, bandwidth) =
        amounts.split_once(',').ok_or("give a capacity and a bandwidth, such as 1T,25Gbit")?;
    let capacity = parse_bytes(capacity).map_err(|e| e.to_string())?;
    let bandwidth_mbps = parse_mbps(bandwidth).map_err(|e| e.to_string())?;
    Ok(NvmeReport { name: name.trim().to_owned(), capacity, bandwidth_mbps })
}

impl Cluster {
    fn processors(&self) -> ProcessorOptions {
        let default = ProcessorOptions::default();
        ProcessorOptions {
            resctrl: self.resctrl.clone().unwrap_or(default.resctrl),
            cgroup: self.cgroup.clone(),
        }
    }

    fn nvmes(&self) -> Result<Option<NvmeOptions>, Failure> {
        let (Some(attach), Some(detach)) = (&self.nvme_attach, &self.nvme_detach) else { return Ok(None) };
        let state = self.nvme_state.clone().or_else(folders::state);
        let state = state.ok_or_else(|| {
            Failure::with_status(
                "Say with --nvme-state where to write down which NVMe devices are attached",
                2,
            )
        })?;
        let (devices, time) = (self.nvme.clone(), self.nvme_time.unwrap_or(COMMAND_TIME));
        Ok(Some(NvmeOptions { devices, attach: attach.clone(), detach: detach.clone(), time, state }))
    }

    fn agent(self) -> Result<Option<AgentOptions>, Failure> {
        let nvmes = self.nvmes()?;
        let Some(broker) = self.broker.clone() else { return Ok(None) };
        let known = if is_folder(&broker) {
            Joined(broker.clone().into()).arguments()?
        } else {
            BrokerArguments::default()
        };
        let token_file = self.broker_token_file.or(known.broker_token_file).ok_or_else(|| {
            let text = "--broker URL needs the node's token, --broker-token-file FILE (or join with a line of the administrator's: \
                        `rgpu join`)";
            Failure::with_status(text, 2)
        })?;
        let identity = self.broker_identity.or(known.broker_identity);
        Ok(Some(AgentOptions {
            broker: known.broker.unwrap_or(broker),
            token_file,
            node: self.node,
            advertise: self.advertise,
            nic_mbps: self.nic_mbps,
            switch: self.switch,
            ca: self.broker_ca.or(known.broker_ca).or_else(|| settings::path(settings::BROKER_CA_VARIABLE)),
            identity: identity.map(|identity| (identity.certificate, identity.key)),
            plain: self.broker_insecure || known.broker_insecure || settings::allows_plain_broker(),
            nvmes,
        }))
    }
}

/// Serves until it is told to stop.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    crate::log::to_stderr();
    let mut options = Options {
        listen: arguments.listen,
        device: arguments.device,
        token_file: arguments.token_file,
        insecure: arguments.insecure,
        transport: arguments.transport,
        peers: arguments.peers,
        image_cache: arguments.image_cache.or_else(|| Some(settings::cache_directory()?.join("images"))),
        image_cache_bytes: arguments.image_cache_size,
        broker_key: arguments.cluster.broker_key.clone().zip(arguments.cluster.node.clone()),
        lease_grace: arguments.cluster.lease_grace.unwrap_or(Duration::from_secs(settings::LEASE_GRACE_S)),
        processors: arguments.cluster.processors(),
        agent: arguments.cluster.agent()?,
        tls: TlsOptions {
            encryption: arguments.tls,
            files: arguments.tls_certificate.zip(arguments.tls_key),
        },
        ..Options::default()
    };
    options.device.driver = arguments
        .driver
        .map(std::path::absolute)
        .transpose()
        .map_err(|e| Failure::with_status(format!("The driver's path cannot be understood: {e}"), 2))?;
    let folders = arguments.libraries.as_deref().map(std::env::split_paths).into_iter().flatten();
    options.device.libraries = folders
        .map(std::path::absolute)
        .collect::<Result<_, _>>()
        .map_err(|e| Failure::with_status(format!("A folder of libraries cannot be understood: {e}"), 2))?;
    options.device.memory = arguments.memory.unwrap_or(options.device.memory);
    options.device.partition = arguments.partition;
    options.device.allow_host_pointers = arguments.allow_host_pointers;
    options.session_memory = arguments.session_memory;
    options.session_threads = arguments.session_threads;
    options.device.workers = arguments.workers.unwrap_or(options.device.workers);
    options.device.multiprocessors = arguments.multiprocessors.unwrap_or(0);
    rgpu_control::settings::kernel_limit().map_err(Failure::new)?;
    options.device.exact_bounds = arguments.exact_bounds;
    options.device.compute_capability =
        arguments.compute_capability.unwrap_or(options.device.compute_capability);
    options.max_sessions = arguments.max_sessions.unwrap_or(options.max_sessions);
    rgpu_server::serve(options).map_err(|e| Failure::new(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// Serves one application.
pub(crate) fn app_server() -> Outcome {
    Ok(rgpu_server::app_server_main())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn nvme_devices_are_described_with_what_they_have() {
        let nvme = parse_nvme("nvme0n1=1T,25Gbit").unwrap();
        assert_eq!((nvme.name.as_str(), nvme.capacity, nvme.bandwidth_mbps), ("nvme0n1", 1 << 40, 25_000));
        for bad in ["nvme0n1", "nvme0n1=1T", "nvme0n1=much,1Gbit", "nvme0n1=1T,fast"] {
            assert!(parse_nvme(bad).is_err(), "{bad}");
        }
        let line = "serve --broker http://b:1 --broker-token-file t --nvme a=1G,1Gbit";
        let parse = |more: &str| {
            Line::try_parse_from(format!("{line} {more}").split_whitespace())
                .map(|line| line.arguments.cluster)
        };
        assert!(parse("").is_err() && parse("--nvme-attach a").is_err(), "both commands are needed");
        assert!(parse("--nvme-attach a{x} --nvme-detach b").is_err());
        let given =
            parse("--nvme b=2G,1Gbit --nvme-attach a{lease} --nvme-detach b --nvme-state /s").unwrap();
        let options = given.nvmes().unwrap().unwrap();
        assert_eq!((options.devices.len(), options.time), (2, COMMAND_TIME));
    }

    #[test]
    fn defaults_are_those_of_the_server() {
        let line = Line::try_parse_from(["serve"]).unwrap().arguments;
        assert_eq!(line.image_cache_size, settings::IMAGE_CACHE_BYTES);
        assert_eq!(line.image_cache_size, Options::default().image_cache_bytes);
        let help = <Line as clap::CommandFactory>::command().render_long_help().to_string();
        let device = DeviceSpec::default();
        let (major, minor) = device.compute_capability;
        let shown = [
            format!("at least {}G]", device.memory >> 30),
            format!("[default: {major}.{minor}]"),
            format!("[default: {}]", settings::SERVE_LISTEN),
        ];
        for part in shown {
            assert!(help.contains(&part), "{part}: {help}");
        }
    }
}
