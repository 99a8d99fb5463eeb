//! The environment variables that rgpu reads: their names, their defaults, and the one table of them all.
//!
//! `docs/environment.md` is written from [`all`]; a test compares the two, and looks through the sources for variables that have no row.
//! A variable that is set to nothing counts as not set.

use std::ffi::OsString;
use std::path::PathBuf;

/// The server whose GPUs a program uses, `HOST:PORT`, or several with commas between.
pub const SERVER_VARIABLE: &str = "RGPU_SERVER";
/// Whether a program has the software GPU inside itself.
pub const IN_PROCESS_VARIABLE: &str = "RGPU_IN_PROCESS";
/// The file with the token that a server asks for.
pub const TOKEN_FILE_VARIABLE: &str = "RGPU_TOKEN_FILE";
/// The broker, `http://HOST:PORT` or `https://HOST:PORT`.
pub const BROKER_VARIABLE: &str = "RGPU_BROKER";
/// The file with the caller's role token.
pub const BROKER_TOKEN_VARIABLE: &str = "RGPU_BROKER_TOKEN_FILE";
/// The file with certificates (PEM) that sign the broker's.
pub const BROKER_CA_VARIABLE: &str = "RGPU_BROKER_CA";
/// Whether broker and others speak without encryption over a network.
pub const BROKER_INSECURE_VARIABLE: &str = "RGPU_BROKER_INSECURE";
/// The broker's configuration.
pub const BROKER_CONFIG_VARIABLE: &str = "RGPU_BROKER_CONFIG";
/// The directory of the broker's state and key.
pub const BROKER_DATA_DIR_VARIABLE: &str = "RGPU_BROKER_DATA_DIR";
/// For how many seconds a node goes on with a lease whose time is over, while it hears nothing of its broker: a day.
pub const LEASE_GRACE_S: u64 = 86_400;
/// Where Linux's resctrl is usually mounted.
pub const RESCTRL: &str = "/sys/fs/resctrl";
/// The [ticket](crate::ticket) of a program's lease.
pub const LEASE_VARIABLE: &str = "RGPU_LEASE";
/// Which of the cluster's nodes this machine is, where its host name doesn't say.
pub const NODE_VARIABLE: &str = "RGPU_NODE";
/// Where the files of the cluster are that `rgpu cluster up` makes.
pub const CLUSTER_DIR_VARIABLE: &str = "RGPU_CLUSTER_DIR";
/// Where the NVMe devices of a program's lease are.
pub const NVME_DEVICES_VARIABLE: &str = "RGPU_NVME_DEVICES";
/// By when the programs that are started are to have ended, from when a lease is asked for.
pub const DEADLINE_VARIABLE: &str = "RGPU_DEADLINE";
/// How long they would run alone on whole devices of their own machine.
pub const ESTIMATE_VARIABLE: &str = "RGPU_ESTIMATE";
/// Whether a lease may be resized by what its program uses.
pub const HARVEST_VARIABLE: &str = "RGPU_HARVEST";
/// Where `librgpu.so` is.
pub const LIBRARY_VARIABLE: &str = "RGPU_LIBRARY";
/// Whether the program's device is a software GPU, for the libraries and tools that have to know before they ask it.
pub const SOFTWARE_TOOLS_VARIABLE: &str = "RGPU_SOFTWARE_TOOLS";
/// What is written to standard error.
pub const LOG_VARIABLE: &str = "RGPU_LOG";
/// Memory of each software GPU inside a program.
pub const SOFT_MEMORY_VARIABLE: &str = "RGPU_SOFT_MEMORY";
/// Processor cores that the software GPU inside a program uses.
pub const SOFT_WORKERS_VARIABLE: &str = "RGPU_SOFT_WORKERS";
/// How many multiprocessors the software GPU inside a program says it has.
pub const SOFT_MULTIPROCESSORS_VARIABLE: &str = "RGPU_SOFT_MULTIPROCESSORS";
/// Whether the software GPU inside a program faults in the first page beside an allocation.
pub const SOFT_EXACT_BOUNDS_VARIABLE: &str = "RGPU_SOFT_EXACT_BOUNDS";
/// Whether a software GPU runs several threads at once.
pub const VECTORS_VARIABLE: &str = "RGPU_VECTORS";
/// How many software GPUs there are inside a program.
pub const SOFT_DEVICES_VARIABLE: &str = "RGPU_SOFT_DEVICES";
/// The compute capability of the software GPU inside a program.
pub const SOFT_CAPABILITY_VARIABLE: &str = "RGPU_SOFT_CC";

