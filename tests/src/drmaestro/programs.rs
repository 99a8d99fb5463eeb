//! The paper's programs: the examples with its communication patterns, in sizes that fit the time scale and the links.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rgpu_placement::{Profile, ProfileId, Profiles};
use rgpu_simulator::{Application, Applications};

use super::Plan;
use crate::cluster::Cluster;
use crate::cluster::network::{Host, Sender};
use crate::examples::{self, Linking};
use crate::process;
use crate::product::{Stats, temporary};
use crate::toolkit::Version;

/// Bits a second at which a remote program of the paper sends where nobody disturbs it (`docs/profiles.md`: 3 GB/s).
const PAPER_RATE: f64 = 24e9;

/// The examples with the patterns of `simulator/data/rodinia.csv`, in its order, and the sizes by which each transfers so many bytes.
const PROGRAMS: [(&str, Sizes); 8] = [
    ("bplustree", |bytes| vec![("elements", bytes / 21.0), ("queries", 200.0)]),
    ("backprop", |bytes| vec![("inputs", bytes / 20.0 / 284.0), ("iterations", 20.0)]),
    ("gaussian", |bytes| vec![("n", (bytes / 16.0).sqrt())]),
    ("hotspot", |bytes| vec![("n", (bytes / 12.0).sqrt()), ("iterations", 200.0)]),
    ("lavamd", |bytes| vec![("boxes", (bytes / 532.0).cbrt()), ("particles", 4.0)]),
    ("nw", |bytes| vec![("n", ((bytes / 12.0).sqrt() / 16.0).round() * 16.0)]),
    ("pathfinder", |bytes| vec![("columns", bytes / 800.0), ("rows", 200.0)]),
    ("srad", |bytes| {
        let side = (bytes / 12.0).sqrt();
        vec![("rows", side), ("columns", side), ("iterations", 100.0)]
    }),
];

