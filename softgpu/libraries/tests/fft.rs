//! Fourier transforms, against sums made one by one.

mod rig;

use std::f64::consts::TAU;

use num_complex::Complex;
use proptest::prelude::*;
use rgpu_device::Code;
use rgpu_libraries::{Fft, FftLayout, Transform};
use rig::Rig;

type C = Complex<f64>;

/// Transforms of any shape in any layout.
#[derive(Debug, Clone)]
struct Problem {
    n: [usize; 3],
    transform: Transform,
    count: usize,
    /// Elements more than are needed: of the second and the third dimension in memory, and between problems.
    room: [usize; 3],
    stride: usize,
}

fn problems() -> impl Strategy<Value = Problem> {
    let n = prop_oneof![
        (1usize..40).prop_map(|z| [1, 1, z]),
        (1usize..12, 1usize..12).prop_map(|(y, z)| [1, y, z]),
        (1usize..6, 1usize..6, 1usize..10).prop_map(|(x, y, z)| [x, y, z]),
    ];
    let transform = prop::sample::select(Transform::ALL);
    (n, transform, 1usize..4, [0usize..3, 0usize..3, 0usize..5], 1usize..4)
        .prop_map(|(n, transform, count, room, stride)| Problem { n, transform, count, room, stride })
}

/// A layout for numbers of this shape, and how many elements it takes.
fn layout(problem: &Problem, n: [usize; 3]) -> (FftLayout, usize) {
    let pitch = [n[0], n[1] + problem.room[0], n[2] + problem.room[1]];
    let distance = pitch.iter().product::<usize>() * problem.stride + problem.room[2];
    let layout = FftLayout {
        addr: 0,
        pitch: pitch.map(|p| p as u64),
        stride: problem.stride as u64,
        distance: distance as u64,
    };
    (layout, distance * problem.count)
}

fn at(layout: &FftLayout, problem: usize, [x, y, z]: [usize; 3]) -> usize {
    let [_, py, pz] = layout.pitch.map(|p| p as usize);
    problem * layout.distance as usize + ((x * py + y) * pz + z) * layout.stride as usize
}

fn places(n: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..n[0]).flat_map(move |x| (0..n[1]).flat_map(move |y| (0..n[2]).map(move |z| [x, y, z])))
}

fn number(seed: usize) -> f64 {
    ((seed * 2_654_435_761) % 1009) as f64 / 504.5 - 1.0
}

/// The definition.
fn transformed(numbers: &[C], n: [usize; 3], sign: f64) -> Vec<C> {
    places(n)
        .map(|k| {
            places(n)
                .zip(numbers)
                .map(|(x, value)| {
                    let turns: f64 = (0..3).map(|d| ((k[d] * x[d]) % n[d]) as f64 / n[d] as f64).sum();
                    value * C::from_polar(1.0, sign * TAU * turns)
                })
                .sum()
        })
        .collect()
}

impl Problem {
    fn half(&self) -> [usize; 3] {
        [self.n[0], self.n[1], self.n[2] / 2 + 1]
    }

    /// What is given, and what must come out, of each problem.
    fn expected(&self, problem: usize) -> (Vec<C>, Vec<C>) {
        let n = self.n;
        let whole: usize = n.iter().product();
        let complex: Vec<C> =
            (0..whole).map(|i| C::new(number(i + 7919 * problem), number(i * 31 + 3 + problem))).collect();
        let real: Vec<C> = complex.iter().map(|c| C::new(c.re, 0.0)).collect();
        let halved = |spectrum: &[C]| -> Vec<C> {
            places(self.half()).map(|[x, y, z]| spectrum[(x * n[1] + y) * n[2] + z]).collect()
        };
        match self.transform {
            Transform::Forward => (complex.clone(), transformed(&complex, n, -1.0)),
            Transform::Inverse => (complex.clone(), transformed(&complex, n, 1.0)),
            Transform::RealToComplex => (real.clone(), halved(&transformed(&real, n, -1.0))),
            Transform::ComplexToReal => {
                let back = real.iter().map(|value| value * whole as f64).collect();
                (halved(&transformed(&real, n, -1.0)), back)
            }
        }
    }

