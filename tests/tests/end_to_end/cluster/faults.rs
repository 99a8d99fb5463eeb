//! A few of the faults that `cargo xtask faults` does by the hundred.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::faults::{self, Kind, Plan};

use crate::context::{plain, product};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::faults_of_the_broker_touch_no_program", || few(Kind::Broker, 7)),
        Test::new("cluster::faults_of_a_server_touch_no_other_program", || few(Kind::Nodes, 4)),
        Test::new("cluster::a_standby_takes_over_and_no_program_notices", || few(Kind::Standby, 3)),
    ]
}

fn few(kind: Kind, times: u32) -> Result<()> {
    let program = plain("puppet")?;
    let report = faults::run(product()?, program, Plan { kind, times, clients: 3, nodes: 2, seed: 5 })?;
    println!("{report}");
    ensure!(report.is_clean(), "{report}");
    Ok(())
}
