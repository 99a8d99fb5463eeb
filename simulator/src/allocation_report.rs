//! Several policies and seeds of an allocation trial, side by side.

use std::sync::Arc;

use rgpu_placement::policy::{MAX_REMOTE_SHARE, MAX_SLIVER};
use rgpu_placement::{Cluster, PolicyConfig, WHOLE};
use serde_json::{Map, Value, json};

use crate::allocation::{Allocated, Arrivals, Mark, Trial, run};
use crate::engine::{Clock, Progress};
use crate::error::{Error, Result};
use crate::openb::{Assumptions, Pod};
use crate::parallel;
use crate::plot::{Plot, Series};
use crate::report::align;
use crate::statistics::{deviation, mean};

/// What the trace's own simulator was published to allocate, in percent, at 100% and 130% of demand.
pub const PUBLISHED: [(&str, [f64; 2]); 3] =
    [("fgd", [95.2, 95.4]), ("best-fit", [92.9, 93.1]), ("random", [86.3, 87.5])];

/// The trace for which it was published: nodes, GPUs, and thousandths of GPUs wanted by its pods.
const PUBLISHED_TRACE: (usize, u64, u64) = (1213, 6212, 6_086_800);

/// One trial and what came of it.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The policy's name.
    pub policy: String,
    /// The seed of the pods' order and of the policy.
    pub seed: u64,
    /// What was given away.
    pub allocated: Allocated,
    /// How long each decision took in microseconds, if there was a clock.
    pub times: Vec<u64>,
}

/// Trials of several policies.
pub struct Trials<'a> {
    /// The cluster, empty when each trial begins.
    pub cluster: &'a Arc<Cluster>,
    /// The trace's pods.
    pub pods: &'a [Pod],
    /// What the trace does not say.
    pub assumptions: Assumptions,
    /// The policies that are compared; each is tried with every seed.
    pub policies: &'a [PolicyConfig],
    /// Demand at the end, as a part of the capacity.
    pub demand: f64,
    /// Seeds 1 to this.
    pub seeds: u64,
    /// How pods come.
    pub arrivals: Arrivals,
}