type Sizes = fn(f64) -> Vec<(&'static str, f64)>;

/// How often a program waits for `pace`, by its arguments.
fn iterations(program: &str, sizes: &[(&str, f64)]) -> f64 {
    let of =
        |name: &str| sizes.iter().find(|(size, _)| *size == name).map_or(0.0, |(_, value)| value.round());
    match program {
        "bplustree" => 2.0,
        "gaussian" => of("n") - 1.0,
        "hotspot" => of("iterations") / 2.0,
        "lavamd" => 1.0,
        "nw" => of("n") / 8.0 - 1.0,
        "pathfinder" => (of("rows") / 20.0).ceil(),
        _ => of("iterations"),
    }
}

/// The compiled examples.
#[derive(Debug, Clone)]
pub struct Programs(Vec<PathBuf>);

impl Programs {
    /// The examples that were compiled before.
    ///
    /// # Errors
    /// Where one is missing.
    pub fn compiled() -> Result<Self> {
        let all = examples::all()?;
        let compiled = PROGRAMS.iter().map(|(name, ..)| {
            let example =
                all.iter().find(|e| e.name == *name).with_context(|| format!("there is no {name}.cu"))?;
            let program = example.program(Version::Cuda13, Linking::Static);
            ensure!(program.exists(), "{} is missing: `cargo xtask examples` compiles it", program.display());
            Ok(program)
        });
        compiled.collect::<Result<_>>().map(Self)
    }

    /// Measures each program alone in an idle cluster: with a local device, with a remote one, and with a remote one while others
    /// fill the program's link in both directions.
    pub(super) fn measure(&self, cluster: &Cluster, plan: &Plan) -> Result<Measured> {
        let published = Applications::rodinia();
        let home = &cluster.nodes[0];
        let host = home.host.as_ref().context("A node without a host")?;
        let mut programs = Vec::new();
        for (at, (name, sizes)) in PROGRAMS.into_iter().enumerate() {
            let sizes = sizes(
                published_bytes(&published, at) * f64::from(plan.link_mbps) * 1e6
                    / PAPER_RATE
                    / plan.time_scale,
            );
            let target_s = published.applications[at].alone.seconds() / plan.time_scale;
            let mut program = Program {
                name,
                path: self.0[at].clone(),
                arguments: arguments(&sizes),
                pace_us: 1,
                local_s: 0.0,
                remote_s: 0.0,
                loaded_s: 0.0,
                bytes: 0,
            };
            let median = |measure: &mut dyn FnMut() -> Result<f64>| -> Result<f64> {
                let mut times = (0..plan.repeats.max(1)).map(|_| measure()).collect::<Result<Vec<_>>>()?;
                times.sort_by(f64::total_cmp);
                Ok(times[times.len() / 2])
            };
            // The first run fills caches.
            program.run_alone(cluster, host, &home.name)?;
            let local = median(&mut || Ok(program.run_alone(cluster, host, &home.name)?.0))?;
            drain(cluster, &home.name, true)?;
            let mut bytes = 0;
            let remote = median(&mut || {
                let (took, passed) = program.run_alone(cluster, host, &home.name)?;
                bytes = passed;
                Ok(took)
            })?;
            let client = cluster.client_host().context("No host for clients")?;
            let _out = Sender::start(host, client)?;
            let _in = Sender::start(client, host)?;
            let loaded = median(&mut || Ok(program.run_alone(cluster, host, &home.name)?.0))?;
            drain(cluster, &home.name, false)?;
            // What is missing of the paper's time is waited for.
            let times = iterations(name, &sizes);
            let pace_s = ((target_s - local) / times).max(1e-6);
            program.pace_us = (pace_s * 1e6).round() as u64;
            let waited = times * (program.pace_us - 1) as f64 * 1e-6;
            program.local_s = local + waited;
            program.remote_s = remote.max(local) + waited;
            program.loaded_s = loaded.max(remote.max(local)) + waited;
            program.bytes = bytes;
            programs.push(program);
        }
        Ok(Measured { programs })
    }
}

/// Bytes that a remote run of one of the paper's programs transfers.
fn published_bytes(published: &Applications, at: usize) -> f64 {
    let remote_s = published.profiles.get(ProfileId(at as u32)).remote_s;
    let mbps: u64 = published.applications[at].task.devices.iter().map(|device| device.traffic_mbps).sum();
    mbps as f64 * 1e6 / 8.0 * remote_s
}

fn drain(cluster: &Cluster, node: &str, drain: bool) -> Result<()> {
    cluster.admin(|broker| broker.drain(node, drain))
}

fn arguments(sizes: &[(&str, f64)]) -> Vec<String> {
    let sizes = sizes.iter().map(|(name, value)| format!("{name}={}", value.round().max(1.0)));
    sizes.chain(["check=0".to_owned()]).collect()
}

/// A program, what it is started with, and how long that takes alone.
#[derive(Debug, Clone)]
pub struct Program {
    /// The example's name, and its profile's.
    pub name: &'static str,
    path: PathBuf,
    arguments: Vec<String>,
    /// Microseconds that it waits after each iteration.
    pub pace_us: u64,
    /// Seconds with a local device.
    pub local_s: f64,
    /// Seconds with a remote one.
    pub remote_s: f64,
    /// Seconds with a remote one while others fill the link.
    pub loaded_s: f64,
    /// Bytes that a remote run sends and receives.
    pub bytes: u64,
}

impl Program {
    /// The command that runs it on a node's host by a lease, with more options of `rgpu run`.
    pub(super) fn command(
        &self,
        cluster: &Cluster,
        host: &Host,
        node: &str,
        options: &[String],
    ) -> Result<std::process::Command> {
        let mut command = cluster.client_at(Some(host), "ann", &["run", "--gpus", "1", "--node", node])?;
        command.args(options).arg("--").arg(&self.path).args(&self.arguments);
        command.arg(format!("pace={}", self.pace_us));
        Ok(command)
    }

    /// Seconds from start to end, and the bytes that were sent and received.
    fn run_alone(&self, cluster: &Cluster, host: &Host, node: &str) -> Result<(f64, u64)> {
        let file = temporary("stats.json");
        let options = [format!("--stats=json:{}", file.display())];
        let finished = process::run(&mut self.command(cluster, host, node, &options)?)?.success()?;
        let stats = Stats::take(&file)?;
        let bytes = stats.number("bytes_sent")? + stats.number("bytes_received")?;
        Ok((finished.took.as_secs_f64(), bytes))
    }

    /// By which part a remote run takes longer beside a full link.
    pub fn sensitivity(&self) -> f64 {
        (self.loaded_s - self.remote_s) / self.remote_s
    }

    /// Mbit/s of a remote run.
    pub fn traffic_mbps(&self) -> u64 {
        (self.bytes as f64 * 8e-6 / self.remote_s).round() as u64
    }
}

/// All programs, measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// In the order of the profiles.
    pub programs: Vec<Program>,
}

