use super::*;

fn parse(text: &str, required: &[&str], optional: &[&str]) -> Result<Table> {
    Table::parse(Path::new("f.csv"), text.as_bytes(), required, optional)
}

fn cluster_of(nodes: &str, switches: &str) -> Result<Cluster> {
    let nodes = parse(nodes, &NODE, &NODE_OPTIONAL)?;
    let switches = Table::parse(Path::new("s.csv"), switches.as_bytes(), &SWITCH, &SWITCH_OPTIONAL)?;
    cluster(&nodes, Some(&switches))
}

const NO_SWITCHES: &str = "name,uplink_mbps\n";
const TWO: &str = "name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib,nic_mbps,numa,count\n\
                   a,4000,65536,2,T4,16384,10000,2,\nb,2001,100,0,,,10000,,2\n";

#[test]
fn rodinia_is_what_the_document_says() {
    let rodinia = Applications::rodinia();
    assert_eq!(rodinia.profiles.len(), 8);
    let mean = rodinia.applications.iter().map(|application| application.alone.seconds()).sum::<f64>() / 8.0;
    assert!((mean - 68.1).abs() < 0.1, "{mean}");
    let nw = rodinia.profiles.get(rodinia.profiles.find("nw").unwrap());
    assert!((nw.remote_s / nw.local_s - 1.0 / 0.83).abs() < 1e-9);
    assert!((nw.sensitivity - 0.663).abs() < 1e-9);
    let cpu: u64 = rodinia.applications.iter().map(|application| application.task.cpu_milli).sum();
    assert_eq!(cpu, 8 * 2500);
    // A NUMA region or a machine must hold eight of the mean kind; traffic is a small part of a NIC.
    for application in &rodinia.applications {
        assert!(application.task.devices[0].traffic_mbps < 10_000);
    }
}

#[test]
fn loads_a_cluster() {
    let cluster = cluster_of(TWO, NO_SWITCHES).unwrap();
    let names: Vec<&str> = cluster.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "b-0", "b-1"]);
    assert_eq!(cluster.nodes()[0].regions(), 2);
    let regions: Vec<u8> = cluster.devices().iter().map(|device| device.numa).collect();
    assert_eq!(regions, [0, 1]);
    assert_eq!(cluster.totals().cpu_milli, 8002);
}

#[test]
fn caches_memory_and_what_spreading_does_are_read() {
    let nodes = "name,cpu_milli,memory_mib,llc_ways,memory_bandwidth\na,28000,1,20,118.26\nb,28000,1,,\n";
    let cluster = cluster_of(nodes, NO_SWITCHES).unwrap();
    let has = |i: usize| (cluster.nodes()[i].llc_ways, cluster.nodes()[i].memory_bandwidth);
    assert_eq!((has(0), has(1)), ((20, 118.26), (0, 0.0)));
    let of = |spread: &str| {
        let text = format!("name,local_seconds,spread\nMG,300,{spread}\n");
        applications(&parse(&text, &PROFILE, &PROFILE_OPTIONAL).unwrap())
    };
    let known = of("2:0.83:3:60 1:1:4:112").unwrap();
    let spread = known.profiles.get(ProfileId(0)).spread.clone().unwrap();
    let expected = AtScale { scale: 2, time: 0.83, ways: 3, bandwidth: 60.0 };
    assert_eq!((spread.scales().len(), *spread.at(2)), (2, expected));
    assert_eq!(of("").unwrap().profiles.get(ProfileId(0)).spread, None);
    for (bad, part) in [("1:1:4", "scale:time:ways:bandwidth"), ("2:1:4:1", "smallest scale factor")] {
        let error = of(bad).unwrap_err().to_string();
        assert!(error.starts_with("f.csv:2: ") && error.contains(part), "{error}");
    }
}

