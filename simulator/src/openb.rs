//! Loads clusters and pods in the CSV format of the `openb` production traces (GPU sharing, 2023).
//!
//! Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli` and optionally
//! `gpu_spec` (models that will do, joined by `|`), `qos`, `pod_phase`, `creation_time`, `deletion_time`,
//! `scheduled_time` (seconds).

use std::collections::HashSet;
use std::path::Path;

use rgpu_placement::{
    Cluster, ClusterBuilder, DeviceRequest, DeviceSpec, Error as PlacementError, Job, JobId, ModelSet,
    NodeSpec, Task, WHOLE,
};

use crate::error::{Error, Result};
use crate::table::Table;

/// What the format does not say and a simulation with remote devices must assume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// Mbit/s that a whole remote GPU puts on the network; a part of a GPU puts its part.
    pub traffic_mbps: u64,
    /// A NIC's Mbit/s for each GPU of its node, rounded up to a speed that NICs have.
    pub nic_mbps_per_gpu: u64,
}

impl Default for Assumptions {
    /// 2 Gbit/s a remote GPU, somewhat above the mean of the Rodinia profiles; 12.5 Gbit/s of NIC a GPU, so
    /// 100 Gbit/s for eight GPUs, 50 for four, 25 for two or one.
    fn default() -> Assumptions {
        Assumptions { traffic_mbps: 2_000, nic_mbps_per_gpu: 12_500 }
    }
}

impl Assumptions {
    /// The NIC assumed for a node with so many GPUs.
    pub fn nic_mbps(&self, gpus: usize) -> u64 {
        let wanted = self.nic_mbps_per_gpu.saturating_mul(gpus as u64);
        let speeds = [10_000, 25_000, 50_000, 100_000, 200_000, 400_000];
        speeds.into_iter().find(|speed| *speed >= wanted).unwrap_or(400_000)
    }
}

/// GPU memory in MiB of the models in the trace whose name is the vendor's. The pods name no GPU memory: this is for
/// listings only.
fn gpu_memory_mib(model: &str) -> u64 {
    match model {
        "V100M32" => 32 * 1024,
        "A10" => 24 * 1024,
        _ => 16 * 1024,
    }
}

/// A pod of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name, unique in the trace.
    pub name: String,
    /// Thousandths of cores.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// How many GPUs.
    pub gpus: u16,
    /// Thousandths of each, 1000 if there are several.
    pub gpu_milli: u16,
    /// The models that will do; empty: any.
    pub models: Vec<String>,
    /// When it was created, in seconds.
    pub created_s: u64,
    /// When it was deleted, if it was.
    pub deleted_s: Option<u64>,
}

impl Pod {
    /// Thousandths of GPUs in all.
    pub fn gpu_demand(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }

    /// The pod as a task for a cluster.
    pub fn task(&self, cluster: &Cluster, assumptions: &Assumptions) -> Task {
        let task = Task::new(self.cpu_milli, self.memory_mib);
        if self.gpus == 0 {
            return task;
        }
        let models = match self.models.as_slice() {
            [] => ModelSet::ANY,
            names => {
                let known = names.iter().filter_map(|name| cluster.model(name));
                known.fold(ModelSet::EMPTY, ModelSet::with)
            }
        };
        let traffic = assumptions.traffic_mbps * u64::from(self.gpu_milli) / u64::from(WHOLE);
        let request = DeviceRequest {
            milli: self.gpu_milli,
            traffic_mbps: traffic,
            models,
            ..DeviceRequest::gpus(self.gpus)
        };
        task.with(request)
    }

    /// The pod as a job that never ends by itself.
    pub fn job(&self, id: JobId, cluster: &Cluster, assumptions: &Assumptions) -> Job {
        Job::new(id, self.name.clone(), self.task(cluster, assumptions))
    }
}

const NODE_COLUMNS: [&str; 5] = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
const POD_COLUMNS: [&str; 5] = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
const POD_OPTIONAL: [&str; 6] =
    ["gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time"];

/// Loads a node list.
pub fn load_nodes(path: &Path, assumptions: &Assumptions) -> Result<Cluster> {
    nodes(&Table::read(path, &NODE_COLUMNS, &[])?, assumptions)
}

/// Loads a pod list.
pub fn load_pods(path: &Path) -> Result<Vec<Pod>> {
    pods(&Table::read(path, &POD_COLUMNS, &POD_OPTIONAL)?)
}

fn nodes(table: &Table, assumptions: &Assumptions) -> Result<Cluster> {
    let mut specs = Vec::with_capacity(table.rows().len());
    for row in table.rows() {
        let gpus: u16 = row.value("gpu")?;
        let mut spec = NodeSpec::new(row.name("sn")?, row.value("cpu_milli")?, row.value("memory_mib")?)
            .with_nic(assumptions.nic_mbps(gpus.into()));
        if gpus > 0 {
            let model = row.name("model")?;
            spec = spec.with_devices(gpus.into(), DeviceSpec::gpu(model, gpu_memory_mib(model)));
        }
        specs.push((row.line(), spec));
    }
    build(table.path(), specs)
}

/// Builds a cluster; a complaint about a node names its line.
pub(crate) fn build(path: &Path, specs: Vec<(u64, NodeSpec)>) -> Result<Cluster> {
    let mut lines = std::collections::HashMap::new();
    for (line, spec) in &specs {
        if let Some(before) = lines.insert(spec.name.clone(), *line) {
            return Err(Error::row(
                path,
                *line,
                format!("the node {:?} is already in line {before}", spec.name),
            ));
        }
    }
    let cluster = ClusterBuilder::new().nodes(specs.into_iter().map(|(_, spec)| spec)).build();
    cluster.map_err(|error| match &error {
        PlacementError::EmptyCluster => Error::file(path, "there are no nodes"),
        _ => {
            let message = error.to_string();
            let line = lines.iter().find(|(name, _)| message.contains(&format!("node {name:?}")));
            match line {
                Some((_, line)) => Error::row(path, *line, message),
                None => Error::file(path, message),
            }
        }
    })
}

