//! Says what is in images of GPU code: `cargo run -p rgpu-image --example ptx -- FILE…`

fn main() {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let text = match std::fs::read(&path) {
            Ok(bytes) => rgpu_image::ptx_for(&bytes, 80).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                println!("{path}: {error}");
                failed = true;
                continue;
            }
        };
        let start = std::time::Instant::now();
        match rgpu_image::ptx::parse(&text) {
            Ok(module) => {
                let statements: usize = module.functions.iter().map(|f| f.body.len()).sum();
                println!(
                    "{path}: PTX {}.{}, {}, {} functions, {} variables, {statements} statements, {} forms, {:?}",
                    module.version.0,
                    module.version.1,
                    module.target,
                    module.functions.len(),
                    module.variables.len(),
                    module.forms.len(),
                    start.elapsed(),
                );
            }
            Err(error) => {
                println!("{path}: {error}");
                failed = true;
            }
        }
    }
    std::process::exit(i32::from(failed));
}