impl Measured {
    /// What the paper's programs ask for, with the measured times. Neighbours are not measured, and so do not disturb each other.
    pub(super) fn applications(&self) -> Result<Applications> {
        let published = Applications::rodinia();
        let mut profiles = Vec::new();
        let mut applications = Vec::new();
        for (program, application) in self.programs.iter().zip(published.applications) {
            profiles.push(Profile {
                remote_s: program.remote_s,
                sensitivity: program.sensitivity(),
                ..Profile::new(program.name, program.local_s)
            });
            let Application { mut task, .. } = application;
            for device in &mut task.devices {
                device.traffic_mbps = program.traffic_mbps();
            }
            applications
                .push(Application { task, alone: rgpu_simulator::Micros::from_seconds(program.local_s) });
        }
        Ok(Applications { profiles: Profiles::new(profiles)?, applications })
    }

    /// The profiles as people read them.
    pub fn table(&self, plan: &Plan) -> String {
        let mut rows = vec![
            [
                "program",
                "local [s]",
                "remote [s]",
                "beside a full link [s]",
                "sensitivity",
                "bytes [MB]",
                "pace [ms]",
                "started with",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        rows.extend(self.programs.iter().map(|program| {
            vec![
                program.name.to_owned(),
                format!("{:.2}", program.local_s),
                format!("{:.2}", program.remote_s),
                format!("{:.2}", program.loaded_s),
                format!("{:.3}", program.sensitivity()),
                format!("{:.1}", program.bytes as f64 * 1e-6),
                format!("{:.2}", program.pace_us as f64 * 1e-3),
                program.arguments.join(" "),
            ]
        }));
        format!(
            "The programs alone, time scale {}, links of {} Mbit/s, median of {} runs:\n{}",
            plan.time_scale,
            plan.link_mbps,
            plan.repeats,
            rgpu_simulator::report::align(&rows)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_the_simulators_in_its_order() {
        let published = Applications::rodinia();
        let names: Vec<&str> = published.profiles.iter().map(|profile| profile.name.as_str()).collect();
        let ours: Vec<&str> = PROGRAMS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names[0], "b+tree");
        assert_eq!(names[1..], ours[1..]);
        assert!((published_bytes(&published, 5) / 19_000.0 / 1_048_576.0 - 1.0).abs() < 0.01);
        assert!(
            PROGRAMS
                .iter()
                .all(|(name, ..)| examples::repository().join(format!("examples/{name}.cu")).exists())
        );
    }

    #[test]
    fn sizes_follow_the_bytes() {
        let sizes = PROGRAMS[5].1(32e6);
        assert_eq!(arguments(&sizes), ["n=1632", "check=0"]);
        assert_eq!(iterations("nw", &sizes), 203.0);
        assert_eq!(iterations("pathfinder", &PROGRAMS[6].1(1e6)), 10.0);
        assert_eq!(iterations("hotspot", &PROGRAMS[3].1(1e6)), 100.0);
    }
}
