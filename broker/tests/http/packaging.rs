//! The files in `packaging/`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Scratch;

#[test]
fn systemd_understands_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: systemd_understands_the_units: there is no systemd-analyze");
        return;
    }
    let scratch = Scratch::new();
    // It wants the program to be there.
    let program = std::env::current_exe().unwrap();
    for name in ["rgpu-broker.service", "rgpu-serve.service"] {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name);
        let text = fs::read_to_string(unit).unwrap();
        assert!(text.contains("/usr/bin/rgpu "));
        let copy = scratch.0.join(name);
        let verify = |text: &str| {
            fs::write(&copy, text.replace("/usr/bin/rgpu ", &format!("{} ", program.display()))).unwrap();
            let output =
                Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
            (output.status.success() && output.stderr.is_empty(), output)
        };
        let (good, output) = verify(&text);
        assert!(good, "{name}: {output:?}");
        // It would have said so.
        let (good, output) = verify(&text.replace("TimeoutStopSec=30", "TimeoutStopSec=soon"));
        assert!(!good, "{name}: {output:?}");
    }
}