impl Trials<'_> {
    /// Runs all of them, on up to so many threads.
    pub fn run(
        &self,
        threads: usize,
        clock: Option<&Clock<'_>>,
        progress: &Progress<'_>,
    ) -> Result<Vec<Tried>> {
        if self.seeds == 0 {
            return Err(Error::Option("At least one seed is needed".into()));
        }
        let configs: Vec<PolicyConfig> = self
            .policies
            .iter()
            .flat_map(|config| (1..=self.seeds).map(|seed| config.clone().with_seed(seed)))
            .collect();
        parallel::map(&configs, threads, |config| {
            let trial = Trial {
                cluster: self.cluster,
                pods: self.pods,
                assumptions: &self.assumptions,
                policy: config,
                demand: self.demand,
                seed: config.seed,
                arrivals: self.arrivals,
            };
            let (allocated, times) = run(&trial, clock, progress)?;
            Ok(Tried { policy: config.name().to_owned(), seed: config.seed, allocated, times })
        })
    }

    /// About how many pods will come, for showing progress.
    pub fn estimate(&self) -> u64 {
        let gpus = self.cluster.totals().devices[0] as f64 * 1000.0;
        let demand: u64 = self.pods.iter().map(Pod::gpu_demand).sum();
        let once = self.pods.len() as f64 * gpus * self.demand / (demand.max(1) as f64);
        (once * self.seeds as f64 * self.policies.len() as f64) as u64
    }

    /// The demands at which there are results, in percent: each whole 10% and the end.
    fn marks(&self) -> Vec<u32> {
        crate::allocation::demands(self.demand)
    }

    /// Those of them that the first table has: 100%, if it is reached, and the end.
    fn main_marks(&self) -> Vec<u32> {
        self.marks()
            .into_iter()
            .rev()
            .enumerate()
            .filter(|(i, mark)| *i == 0 || *mark == 100)
            .map(|(_, mark)| mark)
            .rev()
            .collect()
    }

    /// A value of one policy's runs at one demand, in the order of the seeds.
    fn values(
        &self,
        tried: &[Tried],
        policy: &str,
        demand_percent: u32,
        value: fn(&Mark) -> f64,
    ) -> Vec<f64> {
        let of_policy = tried.iter().filter(|one| one.policy == policy);
        of_policy.filter_map(|one| one.allocated.at(demand_percent).map(value)).collect()
    }

    /// What was published for that policy at that demand, if this is the trace for which it was.
    fn published(&self, policy: &str, mark: u32) -> Option<f64> {
        let demand: u64 = self.pods.iter().map(Pod::gpu_demand).sum();
        if (self.cluster.nodes().len(), self.cluster.totals().devices[0], demand) != PUBLISHED_TRACE {
            return None;
        }
        let (_, values) = PUBLISHED.iter().find(|(name, _)| *name == policy)?;
        match mark {
            100 => Some(values[0]),
            130 => Some(values[1]),
            _ => None,
        }
    }

    /// Means and spreads as text, beside what was published.
    pub fn text(&self, tried: &[Tried]) -> String {
        let marks = self.main_marks();
        let mut header = vec!["policy".to_owned()];
        for mark in &marks {
            header.push(format!("GPUs at {mark}%"));
            header.push("published".into());
        }
        header.extend(
            ["idle", "slivers", "remote", "remote traffic", "busiest link", "CPUs", "memory", "waiting"]
                .map(str::to_owned),
        );
        let mut rows = vec![header];
        for config in self.policies {
            let of = |value: &dyn Fn(&Allocated) -> f64| -> Vec<f64> {
                tried
                    .iter()
                    .filter(|one| one.policy == config.name())
                    .map(|one| value(&one.allocated))
                    .collect()
            };
            let mut row = vec![config.name().to_owned()];
            for mark in &marks {
                let values =
                    of(&|allocated| allocated.at(*mark).map_or(0.0, |mark| mark.gpus_allocated_percent));
                row.push(format!("{:.2} ±{:.2}%", mean(&values), deviation(&values)));
                let published = self.published(config.name(), *mark);
                row.push(published.map_or(String::new(), |value| format!("{value:.1}%")));
            }
            let last =
                |value: fn(&Mark) -> f64| mean(&of(&|allocated| allocated.marks.last().map_or(0.0, value)));
            row.push(format!("{:.2}%", mean(&of(&|allocated| allocated.idle_percent))));
            row.push(format!("{:.2}%", mean(&of(&|allocated| allocated.sliver_percent))));
            row.push(format!("{:.2}%", last(|mark| mark.remote_percent)));
            row.push(format!("{:.0} Gbit/s", last(|mark| mark.remote_gbps)));
            row.push(format!("{:.1}%", mean(&of(&|allocated| allocated.busiest_link)) * 100.0));
            row.push(format!("{:.1}%", last(|mark| mark.cpu_allocated_percent)));
            row.push(format!("{:.1}%", last(|mark| mark.memory_allocated_percent)));
            let part =
                |allocated: &Allocated| allocated.waiting as f64 / allocated.pods.max(1) as f64 * 100.0;
            row.push(format!("{:.1}%", mean(&of(&part))));
            rows.push(row);
        }
        format!("{}\n{}", align(&rows), align(&self.by_demand(tried)))
    }

    /// GPUs allocated at each demand, a column for each policy; beside the policies that gave remote devices, how many.
    fn by_demand(&self, tried: &[Tried]) -> Vec<Vec<String>> {
        let marks = self.marks();
        let remote = |policy: &str, mark| mean(&self.values(tried, policy, mark, |mark| mark.remote_percent));
        let has_remote: Vec<bool> = self
            .policies
            .iter()
            .map(|one| marks.iter().any(|mark| remote(one.name(), *mark) > 0.0))
            .collect();
        let mut header = vec!["demand".to_owned()];
        for (config, has_remote) in self.policies.iter().zip(&has_remote) {
            header.push(config.name().to_owned());
            header.extend(has_remote.then(|| "remote".to_owned()));
        }
        let row = |mark: u32| {
            let mut row = vec![format!("{mark}%")];
            for (config, has_remote) in self.policies.iter().zip(&has_remote) {
                let values = self.values(tried, config.name(), mark, |mark| mark.gpus_allocated_percent);
                row.push(format!("{:.2} ±{:.2}%", mean(&values), deviation(&values)));
                row.extend(has_remote.then(|| format!("{:.2}%", remote(config.name(), mark))));
            }
            row
        };
        std::iter::once(header).chain(marks.iter().map(|mark| row(*mark))).collect()
    }

    /// Every run and the means as JSON.
    pub fn json(&self, tried: &[Tried]) -> Value {
        let marks = self.marks();
        let at = |allocated: &Allocated, value: fn(&Mark) -> f64| -> Value {
            let pairs =
                marks.iter().filter_map(|mark| Some((mark.to_string(), json!(value(allocated.at(*mark)?)))));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        let runs: Vec<Value> = tried
            .iter()
            .map(|one| {
                let allocated = &one.allocated;
                json!({
                    "policy": one.policy,
                    "seed": one.seed,
                    "gpus_allocated_percent": at(allocated, |mark| mark.gpus_allocated_percent),
                    "remote_percent": at(allocated, |mark| mark.remote_percent),
                    "remote_gbps": at(allocated, |mark| mark.remote_gbps),
                    "cpu_allocated_percent": at(allocated, |mark| mark.cpu_allocated_percent),
                    "memory_allocated_percent": at(allocated, |mark| mark.memory_allocated_percent),
                    "idle_percent": allocated.idle_percent,
                    "sliver_percent": allocated.sliver_percent,
                    "busiest_link_percent": allocated.busiest_link * 100.0,
                    "pods": allocated.pods,
                    "waiting": allocated.waiting,
                })
            })
            .collect();
        let means: Vec<Value> = self
            .policies
            .iter()
            .map(|config| {
                let (mut percent, mut remote, mut beside) = (Map::new(), Map::new(), Map::new());
                for mark in &marks {
                    let of = |value| json!(mean(&self.values(tried, config.name(), *mark, value)));
                    percent.insert(mark.to_string(), of(|mark| mark.gpus_allocated_percent));
                    remote.insert(mark.to_string(), of(|mark| mark.remote_percent));
                    if let Some(value) = self.published(config.name(), *mark) {
                        beside.insert(mark.to_string(), json!(value));
                    }
                }
                json!({
                    "policy": config.name(),
                    "max_remote_percent": config.get(&MAX_REMOTE_SHARE) * 100.0,
                    "max_sliver_percent": (config.get(&MAX_SLIVER) * f64::from(WHOLE)).round() / 10.0,
                    "gpus_allocated_percent": percent,
                    "remote_percent": remote,
                    "published": beside,
                })
            })
            .collect();
        json!({
            "gpus": self.cluster.totals().devices[0],
            "nodes": self.cluster.nodes().len(),
            "pods": self.pods.len(),
            "demand": self.demand,
            "seeds": self.seeds,
            "arrivals": self.arrivals.name(),
            "assumptions": {
                "traffic_mbps_per_gpu": self.assumptions.traffic_mbps,
                "nic_mbps_per_gpu": self.assumptions.nic_mbps_per_gpu,
            },
            "runs": runs,
            "means": means,
        })
    }

    /// GPUs allocated against demand, the mean over the seeds.
    pub fn plot(&self, tried: &[Tried]) -> Plot {
        let series = self.policies.iter().map(|config| {
            let of_policy: Vec<&Tried> = tried.iter().filter(|one| one.policy == config.name()).collect();
            let demands = of_policy.first().map(|one| one.allocated.marks.as_slice()).unwrap_or_default();
            let point = |mark: &Mark| {
                let same = |one: &&Tried| Some(one.allocated.at(mark.demand_percent)?.gpus_allocated_percent);
                let values: Vec<f64> = of_policy.iter().filter_map(same).collect();
                (f64::from(mark.demand_percent), mean(&values))
            };
            Series { name: config.name().to_owned(), points: demands.iter().map(point).collect() }
        });
        Plot {
            title: "GPUs allocated as demand grows".into(),
            x: "demand [% of capacity]".into(),
            y: "allocated [%]".into(),
            steps: false,
            log_x: false,
            series: series.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_placement::{ClusterBuilder, DeviceSpec, NodeSpec};

    #[test]
    fn results_have_every_policy_and_seed() {
        let node = NodeSpec::new("n", 64_000, 1000).with_devices(4, DeviceSpec::gpu("T4", 1));
        let cluster = Arc::new(ClusterBuilder::new().node(node).build().unwrap());
        let pod = |i: u16| Pod {
            name: format!("p{i}"),
            cpu_milli: 1000,
            memory_mib: 1,
            gpus: 1,
            gpu_milli: 250 * (1 + i % 2),
            models: Vec::new(),
            created_s: 0,
            deleted_s: None,
        };
        let pods: Vec<Pod> = (0..6).map(pod).collect();
        let trials = Trials {
            cluster: &cluster,
            pods: &pods,
            assumptions: Assumptions::default(),
            policies: &["best-fit", "random"].map(|name| PolicyConfig::named(name).unwrap()),
            demand: 1.3,
            seeds: 3,
            arrivals: Arrivals::OneByOne,
        };
        let tried = trials.run(2, None, &|_| {}).unwrap();
        let json = trials.json(&tried);
        assert_eq!(json["runs"].as_array().unwrap().len(), 6);
        assert_eq!(json["runs"][4]["policy"], "random");
        assert_eq!(json["runs"][4]["seed"], 2);
        let percent = json["runs"][0]["gpus_allocated_percent"]["130"].as_f64().unwrap();
        assert!((90.0..=100.0).contains(&percent), "{percent}");
        assert!(json["means"][1]["published"].as_object().unwrap().is_empty(), "another trace");
        assert!(trials.text(&tried).starts_with("policy"));
        assert_eq!(trials.plot(&tried).series.len(), 2);
        assert_eq!(trials.json(&trials.run(1, None, &|_| {}).unwrap()), json);
    }
}
