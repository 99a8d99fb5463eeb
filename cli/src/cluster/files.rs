//! The files of a cluster: what [`OwnCluster`] finds, and what only its commands and its supervisor use.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rgpu_broker::setup;
use rgpu_control::files;
use rgpu_control::token::Role;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::own_cluster::{OwnCluster, Plan, PlannedNode};

/// Where brokers listen, unless told otherwise.
const USUAL_PORT: u16 = 7080;
/// For how long nodes' tokens are good; they are issued anew at each start.
const TOKEN_VALID_S: u64 = 365 * 86_400;
/// How much of a log's end is looked through for its last line.
const LAST_BYTES: u64 = 4096;
/// A log that is longer is begun anew; the one before is kept.
const MAX_LOG: u64 = 16 << 20;

/// What the supervisor says of its processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The broker, then the nodes.
    pub members: Vec<Member>,
}

/// One of its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// `broker`, or the node's name.
    pub name: String,
    /// Its process, while there is one.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
}

impl State {
    /// What it said last; nothing where that cannot be read.
    pub(super) fn read(cluster: &OwnCluster) -> Self {
        let text = fs::read(path(cluster)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes it, so that readers find the old or the new text and nothing between.
    pub(super) fn write(&self, cluster: &OwnCluster) -> io::Result<()> {
        files::replace(&path(cluster), 0o644, &serde_json::to_vec(self)?)
    }
}

fn path(cluster: &OwnCluster) -> PathBuf {
    cluster.directory.join("state.json")
}

/// Where a node's token is.
pub(super) fn node_token(cluster: &OwnCluster, node: &str) -> PathBuf {
    cluster.directory.join("nodes").join(format!("{node}.token"))
}

/// The broker's configuration.
pub(super) fn broker_config(cluster: &OwnCluster) -> PathBuf {
    cluster.directory.join("broker/broker.toml")
}

/// Makes what the cluster needs and has not yet, and writes down what it consists of.
pub(super) fn prepare(
    cluster: &OwnCluster,
    nodes: Vec<PlannedNode>,
    port: Option<u16>,
) -> Result<Plan, Failure> {
    let directory = &cluster.directory;
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| Failure::new(format!("Cannot make the cluster's files: {path}: {e}"))
    };
    for part in ["", "nodes", "log"] {
        let part = directory.join(part);
        DirBuilder::new().recursive(true).mode(0o700).create(&part).map_err(failed(&part))?;
    }
    let about = fs::metadata(directory).map_err(failed(directory))?;
    if about.mode() & 0o077 != 0 {
        // Its tokens open everything.
        let text = format!("{} can be entered by other users: chmod 700 it", directory.display());
        return Err(Failure::new(text));
    }
    let broken = |e: setup::SetupError| Failure::new(e.to_string());
    let broker = directory.join("broker");
    if !broker_config(cluster).exists() {
        setup::init(&broker, None).map_err(broken)?;
    }
    let key = setup::read_key(&broker.join("state")).map_err(broken)?;
    for node in &nodes {
        let path = node_token(cluster, &node.name);
        let issued = setup::issue(&key, Role::Node, &node.name, TOKEN_VALID_S).map_err(broken)?;
        if path.exists() {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
        setup::write_secret(&path, &(issued.token + "\n")).map_err(broken)?;
    }
    // A plan that cannot be read is replaced.
    let last = cluster.plan().ok().flatten();
    let last = last.and_then(|plan| plan.broker.rsplit_once(':')?.1.parse().ok());
    let plan = Plan { broker: format!("127.0.0.1:{}", choose_port(port, last)?), nodes };
    let path = cluster.plan_path();
    let text = serde_json::to_vec_pretty(&plan).map_err(|e| Failure::new(e.to_string()))?;
    files::replace(&path, 0o644, &text).map_err(failed(&path))?;
    Ok(plan)
}

/// A port for the broker that nobody listens at now.
fn choose_port(asked: Option<u16>, last: Option<u16>) -> Result<u16, Failure> {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).and_then(|listener| listener.local_addr());
    if let Some(port) = asked.filter(|port| *port != 0) {
        return free(port)
            .map(|address| address.port())
            .map_err(|e| Failure::new(format!("The broker cannot listen at port {port} of 127.0.0.1: {e}")));
    }
    let candidates = last.into_iter().chain([USUAL_PORT, 0]);
    let address = candidates.filter_map(|port| free(port).ok()).next();
    address
        .map(|address| address.port())
        .ok_or_else(|| Failure::new("There is no free port on 127.0.0.1 for the broker"))
}

/// Opens the log of a process, for writing at its end.
pub(super) fn log(cluster: &OwnCluster, name: &str) -> io::Result<File> {
    let path = log_path(cluster, name);
    if fs::metadata(&path).is_ok_and(|about| about.len() > MAX_LOG) {
        fs::rename(&path, path.with_extension("log.1"))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn log_path(cluster: &OwnCluster, name: &str) -> PathBuf {
    cluster.directory.join("log").join(format!("{name}.log"))
}

/// The last line of each process's log.
pub(super) fn last_words(cluster: &OwnCluster) -> Vec<(String, String)> {
    let plan = cluster.plan().ok().flatten();
    let nodes = plan.into_iter().flat_map(|plan| plan.nodes).map(|node| node.name);
    let names = ["supervisor".to_owned(), "broker".to_owned()].into_iter().chain(nodes);
    names
        .filter_map(|name| {
            let line = last_line(&log_path(cluster, &name))?;
            Some((name, line))
        })
        .collect()
}

fn last_line(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES))).ok()?;
    let mut text = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// Removes the cluster's files, and nothing else that somebody has put among them.
pub(super) fn remove(cluster: &OwnCluster) -> Result<(), Failure> {
    let directory = &cluster.directory;
    if !cluster.plan_path().exists() {
        let text = format!("{} is no cluster's directory: it has no cluster.json", directory.display());
        return Err(Failure::new(text));
    }
    let failed = |e: io::Error| Failure::new(format!("Cannot remove {}: {e}", directory.display()));
    for part in ["broker", "nodes", "log"] {
        match fs::remove_dir_all(directory.join(part)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
    }
    for path in [path(cluster), cluster.lock_path(), cluster.plan_path()] {
        files::remove(&path).map_err(failed)?;
    }
    // What is left belongs to somebody else.
    fs::remove_dir(directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> OwnCluster {
        let path = std::env::temp_dir().join(format!("rgpu-cluster-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        OwnCluster::at(path)
    }

    fn nodes(count: usize) -> Vec<PlannedNode> {
        let node = |i| PlannedNode { name: format!("node{i}"), device: "software".into(), memory: None };
        (1..=count).map(node).collect()
    }

    #[test]
    fn keys_and_ports_stay_and_all_of_it_goes() {
        let cluster = scratch("files");
        let first = prepare(&cluster, nodes(2), Some(0)).unwrap();
        let admin = fs::read(cluster.admin_token()).unwrap();
        assert_eq!(cluster.plan().unwrap().unwrap(), first);
        for secret in [cluster.admin_token(), node_token(&cluster, "node2")] {
            assert_eq!(fs::metadata(secret).unwrap().mode() & 0o777, 0o600);
        }
        let again = prepare(&cluster, nodes(3), None).unwrap();
        assert_eq!((again.broker, again.nodes.len()), (first.broker.clone(), 3));
        assert_eq!(fs::read(cluster.admin_token()).unwrap(), admin);
        // Somebody else has the port meanwhile: another one is taken, unless this one was asked for.
        let _taken = TcpListener::bind(&first.broker).unwrap();
        assert_ne!(prepare(&cluster, nodes(1), None).unwrap().broker, first.broker);
        let port = first.broker.rsplit_once(':').unwrap().1.parse().ok();
        assert!(prepare(&cluster, nodes(1), port).unwrap_err().message.contains("cannot listen"));
        // What is not the cluster's stays.
        let foreign = cluster.directory.join("mine");
        fs::write(&foreign, "").unwrap();
        assert!(remove(&cluster).is_err());
        assert!(foreign.exists() && !cluster.admin_token().exists());
        assert!(remove(&cluster).unwrap_err().message.contains("no cluster's directory"));
        fs::remove_dir_all(&cluster.directory).unwrap();
    }

    #[test]
    fn a_directory_for_everybody_is_refused() {
        let cluster = scratch("open");
        DirBuilder::new().mode(0o755).create(&cluster.directory).unwrap();
        let failure = prepare(&cluster, nodes(1), None).unwrap_err();
        assert!(failure.message.contains("chmod 700"), "{}", failure.message);
        fs::remove_dir_all(&cluster.directory).unwrap();
    }

    #[test]
    fn the_last_words_are_found() {
        let cluster = scratch("words");
        prepare(&cluster, nodes(1), Some(0)).unwrap();
        fs::write(log_path(&cluster, "node1"), "x".repeat(10_000) + "\nfirst\nlast\n\n").unwrap();
        assert_eq!(last_words(&cluster), [("node1".into(), "last".into())]);
        fs::remove_dir_all(&cluster.directory).unwrap();
    }
}