fn pods(table: &Table) -> Result<Vec<Pod>> {
    let mut pods = Vec::with_capacity(table.rows().len());
    let mut names = HashSet::new();
    for row in table.rows() {
        let name = row.name("name")?;
        if !names.insert(name) {
            return Err(row.error(format!("the pod {name:?} is there twice")));
        }
        let (gpus, gpu_milli): (u16, u16) = (row.value("num_gpu")?, row.value("gpu_milli")?);
        match (gpus, gpu_milli) {
            (0, _) | (1, 1..=WHOLE) | (2.., WHOLE) => {}
            _ => {
                return Err(row.error(format!(
                    "{gpus} GPUs of {gpu_milli} thousandths each: must be whole ones (1000) or 1 to 1000 of a single one"
                )));
            }
        }
        let created_s = row.optional("creation_time")?.unwrap_or(0);
        let deleted_s: Option<u64> = row.optional("deletion_time")?;
        if deleted_s.is_some_and(|deleted| deleted < created_s) {
            return Err(row.error("deletion_time is before creation_time"));
        }
        pods.push(Pod {
            name: name.to_owned(),
            cpu_milli: row.value("cpu_milli")?,
            memory_mib: row.value("memory_mib")?,
            gpus,
            gpu_milli: if gpus == 0 { 0 } else { gpu_milli },
            models: row
                .text("gpu_spec")
                .split('|')
                .filter(|model| !model.is_empty())
                .map(str::to_owned)
                .collect(),
            created_s,
            deleted_s,
        });
    }
    if pods.is_empty() {
        return Err(Error::file(table.path(), "there are no pods"));
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes_of(text: &str) -> Result<Cluster> {
        nodes(
            &Table::parse(Path::new("n.csv"), text.as_bytes(), &NODE_COLUMNS, &[])?,
            &Assumptions::default(),
        )
    }

    fn pods_of(text: &str) -> Result<Vec<Pod>> {
        pods(&Table::parse(Path::new("p.csv"), text.as_bytes(), &POD_COLUMNS, &POD_OPTIONAL)?)
    }

    #[test]
    fn loads_nodes() {
        let cluster = nodes_of(
            "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,96000,1,8,G2\nc,8000,1,0,\n",
        )
        .unwrap();
        assert_eq!(cluster.nodes().len(), 3);
        assert_eq!(cluster.devices().len(), 10);
        assert_eq!(cluster.models(), ["P100", "G2"]);
        let nics: Vec<u64> = cluster.nodes().iter().map(|node| node.nic_mbps).collect();
        assert_eq!(nics, [25_000, 100_000, 10_000]);
    }

    #[test]
    fn refuses_bad_nodes() {
        let head = "sn,cpu_milli,memory_mib,gpu,model\n";
        let fails = |rows: &str| nodes_of(&format!("{head}{rows}")).unwrap_err().to_string();
        assert_eq!(fails(""), "n.csv: there are no nodes");
        assert_eq!(fails("a,1,1,0,\na,1,1,0,\n"), "n.csv:3: the node \"a\" is already in line 2");
        assert_eq!(fails("a,1,1,1,\n"), "n.csv:2: model is empty");
        assert_eq!(fails("a,-1,1,0,\n"), "n.csv:2: cpu_milli is \"-1\": invalid digit found in string");
        assert!(fails("b,1,1,0,\na,99999999999999,1,0,\n").starts_with("n.csv:3: "));
        assert_eq!(fails(",1,1,0,\n"), "n.csv:2: sn is empty");
    }

    #[test]
    fn loads_pods() {
        let pods = pods_of(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
             p,12000,16384,1,460,V100M16|V100M32,LS,Running,5,12537496,0\n\
             q,6000,1,0,0,,LS,Running,0,,\n\
             r,6000,1,8,1000,,LS,Running,0,,\n",
        )
        .unwrap();
        assert_eq!(pods[0].models, ["V100M16", "V100M32"]);
        assert_eq!((pods[0].created_s, pods[0].deleted_s), (5, Some(12_537_496)));
        let demands: Vec<u64> = pods.iter().map(Pod::gpu_demand).collect();
        assert_eq!(demands, [460, 0, 8000]);
    }

    #[test]
    fn refuses_bad_pods() {
        let fails = |rows: &str| {
            let text =
                format!("name,cpu_milli,memory_mib,num_gpu,gpu_milli,deletion_time,creation_time\n{rows}");
            pods_of(&text).unwrap_err().to_string()
        };
        assert_eq!(fails(""), "p.csv: there are no pods");
        assert!(fails("p,1,1,2,500,,\n").starts_with("p.csv:2: 2 GPUs of 500"));
        assert!(fails("p,1,1,1,0,,\n").starts_with("p.csv:2: 1 GPUs of 0"));
        assert!(fails("p,1,1,1,1001,,\n").starts_with("p.csv:2: "));
        assert_eq!(fails("p,1,1,0,0,,\nq,1,1,0,0,,\np,1,1,0,0,,\n"), "p.csv:4: the pod \"p\" is there twice");
        assert_eq!(fails("p,1,1,0,0,1,2\n"), "p.csv:2: deletion_time is before creation_time");
        assert_eq!(fails("p,1,1,0,0,\n"), "p.csv:2: 6 fields where the header has 7");
    }
}
