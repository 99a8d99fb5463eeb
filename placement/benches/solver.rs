//! Measures the minimum-cost-flow solver on networks of schedulers' shapes, beside LEMON and OR-tools.
//!
//!     cargo bench -p rgpu-placement --bench solver -- \
//!         [--shape NAME] [--slots PERCENT] [--rounds N] [--plot FILE.svg] [--no-peers]
//!
//! Every solver gets the same arcs in the same order with the same costs, one thread, and the best of three counts, in
//! processor time. LEMON is used where a C++ compiler finds it (Debian: `liblemon-dev`), OR-tools where the Python that `PYTHON` names
//! (or `python3`) imports it; a peer that is not there is left out by name.

// Only the library has no clock.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use plotters::prelude::*;
use rgpu_placement::flow::generate::{Random, Scheduling, SchedulingNetwork};
use rgpu_placement::flow::{Algorithm, Error, Incremental, Network, Solution, dimacs};

type Failure = Box<dyn std::error::Error>;

const SHAPES: [(&str, Scheduling); 9] = [
    ("128x4096", scheduling(128, 4096, 4096, 4, 100)),
    ("128x4096-half", scheduling(128, 4096, 4096, 4, 50)),
    ("128x4096-double", scheduling(128, 4096, 4096, 4, 200)),
    ("12500x10000", scheduling(12_500, 10_000, 1_000, 10, 100)),
    ("12500x10000-half", scheduling(12_500, 10_000, 1_000, 10, 50)),
    ("12500x10000-double", scheduling(12_500, 10_000, 1_000, 10, 200)),
    ("12500x150000", scheduling(12_500, 150_000, 10_000, 10, 100)),
    ("12500x150000-half", scheduling(12_500, 150_000, 10_000, 10, 50)),
    ("12500x150000-double", scheduling(12_500, 150_000, 10_000, 10, 200)),
];

const fn scheduling(
    machines: usize,
    tasks: usize,
    jobs: usize,
    preferences: usize,
    slots_percent: usize,
) -> Scheduling {
    Scheduling { machines, tasks, jobs, preferences, slots_percent }
}

fn main() -> Result<(), Failure> {
    let mut shape = None;
    let mut plot = None;
    let mut peers = true;
    let mut slots = None;
    let mut rounds = 5;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--shape" => shape = arguments.next(),
            "--slots" => slots = arguments.next().map(|percent| percent.parse()).transpose()?,
            "--rounds" => rounds = arguments.next().unwrap_or_default().parse()?,
            "--plot" => plot = arguments.next(),
            "--no-peers" => peers = false,
            // What `cargo bench` adds.
            "--bench" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    if let Some(file) = plot {
        return growth(Path::new(&file));
    }
    let peers = if peers { Peers::find()? } else { Peers::default() };
    let chosen = SHAPES.iter().filter(|(name, _)| shape.as_deref().is_none_or(|shape| shape == *name));
    for (name, scheduling) in chosen {
        let scheduling =
            Scheduling { slots_percent: slots.unwrap_or(scheduling.slots_percent), ..*scheduling };
        measure(name, &scheduling, &peers)?;
        incremental(&scheduling, rounds)?;
    }
    Ok(())
}

/// The processor time of this thread, which other programs on the machine disturb less; where the system doesn't tell,
/// time by the clock.
fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    // The system's sum is brought up to date when the thread gives way.
    std::thread::yield_now();
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Builds a network's copy and solves that: the solution, the time of solving alone, and the time of both.
fn from_scratch(network: &Network) -> Result<(Solution, Duration, Duration), Failure> {
    let arcs: Vec<_> = network.arcs().map(|(_, arc)| arc).collect();
    let supplies: Vec<i64> = network.nodes().map(|node| network.supply(node)).collect::<Result<_, _>>()?;
    let start = now();
    let mut copy = Network::new();
    for supply in supplies {
        copy.add_node(supply)?;
    }
    for arc in &arcs {
        copy.add_arc(arc.tail, arc.head, arc.capacity, arc.cost)?;
    }
    let built = now();
    let solution = Algorithm::Auto.solve(&copy)?;
    let end = now();
    Ok((solution, end - built, end - start))
}

