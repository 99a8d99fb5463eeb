//! How much of a cluster's GPUs each policy can give away, with the library alone:
//! `cargo run --release -p rgpu-simulator --example allocation -- NODES.csv PODS.csv POLICY SEEDS [MAX_REMOTE]`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use rgpu_placement::PolicyConfig;
use rgpu_placement::policy::MAX_REMOTE_SHARE;
use rgpu_simulator::{Assumptions, allocation, load_nodes, load_pods};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, pods, policy, seeds, rest @ ..] = arguments.as_slice() else {
        return Err("NODES.csv PODS.csv POLICY SEEDS [MAX_REMOTE] are wanted".into());
    };
    let assumptions = Assumptions::default();
    let cluster = Arc::new(load_nodes(&PathBuf::from(nodes), &assumptions)?);
    let pods = load_pods(&PathBuf::from(pods))?;
    let mut config = PolicyConfig::named(policy)?;
    config.typical = allocation::typical(&pods, &cluster, &assumptions);
    if let [max_remote, ..] = rest {
        config = config.with(&MAX_REMOTE_SHARE, max_remote.parse()?);
    }
    for seed in 1..=seeds.parse()? {
        config.seed = seed;
        let trial = allocation::Trial {
            cluster: &cluster,
            pods: &pods,
            assumptions: &assumptions,
            policy: &config,
            arrivals: allocation::Arrivals::AtOnce,
            demand: 1.3,
            seed,
        };
        let (allocated, _) = allocation::run(&trial, None, &|_| {})?;
        println!("{policy} {seed}: {} of {} pods wait", allocated.waiting, allocated.pods);
        for mark in allocated.marks.iter().filter(|mark| mark.demand_percent >= 90) {
            println!("  {mark:?}");
        }
    }
    Ok(())
}