/// What is looked at while kernels of a software GPU run, inside the program or at a server.
pub const CHECK_VARIABLE: &str = "RGPU_CHECK";
/// How many mistakes are reported at most.
pub const CHECK_LIMIT_VARIABLE: &str = "RGPU_CHECK_LIMIT";
/// The file that mistakes are reported in.
pub const CHECK_LOG_VARIABLE: &str = "RGPU_CHECK_LOG";
/// The file by which `rgpu check` counts the mistakes.
pub const CHECK_TALLY_VARIABLE: &str = "RGPU_CHECK_TALLY";
/// The folder where processes write down what their kernels did.
pub const PROFILE_KERNELS_VARIABLE: &str = "RGPU_PROFILE_KERNELS";
/// How long a kernel of a software GPU may run.
pub const KERNEL_LIMIT_VARIABLE: &str = "RGPU_KERNEL_LIMIT";

/// How much machine code the software GPU inside a program keeps for later programs.
pub const CODE_CACHE_VARIABLE: &str = "RGPU_CODE_CACHE";

/// How long connecting to a server may take.
pub const CONNECT_TIMEOUT_VARIABLE: &str = "RGPU_CONNECT_TIMEOUT";
/// How long copies wait for the way from one server to another.
pub const PEER_PATIENCE_VARIABLE: &str = "RGPU_PEER_PATIENCE";
/// How long the ranks of a communicator may take to come together.
pub const NCCL_TIMEOUT_VARIABLE: &str = "RGPU_NCCL_TIMEOUT";
/// What ranks know of each other that meet where `NCCL_COMM_ID` says.
pub const NCCL_SECRET_VARIABLE: &str = "RGPU_NCCL_SECRET";

/// How many seconds connecting to a server may take, where [`CONNECT_TIMEOUT_VARIABLE`] does not say: a server on which many
/// programs start at once takes its time.
pub const CONNECT_TIMEOUT_S: u64 = 20;
/// How many seconds copies wait for the way from one server to another, where [`PEER_PATIENCE_VARIABLE`] does not say.
pub const PEER_PATIENCE_S: u64 = 1;
/// How many seconds ranks may take to come together, where [`NCCL_TIMEOUT_VARIABLE`] does not say.
pub const NCCL_TIMEOUT_S: u64 = 600;
/// Memory of a software GPU in bytes, where nothing was said, and the machine has so much but not twice as much available.
pub const SOFTWARE_MEMORY: u64 = 4 << 30;
/// The compute capability of a software GPU where nothing was said: major and minor.
pub const SOFTWARE_CAPABILITY: (u32, u32) = (8, 0);
/// How many bytes of programs' GPU code a server keeps from one session to the next, where nothing was said.
pub const IMAGE_CACHE_BYTES: u64 = 1 << 30;
/// How many bytes of machine code a user's programs keep, where [`CODE_CACHE_VARIABLE`] does not say.
pub const CODE_CACHE_BYTES: u64 = 1 << 30;
/// Where a server listens, where nothing was said.
pub const SERVE_LISTEN: &str = "127.0.0.1:7070";

/// A variable's value, where it is set to something.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A variable's value as text; bytes that are no UTF-8 are replaced.
pub fn text(name: &str) -> Option<String> {
    variable(name).map(|value| value.to_string_lossy().into_owned())
}

/// A variable's value as a path.
pub fn path(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from)
}

/// The directory of this user's where rgpu keeps what can be made again: `$XDG_CACHE_HOME/rgpu` or `~/.cache/rgpu`.
pub fn cache_directory() -> Option<PathBuf> {
    let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("rgpu"))
}

/// Whether a variable says yes: is set to anything but nothing and `0`.
pub fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|value| value != "0")
}

/// How long a kernel of a software GPU may run, as the environment says; `None` for ever.
///
/// # Errors
/// What is wrong with the variable's value.
pub fn kernel_limit() -> Result<Option<std::time::Duration>, String> {
    let Some(value) = text(KERNEL_LIMIT_VARIABLE) else { return Ok(None) };
    match crate::units::parse_duration(&value) {
        Ok(limit) => Ok(Some(limit).filter(|limit| !limit.is_zero())),
        Err(error) => Err(format!("{KERNEL_LIMIT_VARIABLE}={value} is not understood: {error}")),
    }
}