/// From scratch, ours and the peers'.
fn measure(name: &str, scheduling: &Scheduling, peers: &Peers) -> Result<(), Failure> {
    let network = scheduling.build(1)?.network;
    println!("{name}: {} nodes, {} arcs", network.node_count(), network.arc_count());
    let (mut solve, mut all, mut optimum) = (Duration::MAX, Duration::MAX, 0);
    for _ in 0..3 {
        let (solution, alone, built_too) = from_scratch(&network)?;
        solution.verify(&network)?;
        optimum = solution.cost();
        solve = solve.min(alone);
        all = all.min(built_too);
    }
    let line = |who: &str, optimum: &str, solve: f64, all: f64| {
        println!("  {who:24} optimum {optimum:>14} {solve:>10.1} ms {all:>10.1} ms with building");
    };
    line("rgpu auto", &optimum.to_string(), milliseconds(solve), milliseconds(all));
    if !peers.commands.is_empty() {
        let file = scratch_directory()?.join(format!("{name}.min"));
        std::fs::write(&file, dimacs::write(&network))?;
        for (peer, command) in &peers.commands {
            let Some(output) = run(command, &file)? else {
                println!("  {peer:24} gave up");
                continue;
            };
            let field = |name: &str| {
                output
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                    .map(|value| value.trim_end_matches(" ms").to_owned())
            };
            let number = |name: &str| field(name).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
            let theirs = field("optimum").unwrap_or(output.trim().to_owned());
            line(peer, &theirs, number("time"), number("time with building"));
            if theirs != optimum.to_string() {
                return Err(format!("{peer} finds {theirs}, not {optimum}").into());
            }
        }
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// After one percent of the tasks changed, beside from scratch.
fn incremental(scheduling: &Scheduling, rounds: usize) -> Result<(), Failure> {
    let mut parts = scheduling.build(1)?;
    let mut random = Random::new(7);
    let mut kept = Incremental::new(std::mem::take(&mut parts.network));
    kept.solve()?;
    let (mut changing, mut solving, mut both) = (Vec::new(), Vec::new(), Vec::new());
    let (mut scratch, mut built_and_solved) = (Duration::MAX, Duration::MAX);
    for round in 0..rounds {
        let start = now();
        change(&mut kept, &mut parts, scheduling, &mut random)?;
        let changed = now();
        let cost = kept.solve()?;
        let end = now();
        changing.push(changed - start);
        solving.push(end - changed);
        both.push(end - start);
        kept.verify()?;
        if round < 3 {
            let (fresh, solve, all) = from_scratch(kept.network())?;
            (scratch, built_and_solved) = (scratch.min(solve), built_and_solved.min(all));
            if fresh.cost() != cost {
                return Err(format!("incremental finds {cost}, from scratch {}", fresh.cost()).into());
            }
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (changing, solving, both) = (median(&mut changing), median(&mut solving), median(&mut both));
    println!(
        "  1% of tasks changed, medians of {rounds}: solving again {:.1} ms, from scratch {:.1} ms: {:.1}x; \
         making the changes {:.1} ms, with solving {:.1} ms, building and solving {:.1} ms: {:.1}x",
        milliseconds(solving),
        milliseconds(scratch),
        scratch.as_secs_f64() / solving.as_secs_f64(),
        milliseconds(changing),
        milliseconds(both),
        milliseconds(built_and_solved),
        built_and_solved.as_secs_f64() / both.as_secs_f64()
    );
    Ok(())
}

/// A third of a percent of the tasks leave and as many arrive, a third have one cost changed, and a third of a percent of
/// the machines lose or gain a slot.
fn change(
    kept: &mut Incremental,
    parts: &mut SchedulingNetwork,
    scheduling: &Scheduling,
    random: &mut Random,
) -> Result<(), Error> {
    for _ in 0..scheduling.tasks / 300 {
        let index = random.below(parts.tasks.len());
        kept.remove_node(parts.tasks[index])?;
        let task = kept.add_node(1)?;
        parts.tasks[index] = task;
        for place in 0..scheduling.preferences {
            let machine = parts.machines[random.below(parts.machines.len())];
            let arc = kept.add_arc(task, machine, 1, random.between(1, 1000))?;
            parts.preferences[index * scheduling.preferences + place] = arc;
        }
        kept.add_arc(task, parts.aggregator, 1, random.between(500, 1500))?;
        let job = parts.jobs[index * parts.jobs.len() / parts.tasks.len()];
        kept.add_arc(task, job, 1, random.between(2000, 5000))?;
    }
    for _ in 0..scheduling.tasks / 300 {
        let arc = parts.preferences[random.below(parts.preferences.len())];
        kept.set_cost(arc, random.between(1, 1000))?;
    }
    for _ in 0..scheduling.machines / 300 {
        let arc = parts.slots[random.below(parts.slots.len())];
        let capacity = kept.network().arc(arc)?.capacity;
        kept.set_capacity(arc, (capacity + random.between(-1, 1)).max(0))?;
    }
    Ok(())
}

/// Programs that solve the same problem, by name.
#[derive(Default)]
struct Peers {
    commands: Vec<(&'static str, Vec<String>)>,
}

impl Peers {
    fn find() -> Result<Self, Failure> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        let mut commands = Vec::new();
        let lemon = scratch_directory()?.join("lemon");
        let built = Command::new("c++")
            .args(["-O3", "-DNDEBUG", "-o"])
            .arg(&lemon)
            .arg(sources.join("lemon.cpp"))
            .arg("-llemon")
            .output();
        if built.is_ok_and(|output| output.status.success()) {
            let lemon = lemon.display().to_string();
            commands.push((
                "LEMON network simplex",
                vec![lemon.clone(), "FILE".into(), "network-simplex".into()],
            ));
            commands.push(("LEMON cost scaling", vec![lemon, "FILE".into(), "cost-scaling".into()]));
        } else {
            println!("LEMON is left out: a C++ compiler, or LEMON, was not found");
        }
        let python = std::env::var("PYTHON").unwrap_or("python3".into());
        let imports = Command::new(&python).args(["-c", "import ortools, numpy"]).output();
        if imports.is_ok_and(|output| output.status.success()) {
            let script = sources.join("ortools_min_cost_flow.py").display().to_string();
            commands.push(("OR-tools", vec![python, script, "FILE".into()]));
        } else {
            println!("OR-tools is left out: {python} does not import it");
        }
        Ok(Self { commands })
    }
}

/// What a peer prints, if it ends within ten minutes.
fn run(command: &[String], file: &Path) -> Result<Option<String>, Failure> {
    let words: Vec<String> = command
        .iter()
        .map(|word| if word == "FILE" { file.display().to_string() } else { word.clone() })
        .collect();
    let output = Command::new("timeout").arg("600").args(&words).output()?;
    Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn scratch_directory() -> Result<PathBuf, Failure> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("solver-bench");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// How time grows with machines and tasks, as a picture.
fn growth(file: &Path) -> Result<(), Failure> {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for machines in [125, 1_250, 12_500] {
        let (mut scratch, mut kept_times) = (Vec::new(), Vec::new());
        for tasks in [1_000, 3_000, 10_000, 30_000, 100_000, 150_000] {
            let scheduling = scheduling(machines, tasks, (tasks / 15).max(1), 10, 100);
            let mut parts = scheduling.build(1)?;
            let network = std::mem::take(&mut parts.network);
            let mut best = Duration::MAX;
            for _ in 0..3 {
                let start = now();
                Algorithm::Auto.solve(&network)?;
                best = best.min(now() - start);
            }
            let mut kept = Incremental::new(network);
            kept.solve()?;
            let mut random = Random::new(7);
            let mut again = Duration::MAX;
            for _ in 0..3 {
                let start = now();
                change(&mut kept, &mut parts, &scheduling, &mut random)?;
                kept.solve()?;
                again = again.min(now() - start);
            }
            println!(
                "{machines} machines, {tasks} tasks: {:.1} ms, {:.1} ms incremental",
                milliseconds(best),
                milliseconds(again)
            );
            scratch.push((tasks as f64, milliseconds(best)));
            kept_times.push((tasks as f64, milliseconds(again)));
        }
        series.push((format!("{machines} machines, from scratch"), scratch));
        series.push((format!("{machines} machines, 1% changed"), kept_times));
    }
    let root = SVGBackend::new(file, (900, 600)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .caption("Minimum-cost flow: time by tasks and machines", ("sans-serif", 20))
        .build_cartesian_2d((800.0..200_000.0).log_scale(), (0.1..10_000.0).log_scale())?;
    chart.configure_mesh().x_desc("tasks").y_desc("milliseconds").draw()?;
    for (index, (name, points)) in series.iter().enumerate() {
        let color = [RED, BLUE, GREEN][index / 2 % 3];
        let style = ShapeStyle {
            color: color.into(),
            filled: true,
            stroke_width: if index % 2 == 0 { 2 } else { 1 },
        };
        let size = if index % 2 == 0 { 4 } else { 2 };
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(size))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    root.present()?;
    Ok(())
}
