//! Conformance of PTX opcodes: each is executed on edge values and random ones, and compared with a model
//! that knows nothing of the code generator: exact integers, `rustc_apfloat` for IEEE arithmetic, and for
//! approximations the error bounds that the PTX manual gives.

#![allow(clippy::precedence)]

mod approx;
mod atomics;
mod bits;
mod case;
mod cluster;
mod compare;
mod convert;
mod coverage;
mod float;
mod fuzz;
mod gpu;
mod group;
mod integer;
mod matrix;
mod memory;
mod oracle;
mod programs;
mod refusals;
mod tensor;
mod texture;
mod values;
mod video;
mod warp;

use case::run_all;

#[test]
fn integer_arithmetic() {
    run_all(integer::cases());
}

#[test]
fn logic_shifts_and_bits() {
    run_all(bits::cases());
}

#[test]
fn floating_point_arithmetic() {
    run_all(float::cases());
}

#[test]
fn approximations() {
    run_all(approx::cases());
}

#[test]
fn conversions() {
    run_all(convert::cases());
}

#[test]
fn clusters_of_blocks() {
    run_all(cluster::cases());
}

#[test]
fn comparisons() {
    run_all(compare::cases());
}

#[test]
fn loads() {
    run_all(memory::load_cases());
}

#[test]
fn stores() {
    run_all(memory::store_cases());
}

#[test]
fn addresses_and_control_flow() {
    run_all(memory::other_cases());
}

#[test]
fn atomic_operations() {
    run_all(atomics::cases());
}

#[test]
fn warps_and_barriers() {
    run_all(warp::cases());
}

#[test]
fn video_instructions() {
    run_all(video::cases());
}
