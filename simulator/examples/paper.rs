//! Repeats a paper's experiments: `cargo run --release -p rgpu-simulator --example paper -- NAME [SEEDS] [PART]`.
//!
//! The same as `rgpu sim paper`, without building the whole command.

use rgpu_simulator::papers::{Options, Paper};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let paper = Paper::named(arguments.first().map_or("drmaestro", String::as_str))?;
    let seeds = arguments.get(1).map_or(Ok(3), |text| text.parse())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = arguments.get(2).map(String::as_str);
    let report = paper.run(&Options { part, seeds, threads, clock: None, progress: &|_| {} })?;
    print!("{}", report.text);
    Ok(())
}
