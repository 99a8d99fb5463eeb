//! The device over the fake driver, held to what every device is held to.
//!
//! The fake driver has one device and prints nothing; it takes every image; and its legacy stream is like any other.
//! Of the libraries there is what the cases use.

use super::fake::{Symbols, turn};
use super::fake_libraries;
use crate::libraries::Place;
use crate::print::Printed;
use crate::table::Table;
use crate::{Config, NvidiaDevice};
use rgpu_conformance::{Subject, TestHost};
use rgpu_device::{Device, Range};
use std::sync::Arc;

fn open(host: Arc<TestHost>) -> Subject {
    let turn = turn();
    // SAFETY: the fake driver has the driver's interface.
    let table = unsafe { Table::load(&Symbols(&[])) }.unwrap();
    let device = NvidiaDevice::with_table(
        table,
        Some(Place::Test(fake_libraries::find)),
        &Config::default(),
        host,
        Printed::nothing(),
        None,
    )
    .unwrap();
    let plan = device.reserve(Range { base: 0x3000_0000_0000, size: 1 << 40 }).unwrap();
    Subject { device, plan, posts: false, guard: Box::new(turn) }
}

rgpu_conformance::suite!(open, without: [Printing, LegacyOrder, Images, TwoDevices]);
