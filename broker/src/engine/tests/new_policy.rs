//! What it takes to add a policy: this file has one, with its row and a setting of its own, and nothing else in the
//! workspace knows of it. The simulator and the broker run it all the same.

use rgpu_placement::policy::greedy::{Greedy, Pick, Rule, fitting, grant_locally};
use rgpu_placement::policy::setting::Number;
use rgpu_placement::policy::{PolicyKind, PolicyTable, Setting};
use rgpu_placement::{Cluster, NodeId, PolicyConfig, Task, TaskPlacement, Usage};
use rgpu_simulator::study::{Input, Source, Study};
use rgpu_simulator::{Micros, Mix, Rounds, Workload};

use super::*;

/// The last node that has room, instead of the first one, leaving out so many from the end.
#[derive(Debug)]
struct LastFit {
    skip: usize,
}

impl Rule for LastFit {
    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        let nodes: Vec<NodeId> = fitting(cluster, usage, task).collect();
        nodes.iter().rev().nth(self.skip).or(nodes.first()).copied()
    }

    fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        grant_locally(cluster, usage, node, task, Pick::First)
    }

    fn cost(&mut self, _cluster: &Cluster, _usage: &Usage, node: NodeId, _task: &Task) -> f64 {
        -f64::from(node.0)
    }
}

static SKIP: Number = Number {
    name: "skip",
    about: "How many nodes are left out from the end",
    default: 0.0,
    range: 0.0..=10.0,
    or_infinite: false,
    in_broker: true,
};

static LAST_FIT: PolicyKind = PolicyKind {
    name: "last-fit",
    about: "the last node that has room",
    settings: &[Setting::Number(&SKIP)],
    disaggregates: |_| false,
    harvests: false,
    build: |config: &PolicyConfig| {
        Box::new(Greedy::new(config.name(), LastFit { skip: config.get(&SKIP) as usize }))
    },
};

#[test]
fn a_new_policy_runs_in_the_simulator() {
    let folder = std::env::temp_dir().join(format!("rgpu-new-policy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let cluster = folder.join("cluster.csv");
    std::fs::write(
        &cluster,
        "name,count,cpu_milli,memory_mib,gpus,gpu_memory_mib\nn,4,64000,262144,4,16384\n",
    )
    .unwrap();
    let workload = Workload { jobs: 40, rate: 1.0, mix: Mix::Uniform, goal: None, seed: 1 };
    let input = Input {
        cluster,
        switches: None,
        profiles: None,
        jobs: Source::MadeUp(workload),
        rate: None,
        seed: 1,
        assumptions: Default::default(),
    };
    let study = Study::load(&input).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let table = PolicyTable::standard().with(&LAST_FIT);
    let configs = ["last-fit", "first-fit"].map(|name| table.config(name).unwrap());
    let first = [study.jobs.jobs[0].job.id];
    let rounds = Rounds::Every(Micros(1_000_000));
    let studied = study.run(&configs, rounds, &first, 2, None, &|_| {}).unwrap();
    assert_eq!(studied[0].name, "last-fit");
    assert!(studied.iter().all(|one| one.summary.ended == 40));
    let places = |at: usize| studied[at].outcome.explanations[0].to_string();
    assert!(places(0).contains("placed in n-3"), "{}", places(0));
    assert!(places(1).contains("placed in n-0"), "{}", places(1));
}

#[tokio::test]
async fn a_new_policy_places_leases_and_is_set_through_the_api() {
    let policies = PolicyTable::standard().with(&LAST_FIT);
    let policy = super::super::settings::default_policy(&policies);
    let settings = Settings { policies, policy, ..Settings::default() };
    let (mut world, _nodes) = with_nodes(settings, &[1, 1, 1]).await;
    let mut policies = world.engine.policies(&boss()).unwrap();
    assert_eq!(policies.names.last().map(String::as_str), Some("last-fit"));
    assert_eq!(policies.active.settings["skip"], SettingValue::Number(0.0));
    policies.active.name = "last-fit".into();
    policies.active.settings.insert("skip".into(), SettingValue::Number(11.0));
    let refused = world.engine.set_policy(&boss(), policies.active.clone()).await.unwrap_err();
    assert!(refused.message.contains("skip is 11: it must be from 0 to 10"), "{}", refused.message);
    let node = |lease: &Lease| lease.grants[0].node.clone();
    policies.active.settings.insert("skip".into(), SettingValue::Number(0.0));
    world.engine.set_policy(&boss(), policies.active.clone()).await.unwrap();
    let last = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!(node(&last), "n2");
    policies.active.settings.insert("skip".into(), SettingValue::Number(1.0));
    world.engine.set_policy(&boss(), policies.active).await.unwrap();
    let before = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!(node(&before), "n0");
    world.check();
    world.restart();
    let kept = world.engine.policies(&boss()).unwrap().active;
    assert_eq!((kept.name.as_str(), kept.settings["skip"]), ("last-fit", SettingValue::Number(1.0)));
}