/// Whether the environment allows to speak to a broker on another machine without encryption.
pub fn allows_plain_broker() -> bool {
    matches!(text(BROKER_INSECURE_VARIABLE).as_deref(), Some("1" | "true"))
}

/// Who reads a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The library in a program; so `rgpu run` hands it on.
    Program,
    /// The `rgpu` command.
    Command,
    /// `rgpu broker`; each stands for an option of it.
    Broker,
    /// rgpu's own tests.
    Tests,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The variable's name.
    pub name: &'static str,
    /// Who reads it.
    pub reader: Reader,
    /// What happens where it is not set; empty where nothing does.
    pub default: String,
    /// What it says, and in which form.
    pub meaning: &'static str,
}

/// Every variable that rgpu reads.
pub fn all() -> Vec<Setting> {
    let row = |reader, name, default: &dyn std::fmt::Display, meaning| Setting {
        name,
        reader,
        default: default.to_string(),
        meaning,
    };
    let program =
        |name, default: &dyn std::fmt::Display, meaning| row(Reader::Program, name, default, meaning);
    let command =
        |name, default: &dyn std::fmt::Display, meaning| row(Reader::Command, name, default, meaning);
    let broker = |name, default: &dyn std::fmt::Display, meaning| row(Reader::Broker, name, default, meaning);
    let tests = |name, default: &dyn std::fmt::Display, meaning| row(Reader::Tests, name, default, meaning);
    let capability = format!("{}.{}", SOFTWARE_CAPABILITY.0, SOFTWARE_CAPABILITY.1);
    vec![
        program(
            LEASE_VARIABLE,
            &"",
            "the file with the ticket of the program's lease, which `rgpu run` writes; counts for more than `RGPU_SERVER`",
        ),
        program(
            SERVER_VARIABLE,
            &"",
            "the server whose GPUs to use, `HOST:PORT`; several with commas between",
        ),
        program(
            NVME_DEVICES_VARIABLE,
            &"",
            "where the NVMe devices of the program's lease are, with commas between: for the program itself; `rgpu run` sets it",
        ),
        program(IN_PROCESS_VARIABLE, &"`0`", "`1`: the software GPU inside the program, without a server"),
        program(
            SOFTWARE_TOOLS_VARIABLE,
            &"`1` with `RGPU_IN_PROCESS`, else `0`",
            "`1`: the device is a software GPU, so that what makes machine code (nvJitLink, NVRTC) is asked for PTX instead; `rgpu run` sets it",
        ),
        program(TOKEN_FILE_VARIABLE, &"", "the file with the token that the server asks for"),
        program("RGPU_TRANSPORT", &"`auto`", "how to talk to the server: `auto`, `shm`, `tcp` or `rdma`"),
        program("RGPU_RDMA_DEVICE", &"the first that works", "the RDMA device to use; servers read it, too"),
        program("RGPU_ENCRYPT", &"`0`", "`1`: what leaves the machine is encrypted (TLS)"),
        program(
            "RGPU_TLS_FINGERPRINT",
            &"",
            "certificates of servers that may be used, `sha256:…`, with commas between; encrypts, too",
        ),
        program(
            "RGPU_TLS_CA",
            &"",
            "a file with certificates (PEM) that sign those of servers that may be used; encrypts, too",
        ),
        program(
            CONNECT_TIMEOUT_VARIABLE,
            &CONNECT_TIMEOUT_S,
            "how many seconds connecting may take, from 1 to 3600",
        ),
        program(
            PEER_PATIENCE_VARIABLE,
            &PEER_PATIENCE_S,
            "how many seconds copies between servers wait for a way that leads past the program",
        ),
        program(
            NCCL_TIMEOUT_VARIABLE,
            &NCCL_TIMEOUT_S,
            "how long the ranks of an NCCL communicator may take to come together",
        ),
        program(
            NCCL_SECRET_VARIABLE,
            &"",
            "with `NCCL_COMM_ID`: the same 16 characters or more in all ranks, by which they know each other",
        ),
        program("RGPU_STATS_FILE", &"", "a file for counts of what was sent; `rgpu run --stats` sets it"),
        program("RGPU_TRACE", &"", "a file for every call with its times at both ends, for Perfetto"),
        program(
            SOFT_MEMORY_VARIABLE,
            &format!("half of what is available, at least {}G", SOFTWARE_MEMORY >> 30),
            "with `RGPU_IN_PROCESS`: memory of each software GPU, such as `512M`. Control groups are kept to; a machine that has less in all gives all",
        ),
        program(
            CODE_CACHE_VARIABLE,
            &format!("`{}G`", CODE_CACHE_BYTES >> 30),
            "with `RGPU_IN_PROCESS`: how much machine code of kernels is kept in `$XDG_CACHE_HOME/rgpu/code`, else `~/.cache/rgpu/code`; `0` keeps nothing. Servers keep it beside programs' images: `rgpu serve --image-cache`",
        ),
        program(
            SOFT_WORKERS_VARIABLE,
            &"all",
            "with `RGPU_IN_PROCESS`: processor cores that the software GPU uses",
        ),
        program(
            SOFT_MULTIPROCESSORS_VARIABLE,
            &"one for each core that it uses",
            "with `RGPU_IN_PROCESS`: how many multiprocessors the software GPU says it has, from 1 to 224",
        ),
        program(
            SOFT_EXACT_BOUNDS_VARIABLE,
            &"`0`",
            "with `RGPU_IN_PROCESS`: `1`: kernels fault in the first page of 4 KiB beside an allocation, and not only outside of the pages of 2 MiB round it, as on a GPU (`rgpu serve --exact-bounds`)",
        ),
        program(
            VECTORS_VARIABLE,
            &"`auto`",
            "with `RGPU_IN_PROCESS`, or for `rgpu serve`, where it has to be set for that: `auto`: the software GPU compiles a kernel that has taken long enough once more, in the background, for eight threads at once, one that has taken longer for sixteen, and then for a whole warp of 32, and runs it so where that takes less time; `first`: it does so before a kernel's first launch, and always, for eight; `wide`: likewise, for sixteen where the blocks have rows of so many; `warp`: likewise, for a whole warp where the blocks consist of those; `off`: one thread after another. What was compiled so is kept (`RGPU_CODE_CACHE`) and found sooner the next time. The machine needs AVX2 and, to compile, libLLVM 14 to 23; a kernel that cannot be translated stays as it is",
        ),
        program(SOFT_DEVICES_VARIABLE, &1, "with `RGPU_IN_PROCESS`: number of software GPUs"),
        program(
            SOFT_CAPABILITY_VARIABLE,
            &format!("`{capability}`"),
            "with `RGPU_IN_PROCESS`: compute capability of the software GPU",
        ),
        program(
            CHECK_VARIABLE,
            &"",
            "what is looked at while kernels of a software GPU run, inside the program or at a server, with commas between: `memcheck`, `initcheck`, `racecheck`, `synccheck`, `leaks`; `rgpu check` sets it",
        ),
        program(CHECK_LIMIT_VARIABLE, &"all", "with `RGPU_CHECK`: how many mistakes are reported at most"),
        program(
            CHECK_LOG_VARIABLE,
            &"standard error",
            "with `RGPU_CHECK`: the file to which reports of mistakes are added",
        ),
        program(
            CHECK_TALLY_VARIABLE,
            &"",
            "with `RGPU_CHECK`: a file to which a line is added for each mistake, by which `rgpu check` counts them; the program says nothing of their number then",
        ),
        program(
            PROFILE_KERNELS_VARIABLE,
            &"",
            "with `RGPU_IN_PROCESS`: a folder to which each process adds a file, when it ends, with what its kernels did; `rgpu profile-kernels` sets it",
        ),
        program(
            KERNEL_LIMIT_VARIABLE,
            &"none",
            "how long a kernel of a software GPU may run, in seconds or such as `500ms`: one that runs for longer ends with the error 702 (`cudaErrorLaunchTimeout`). Read by programs with `RGPU_IN_PROCESS`, and by `rgpu serve`",
        ),
        program(
            LOG_VARIABLE,
            &"",
            "what is written to standard error. A program writes what goes wrong where it is set to anything but `0` and `off`. `rgpu serve` and `rgpu broker` write the levels that it names, for all targets or for single ones: `debug`, `info,rgpu_server::peer=trace`; `info` where it is not set",
        ),
        command(
            BROKER_VARIABLE,
            &"",
            "the broker, `http://HOST:PORT` or `https://HOST:PORT`, where `--broker` is not given",
        ),
        command(
            BROKER_TOKEN_VARIABLE,
            &"",
            "the file with the token for the broker, where `--broker-token-file` is not given",
        ),
        command(
            BROKER_CA_VARIABLE,
            &"the machine's own",
            "a file with certificates (PEM) that sign the broker's, where `--broker-ca` is not given",
        ),
        command(
            CLUSTER_DIR_VARIABLE,
            &"`$XDG_STATE_HOME/rgpu/cluster`, else `~/.local/state/rgpu/cluster`",
            "where the files of this machine's own cluster are (`rgpu cluster up`), which is used where no broker and no server is named",
        ),
        command(
            DEADLINE_VARIABLE,
            &"none",
            "how long after asking for a lease the program is to have ended, such as `10m`, where `--deadline` is not given",
        ),
        command(
            ESTIMATE_VARIABLE,
            &"what the broker has learnt",
            "how long the program would run alone on whole GPUs of its own machine, where `--estimate` is not given",
        ),
        command(NODE_VARIABLE, &"the broker recognises it", "which of the cluster's nodes this machine is"),
        command(
            HARVEST_VARIABLE,
            &"`0`",
            "`1`: the broker may resize the lease by what the program uses, as `rgpu run --harvest` says",
        ),
        command(LIBRARY_VARIABLE, &"beside the command, else `../lib`", "where `librgpu.so` is"),
        broker(BROKER_CONFIG_VARIABLE, &"", "the configuration: `--config`"),
        broker(
            BROKER_DATA_DIR_VARIABLE,
            &"`/var/lib/rgpu-broker`",
            "the directory of state and key: `--data-dir`",
        ),
        broker("RGPU_BROKER_LISTEN", &"`127.0.0.1:7080`", "where it listens: `--listen`"),
        broker(
            BROKER_INSECURE_VARIABLE,
            &"`false`",
            "beyond this machine without TLS: `--insecure`. Heeded as `--broker-insecure` by those who speak to a broker, too",
        ),
        broker("RGPU_BROKER_OPEN_METRICS", &"`false`", "`/metrics` without a token: `--open-metrics`"),
        broker(
            "RGPU_BROKER_LEASE_TTL_S",
            &60,
            "after how many seconds a lease ends that is not renewed: `--lease-ttl-s`",
        ),
        broker(
            "RGPU_BROKER_NODE_TIMEOUT_S",
            &6,
            "after how many silent seconds a node is lost: `--node-timeout-s`",
        ),
        broker("RGPU_BROKER_HEARTBEAT_MS", &1000, "how often nodes speak: `--heartbeat-ms`"),
        broker(
            "RGPU_BROKER_CLIENT_NIC_MBPS",
            &10_000,
            "network of machines that are no nodes, in Mbit/s: `--client-nic-mbps`",
        ),
        broker("RGPU_BROKER_POLICY", &"`drmaestro`", "the policy that decides: `--policy`"),
        broker(
            "RGPU_BROKER_DEFAULT_PROFILE",
            &"",
            "the profile of programs that name none: `--default-profile`",
        ),
        broker("RGPU_BROKER_TLS_CERTIFICATE", &"", "the broker's certificate (PEM): `--tls-certificate`"),
        broker("RGPU_BROKER_TLS_KEY", &"", "its private key (PEM): `--tls-key`"),
        broker(
            "RGPU_BROKER_TLS_CLIENT_CA",
            &"",
            "the authority (PEM) that signs clients' certificates: `--tls-client-ca`",
        ),
        command(
            "RGPU_KUBERNETES_SECRET_FILE",
            &"none",
            "the file with the secret that the parts of the Kubernetes driver share: `rgpu-kubernetes --secret-file` (docs/kubernetes.md)",
        ),
        tests(
            "RGPU_TEST_BINARIES",
            &"built first",
            "the directory with `rgpu` and `librgpu.so` that the end-to-end tests use",
        ),
        tests("RGPU_TEST_KEEP", &"", "anything: keep the files of test clusters"),
        tests("RGPU_TEST_SCREENSHOTS", &"", "a folder: keep the screenshots of the broker's web page there"),
        tests(
            "RGPU_TEST_KEPT_CODE",
            &"",
            "the folder in which a process of the software GPU's tests keeps compiled kernels; they set it themselves",
        ),
        tests(
            "RGPU_TEST_LOG",
            &"",
            "where a shell that the end-to-end tests start writes its standard error; they set it themselves",
        ),
        tests(
            "RGPU_TEST_DRIVER",
            &"",
            "a driver's library, such as `libcuda.so.1`: opcode tests, random kernels and the NVIDIA device's cases run on its GPU (docs/gpu-check.md)",
        ),
        tests("RGPU_TEST_CASE", &"", "the case that a process of these tests is for; they set it themselves"),
        tests("RGPU_WRITE_DOCS", &"", "anything: write pages like this one instead of comparing them"),
        tests("RGPU_FUZZ_ROUNDS", &3000, "how many random instructions the opcode tests try"),
        tests("RGPU_PROGRAMS", &150, "how many random kernels they run"),
        tests("RGPU_FIRST_PROGRAM", &0, "the number of the first"),
        tests(
            "RGPU_FUZZ_COUNT",
            &1_000_000,
            "how many launches `cargo xtask fuzz-kernels` executes, and how many kernels `cargo xtask kernels` compares; they set these themselves",
        ),
        tests("RGPU_FUZZ_EACH", &100, "how many of them are of one kernel"),
        tests("RGPU_FUZZ_SEED", &1_000_000, "the seed of the first kernel"),
        tests("RGPU_FUZZ_NOTE", &"", "a file for the seed of the kernel that is running"),
        tests(
            "RGPU_SUITE_RESULTS",
            &"",
            "the file for what came of each test of a framework's suite; `cargo xtask frameworks --suites` sets these",
        ),
        tests("RGPU_SUITE_ONE_IN", &1, "one test of how many is run"),
    ]
}

