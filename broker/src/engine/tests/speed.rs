//! How fast it is: not a test of anything, but a measurement to be run by hand.
//! `cargo test --release -p rgpu-broker speed -- --ignored --nocapture`

use super::*;
use crate::store::SqliteStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn ten_thousand_leases_on_a_thousand_nodes() {
    let directory = std::env::temp_dir().join(format!("rgpu-broker-speed-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let store = SqliteStore::open(&directory.join("state.sqlite")).unwrap();
    let key = PrivateKey::generate();
    let settings = Settings { node_timeout_ms: 600_000, ..Settings::default() };
    let engine = Engine::start(settings, key, Box::new(store), Arc::new(SystemClock::new())).unwrap();
    let began = std::time::Instant::now();
    let mut nodes = Vec::new();
    for i in 0..1000 {
        let mut node = FakeNode::new(&format!("n{i:04}"), 8, 16 * GIB);
        node.register(&engine).await.unwrap();
        nodes.push(Arc::new(tokio::sync::Mutex::new(node)));
    }
    println!("1,000 nodes of 8 devices registered in {:.2} s", began.elapsed().as_secs_f64());
    let holder = PrivateKey::generate().public().to_text();
    let before = engine.counters();
    let began = std::time::Instant::now();
    let mut tasks = Vec::new();
    for worker in 0..16u64 {
        let (engine, holder, nodes) = (engine.clone(), holder.clone(), nodes.clone());
        tasks.push(tokio::spawn(async move {
            let ann = tenant_named("ann");
            let mut times = Vec::new();
            for i in 0..625u64 {
                let number = worker * 625 + i;
                let machine = format!("machine-of-n{:04}", number * 37 % 1300);
                let request = LeaseRequest {
                    gpus: 1 + (number % 7 == 0) as u16,
                    memory: 4 * GIB,
                    share_milli: [250, 500, 1000][number as usize % 3],
                    traffic_mbps: Some(10),
                    wait_s: 60,
                    ..LeaseRequest::new("app".into(), machine, holder.clone())
                };
                let asked = std::time::Instant::now();
                let lease = engine.request_lease(&ann, request).await.unwrap();
                times.push(asked.elapsed());
                assert_eq!(lease.state, LeaseState::Active);
                engine.release(&ann, lease.id).await.unwrap();
                for server in &lease.servers {
                    let at: usize = server.node[1..].parse().unwrap();
                    nodes[at].lock().await.beat(&engine).await.unwrap();
                }
            }
            times
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let took = began.elapsed().as_secs_f64();
    times.sort();
    let counters = engine.counters();
    let rounds = counters.rounds - before.rounds;
    println!("10,000 leases granted, ended and confirmed in {took:.1} s: {:.0} a minute", 600_000.0 / took);
    println!("grants: median {:?}, p99 {:?}, longest {:?}", times[5000], times[9900], times[9999]);
    let each = |of: fn(&Counters) -> u64| (of(&counters) - of(&before)) as f64 / rounds as f64;
    let (schedule, update, round) = (each(|c| c.schedule_us), each(|c| c.update_us), each(|c| c.round_us));
    println!(
        "{rounds} rounds of {round:.0} us: in the library {schedule:.0} us deciding (x{:.3}) and {update:.0} us being told (x{:.3}); \
         then {:.0} us until stored; {:.0} us of notes between rounds",
        round / schedule,
        round / (schedule + update),
        each(|c| c.round_wait_us),
        each(|c| c.note_us),
    );
    let rebuilds = counters.rebuilds - before.rebuilds;
    println!("{rebuilds} models built anew, {} us in all", counters.rebuild_us - before.rebuild_us);
    println!(
        "{} commits of {:.1} records, {} us each",
        counters.commits,
        counters.records as f64 / counters.commits as f64,
        counters.commit_us / counters.commits
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    check(&engine);
    engine.stop();
    std::fs::remove_dir_all(&directory).unwrap();
}