    fn check<T: rig::Plain + Default>(&self, double: bool, to: fn(f64) -> T, from: fn(T) -> f64) {
        let rig = Rig::shared();
        let (from_real, to_real) =
            (self.transform == Transform::RealToComplex, self.transform == Transform::ComplexToReal);
        let shape = |is_half| if is_half { self.half() } else { self.n };
        let (shape_in, shape_out) = (shape(to_real), shape(from_real));
        let ((mut input, length_in), (mut output, length_out)) =
            (layout(self, shape_in), layout(self, shape_out));
        let parts = |real| if real { 1 } else { 2 };
        let (parts_in, parts_out) = (parts(from_real), parts(to_real));
        let mut given = vec![to(-77.0); length_in * parts_in];
        let mut wanted = vec![None; length_out * parts_out];
        for problem in 0..self.count {
            let (numbers, result) = self.expected(problem);
            for (place, value) in places(shape_in).zip(numbers) {
                let at = at(&input, problem, place) * parts_in;
                given[at] = to(value.re);
                if parts_in == 2 {
                    given[at + 1] = to(value.im);
                }
            }
            for (place, value) in places(shape_out).zip(result) {
                let at = at(&output, problem, place) * parts_out;
                wanted[at] = Some(value.re);
                if parts_out == 2 {
                    wanted[at + 1] = Some(value.im);
                }
            }
        }
        input.addr = rig.put(&given);
        output.addr = rig.put(&vec![to(-55.0); wanted.len()]);
        let fft = Fft {
            transform: self.transform,
            double,
            n: self.n.map(|n| n as u64),
            input: input.clone(),
            output: output.clone(),
            count: self.count as u64,
        };
        rig.call(&fft).unwrap();
        let got = rig.get::<T>(output.addr, wanted.len()).unwrap();
        let whole: usize = self.n.iter().product();
        let tolerance = if double { 1e-12 } else { 1e-5 } * (whole as f64 + 4.0);
        for (got, wanted) in got.into_iter().zip(wanted) {
            // What lies between the numbers stays as it was.
            let wanted = wanted.unwrap_or(-55.0);
            assert!((from(got) - wanted).abs() < tolerance, "{} {wanted} {self:?}", from(got));
        }
        if input == output || self.transform == Transform::Forward {
            // The same numbers once more, in their own place.
            let addr = rig.put(&given);
            let in_place = FftLayout { addr, ..input };
            rig.call(&Fft { input: in_place.clone(), output: in_place, ..fft }).unwrap();
            let again = rig.get::<T>(addr, given.len()).unwrap();
            let there = rig.get::<T>(output.addr, given.len()).unwrap();
            for problem in 0..self.count {
                for place in places(self.n) {
                    let at = at(&output, problem, place) * 2;
                    assert_eq!(from(again[at]), from(there[at]), "{self:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn transforms_are_their_sums(problem in problems()) {
        problem.check::<f32>(false, |v| v as f32, f64::from);
        problem.check::<f64>(true, |v| v, |v| v);
    }
}

#[test]
fn large_sizes_of_all_kinds_of_factors_go_there_and_back() {
    let rig = Rig::shared();
    for n in [4096usize, 6561, 5 * 7 * 11 * 13, 10_007, 1 << 16] {
        let count = 3;
        let given: Vec<f64> = (0..2 * n * count).map(number).collect();
        let (a, b) = (rig.put(&given), rig.put(&vec![0.0f64; given.len()]));
        let layout = |addr| FftLayout { addr, pitch: [1, 1, n as u64], stride: 1, distance: n as u64 };
        let there = Fft {
            double: true,
            n: [1, 1, n as u64],
            input: layout(a),
            output: layout(b),
            count: count as u64,
            ..Fft::default()
        };
        rig.call(&there).unwrap();
        let back = Fft { transform: Transform::Inverse, input: layout(b), ..there };
        rig.call(&back).unwrap();
        for (got, given) in rig.get::<f64>(b, given.len()).unwrap().into_iter().zip(given) {
            assert!((got / n as f64 - given).abs() < 1e-10, "{n}: {got} {given}");
        }
    }
}

#[test]
fn layouts_that_make_no_sense_are_refused() {
    let rig = Rig::new();
    let addr = rig.put(&[1.0f32; 32]);
    let layout = FftLayout { addr, pitch: [1, 1, 16], stride: 1, distance: 16 };
    let good =
        Fft { n: [1, 1, 16], input: layout.clone(), output: layout.clone(), count: 1, ..Fft::default() };
    rig.call(&good).unwrap();
    let refused = |fft: Fft, code| assert_eq!(rig.call(&fft).unwrap_err().code, code, "{fft:?}");
    refused(Fft { n: [1, 0, 16], ..good.clone() }, Code::InvalidValue);
    refused(Fft { input: FftLayout { stride: 0, ..layout.clone() }, ..good.clone() }, Code::InvalidValue);
    refused(Fft { n: [1 << 40, 1 << 40, 16], ..good.clone() }, Code::InvalidValue);
    refused(Fft { n: [1, 1 << 40, 1 << 40], ..good.clone() }, Code::InvalidValue);
    let far = FftLayout { distance: u64::MAX, ..layout.clone() };
    refused(Fft { output: far, count: 3, ..good.clone() }, Code::InvalidValue);
    refused(Fft { n: [1, 1, 1 << 30], ..good }, Code::IllegalAddress);
}
