//! Repeats a paper's experiments with the library alone, as `rgpu sim paper` does:
//! `cargo run --release -p rgpu-simulator --example paper -- NAME SEEDS [TABLE-OR-FIGURE]`.

use std::error::Error;

use rgpu_simulator::papers::{Options, Paper};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seeds, rest @ ..] = arguments.as_slice() else {
        return Err("NAME SEEDS [TABLE-OR-FIGURE] are wanted".into());
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = rest.first().map(String::as_str);
    let options = Options { part, seeds: seeds.parse()?, threads, clock: None, progress: &|_| {} };
    print!("{}", Paper::named(name)?.run(&options)?.text);
    Ok(())
}