/// The page `docs/environment.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Environment variables\n\n\
         Every variable that rgpu reads. One that is set to nothing counts as not set. Sizes, times, rates and parts of a whole are written \
         the\nsame way everywhere, in options, in the broker's configuration and here:\n\n\
         | what | examples | meaning |\n| --- | --- | --- |\n\
         | size | `4096`, `512M`, `2GiB`, `1 g` | bytes; K, M, G, T and KiB, MiB, GiB, TiB in either case are powers of 1024 |\n\
         | time | `90`, `90s`, `1.5h`, `200ms` | seconds, unless `us`, `ms`, `s`, `m` or `min`, `h` or `d` follows |\n\
         | rate | `200`, `200Mbit`, `1.5 Gbit/s` | Mbit/s (10^6 bits), unless `Kbit`, `Mbit` or `Gbit` follows |\n\
         | part | `25%`, `0.25` | of a whole, from 0 to 1 |\n\n\
         This page is written from `control/src/settings.rs`; after changing that, run\n\
         `RGPU_WRITE_DOCS=1 cargo test -p rgpu --test environment`.\n",
    );
    let parts = [
        (
            Reader::Program,
            "Read by the library in a program",
            "`rgpu run` has options for most of them, and sets them for the program.",
        ),
        (Reader::Command, "Read by the command", "An option on the command line counts for more."),
        (
            Reader::Broker,
            "Read by `rgpu broker`",
            "Options count for more, the configuration's file for less ([broker.md](broker.md)).",
        ),
        (Reader::Tests, "Read by rgpu's own tests", "They change nothing in rgpu itself."),
    ];
    for (reader, title, text) in parts {
        page += &format!("\n## {title}\n\n{text}\n\n| variable | default | meaning |\n| --- | --- | --- |\n");
        for setting in all().iter().filter(|setting| setting.reader == reader) {
            page += &format!("| `{}` | {} | {} |\n", setting.name, setting.default, setting.meaning);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_has_one_row() {
        let mut names: Vec<&str> = all().iter().map(|setting| setting.name).collect();
        let rows = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows);
        for setting in all() {
            assert!(setting.name.starts_with("RGPU_") && !setting.meaning.is_empty(), "{setting:?}");
            assert!(page().contains(&format!("| `{}` |", setting.name)), "{setting:?}");
        }
    }

    #[test]
    fn what_is_not_set_is_nothing() {
        assert_eq!((variable("RGPU_THAT_NOBODY_SETS"), text("RGPU_THAT_NOBODY_SETS")), (None, None));
        assert!(path("RGPU_THAT_NOBODY_SETS").is_none() && !is_on("RGPU_THAT_NOBODY_SETS"));
        assert!(path("CARGO_MANIFEST_DIR").is_some() && is_on("CARGO_MANIFEST_DIR"));
    }
}