#[test]
fn refuses_bad_clusters() {
    let head = "name,cpu_milli,memory_mib,switch,numa,count\n";
    let fails = |nodes: &str, switches: &str| {
        cluster_of(&format!("{head}{nodes}"), &format!("name,uplink_mbps,parent\n{switches}"))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(fails("", ""), "f.csv: there are no nodes");
    assert_eq!(fails("a,1,1,,,\na,1,1,,,\n", ""), "f.csv:3: the node \"a\" is already in line 2");
    assert!(fails("b,1,1,,,\na,1,1,s,,\n", "").starts_with("f.csv:3: "), "{}", fails("a,1,1,s,,\n", ""));
    assert!(fails("a,1,1,,,\n", "s,1,t\nt,1,s\n").starts_with("s.csv:"));
    assert!(fails("a,1,1,,,\n", "s,1,x\n").starts_with("s.csv:2: "));
    assert_eq!(fails("a,1,1,,,\n", "s,1,\ns,1,\n"), "s.csv:3: the switch \"s\" is there twice");
    assert_eq!(fails("a,1,1,,0,\n", ""), "f.csv:2: numa is 0, but a node has at least one region");
    assert!(fails("a,1,1,,,2000000\n", "").starts_with("f.csv:2: count is 2000000"));
    assert!(fails("a,1.5,1,,,\n", "").starts_with("f.csv:2: cpu_milli is \"1.5\""));
}

fn jobs_of(text: &str) -> Result<Jobs> {
    let cluster = cluster_of(TWO, NO_SWITCHES)?;
    jobs(&parse(text, &JOB, &JOB_OPTIONAL)?, &cluster, &mut Applications::rodinia())
}

#[test]
fn loads_jobs() {
    let text = "name,arrival_s,profile,duration_s,cpu_milli,gpus,gpu_milli,gpu_models,nodes,goal_s,tasks\n\
                x,1.5,nw,62,1000,,,,,70,\n\
                y,,,10,500,,250,T4,b-0|b-1,,2\n\
                z,0,,3,100,0,,,,,\n";
    let jobs = jobs_of(text).unwrap().jobs;
    let [x, y, z] = jobs.as_slice() else { panic!() };
    assert_eq!((x.at, x.alone, x.job.scale), (Micros(1_500_000), Micros(62_000_000), 2.0));
    assert_eq!(
        (x.job.goal_s, x.job.tasks[0].cpu_milli, x.job.tasks[0].memory_mib),
        (Some(70.0), 1000, 16384)
    );
    assert_eq!((x.job.tasks[0].devices[0].count, x.job.tasks[0].devices[0].memory_mib), (1, 12_000));
    assert_eq!((y.job.tasks.len(), y.job.tasks[0].only.len(), y.job.scale), (2, 2, 10.0));
    assert_eq!((y.job.tasks[0].devices[0].count, y.job.tasks[0].devices[0].milli), (1, 250));
    assert!(z.job.tasks[0].devices.is_empty());
    assert_eq!(z.job.id, JobId(2));
}

#[test]
fn refuses_bad_jobs() {
    let fails =
        |columns: &str, rows: &str| jobs_of(&format!("name,{columns}\nok,{rows}")).unwrap_err().to_string();
    let fails_second = |columns: &str, good: &str, bad: &str| fails(columns, &format!("{good}\nbad,{bad}\n"));
    assert_eq!(fails_second("duration_s", "1", ""), "f.csv:3: neither a profile nor a duration_s is given");
    assert_eq!(fails_second("profile", "nw", "wn"), "f.csv:3: no profile is named \"wn\"");
    assert_eq!(fails_second("duration_s", "1", "0"), "f.csv:3: duration_s must be greater than 0");
    assert!(
        fails_second("duration_s", "1", "-1").starts_with("f.csv:3: duration_s is -1, but must be from 0")
    );
    assert_eq!(fails_second("duration_s,nodes", "1,a", "1,c"), "f.csv:3: no node is named \"c\"");
    assert_eq!(
        fails_second("duration_s,gpu_models", "1,", "1,T5"),
        "f.csv:3: no device is a \"T5\"".to_owned()
    );
    assert!(
        fails_second("duration_s,cpu_milli", "1,4000", "1,4001")
            .contains("f.csv:3: Job \"bad\" can never run")
    );
    assert!(fails_second("duration_s,gpus", "1,2", "1,3").starts_with("f.csv:3: "));
    assert!(fails_second("duration_s,importance", "1,1", "1,11").starts_with("f.csv:3: importance is 11"));
    assert!(fails_second("duration_s,tasks", "1,1", "1,0").starts_with("f.csv:3: tasks is 0"));
    assert!(fails_second("duration_s,gpus,gpu_milli", "1,1,500", "1,2,500").starts_with("f.csv:3: "));
    assert!(
        fails_second("duration_s,network_mbps", "1,1", "1,99999999999999")
            .starts_with("f.csv:3: network_mbps")
    );
    assert!(
        fails_second("duration_s,gpus,gpu_traffic_mbps", "1,1,1", "1,1,99999999999999")
            .starts_with("f.csv:3: ")
    );
    assert_eq!(jobs_of("name,duration_s\n").unwrap_err().to_string(), "f.csv: there are no jobs");
    let twice = jobs_of("name,duration_s\nj,1\nj,1\n").unwrap_err();
    assert_eq!(twice.to_string(), "f.csv:3: the job \"j\" is there twice");
}

#[test]
fn refuses_bad_profiles() {
    let fails = |rows: &str| {
        let table = parse(
            &format!("name,local_seconds,network_share,loaded_share\n{rows}"),
            &PROFILE,
            &PROFILE_OPTIONAL,
        );
        applications(&table.unwrap()).unwrap_err().to_string()
    };
    assert_eq!(fails(""), "f.csv: there are no profiles");
    assert_eq!(fails("a,1,,\na,1,,\n"), "f.csv:3: the profile \"a\" is there twice");
    assert_eq!(fails("a,0,,\n"), "f.csv:2: local_seconds must be greater than 0");
    assert!(fails("(none),1,,\n").starts_with("f.csv:2: the profile \"(none)\""));
    assert_eq!(fails("a,1,0.5,0.4\n"), "f.csv:2: loaded_share is less than network_share");
    assert!(fails("a,1,1,\n").starts_with("f.csv:2: network_share is 1, but must be from 0 to 0.99"));
}

#[test]
fn warm_up_jobs_stand_apart() {
    let head = "name,duration_s,cpu_milli,nodes,warm_up,gpus,arrival_s\n";
    let jobs = jobs_of(&format!("{head}w,9,3000,a,true,,\nj,1,1,,,,\n")).unwrap();
    assert_eq!((jobs.jobs.len(), jobs.warm_up.len()), (1, 1));
    assert_eq!((jobs.jobs[0].job.id, jobs.warm_up[0].submission.job.id), (JobId(0), JobId(1)));
    let fails = |rows: &str| jobs_of(&format!("{head}{rows}")).unwrap_err().to_string();
    assert!(fails("w,9,3000,,true,,\n").starts_with("f.csv:2: a warm-up job needs one node"));
    assert!(fails("w,9,3000,a,true,1,\n").starts_with("f.csv:2: a warm-up job needs one node"));
    assert!(fails("w,9,3000,a,true,,1\n").starts_with("f.csv:2: a warm-up job needs one node"));
    assert!(fails("w,9,3000,a,maybe,,\n").starts_with("f.csv:2: warm_up is \"maybe\""));
    assert!(fails("j,1,1,,,,\nw,9,3000,a,true,,\nx,9,3000,a,true,,\n").contains("exceed its cores"));
    assert_eq!(fails("w,9,3000,a,true,,\n"), "f.csv: there are no jobs");
}

#[test]
fn damaged_files_are_refused_or_make_sense() {
    let nodes = "name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib,nic_mbps,numa\n\
                 a,4000,65536,2,T4,16384,10000,2\nb,2001,100,0,,,10000,\n";
    let jobs_text = "name,arrival_s,profile,duration_s,cpu_milli,gpus,gpu_milli,gpu_models,nodes,goal_s,importance\n\
                     x,1.5,nw,62,1000,,,,,70,1\ny,,,10,500,1,250,T4,a|b,,2\nz,0,,3,100,0,,,,,\n";
    let mut rng = rgpu_placement::Rng::new(1);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..3000 {
        let damage = |text: &str, rng: &mut rgpu_placement::Rng| -> Vec<u8> {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                match rng.below(4) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, b"-0,9\n\"#.e\xff|"[rng.below(11) as usize]),
                    2 => bytes[at] = rng.below(256) as u8,
                    _ => bytes.truncate(at.max(1)),
                }
            }
            bytes
        };
        let (nodes, jobs_text) = (damage(nodes, &mut rng), damage(jobs_text, &mut rng));
        let load = || -> Result<(Cluster, Jobs)> {
            let nodes = Table::parse(Path::new("n.csv"), &nodes, &NODE, &NODE_OPTIONAL)?;
            let cluster = cluster(&nodes, None)?;
            let table = Table::parse(Path::new("j.csv"), &jobs_text, &JOB, &JOB_OPTIONAL)?;
            let jobs = jobs(&table, &cluster, &mut Applications::rodinia())?;
            Ok((cluster, jobs))
        };
        match load() {
            Ok((cluster, jobs)) => {
                good += 1;
                assert!(!cluster.nodes().is_empty() && !jobs.jobs.is_empty());
            }
            Err(error) => {
                bad += 1;
                let text = error.to_string();
                assert!(text.starts_with("n.csv:") || text.starts_with("j.csv:"), "{text}");
            }
        }
    }
    assert!(good > 100 && bad > 100, "{good} {bad}");
}
