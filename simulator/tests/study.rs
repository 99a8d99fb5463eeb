//! Whole studies over small files: every policy, and the same bytes out of the same input.

use std::path::PathBuf;

use rgpu_placement::PolicyConfig;
use rgpu_simulator::study::{Input, Source, Study};
use rgpu_simulator::{Assumptions, Micros, Rounds};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn input(cluster: &str, jobs: &str) -> Input {
    Input {
        cluster: data(cluster),
        switches: None,
        profiles: None,
        jobs: Source::File(data(jobs)),
        rate: None,
        seed: 1,
        assumptions: Assumptions::default(),
    }
}

fn policies() -> Vec<PolicyConfig> {
    PolicyConfig::NAMES.iter().map(|name| PolicyConfig::named(name).unwrap().with_seed(1)).collect()
}

/// All that a study writes, as one text.
fn written(study: &Study, threads: usize, folder: &str) -> String {
    let rounds = Rounds::Every(Micros(1_000_000));
    let explain = study.find(&["train-3".into()]).unwrap_or_default();
    let studied = study.run(&policies(), rounds, &explain, threads, None, &|_| {}).unwrap();
    let folder = std::env::temp_dir().join(format!("rgpu-study-{}-{folder}", std::process::id()));
    study.write_csv(&folder, &studied).unwrap();
    study.write_plots(&folder, &studied).unwrap();
    let mut text = Study::table(&studied) + &Study::json(&studied).to_string();
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 2 * PolicyConfig::NAMES.len() + 2);
    for name in names {
        text += &std::fs::read_to_string(name).unwrap();
    }
    for one in &studied {
        for explanation in &one.outcome.explanations {
            text += &explanation.to_string();
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
    text
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for (cluster, jobs) in [("cluster.csv", "jobs.csv"), ("nodes-openb.csv", "pods-openb.csv")] {
        let study = || Study::load(&input(cluster, jobs)).unwrap();
        assert_eq!(written(&study(), 1, "one"), written(&study(), 2, "two"), "{jobs}");
    }
}

#[test]
fn disaggregation_reaches_gpus_that_are_stranded() {
    let study = Study::load(&input("cluster.csv", "jobs.csv")).unwrap();
    let rounds = Rounds::Every(Micros(1_000_000));
    let studied = study.run(&policies(), rounds, &[], 1, None, &|_| {}).unwrap();
    let by_name = |name: &str| &studied.iter().find(|one| one.name == name).unwrap().summary;
    let (local, remote) = (by_name("firmament"), by_name("drmaestro"));
    assert_eq!((local.jobs, remote.jobs), (8, 8));
    assert_eq!((local.ended, remote.ended), (8, 8));
    assert!(remote.makespan_s < local.makespan_s, "{remote:?} {local:?}");
    assert!(remote.remote_percent > 0.0 && local.remote_percent == 0.0);
}

#[test]
fn pods_live_as_long_as_they_did() {
    let study = Study::load(&input("nodes-openb.csv", "pods-openb.csv")).unwrap();
    let rounds = Rounds::OnChange(Micros(0));
    let studied = study.run(&policies()[2..3], rounds, &[], 1, None, &|_| {}).unwrap();
    let jobs = &studied[0].outcome.jobs;
    let runs: Vec<f64> = jobs.iter().map(|job| job.run().unwrap().seconds()).collect();
    assert_eq!(runs, [100.0, 80.0, 180.0, 30.0, 0.5]);
    assert_eq!(jobs[2].start, Some(Micros(20_000_000)));
}

#[test]
fn missing_files_and_jobs_are_named() {
    let error = Study::load(&input("none.csv", "jobs.csv")).err().unwrap().to_string();
    assert!(error.starts_with("Cannot read ") && error.contains("none.csv"), "{error}");
    let study = Study::load(&input("cluster.csv", "jobs.csv")).unwrap();
    assert_eq!(study.find(&["x".into()]).unwrap_err().to_string(), "No job is named \"x\"");
    let rate = Input { rate: Some(0.0), ..input("cluster.csv", "jobs.csv") };
    assert!(Study::load(&rate).is_err());
}
