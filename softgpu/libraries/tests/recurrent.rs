//! Recurrent networks against cells that are computed one by one, and their gradients against differences.

mod rig;

use proptest::prelude::*;
use rgpu_libraries::{DnnCell, DnnRecurrent, DnnRecurrentTask, DnnSequenceLayout, DnnType};
use rig::{Rig, close, numbers};

/// What goes into a network: vectors by sequence and step, and states one behind the other.
#[derive(Debug, Clone)]
struct Given {
    weights: Vec<f64>,
    x: Vec<Vec<Vec<f64>>>,
    hx: Vec<f64>,
    cx: Vec<f64>,
}

/// What comes out of it.
struct Made {
    y: Vec<Vec<Vec<f64>>>,
    hy: Vec<f64>,
    cy: Vec<f64>,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A matrix of the network, times a vector.
fn times(n: &DnnRecurrent, weights: &[f64], pseudo: u64, number: u64, x: &[f64]) -> Vec<f64> {
    match n.matrix(pseudo, number) {
        Some(place) => (0..place.rows)
            .map(|row| {
                let from = (place.offset + row * place.columns) as usize;
                weights[from..from + x.len()].iter().zip(x).map(|(w, x)| w * x).sum()
            })
            .collect(),
        None => x.to_vec(),
    }
}

fn bias(n: &DnnRecurrent, weights: &[f64], pseudo: u64, number: u64, row: usize) -> f64 {
    n.bias(pseudo, number).map_or(0.0, |place| weights[place.offset as usize + row])
}

/// One cell after the other. `factors` is what comes between layers: by layer, sequence, step and place.
fn oracle(n: &DnnRecurrent, given: &Given, factors: &dyn Fn(u64, usize, usize, usize) -> f64) -> Made {
    let (h, o, gates, directions) = (n.hidden as usize, n.outputs() as usize, n.gates(), n.directions());
    let count = n.lengths.len();
    let (mut hy, mut cy) = (given.hx.clone(), given.cx.clone());
    let mut input = given.x.clone();
    for layer in 0..n.layers {
        let mut output: Vec<Vec<Vec<f64>>> =
            n.lengths.iter().map(|&t| vec![vec![0.0; o * directions as usize]; t as usize]).collect();
        for (direction, sequence) in (0..directions).flat_map(|d| (0..count).map(move |s| (d, s))) {
            let p = layer * directions + direction;
            let at = p as usize * count + sequence;
            let (mut state, mut memory) = (hy[at * o..][..o].to_vec(), cy[at * h..][..h].to_vec());
            let steps = 0..n.lengths[sequence] as usize;
            let steps: Vec<usize> = if direction == 0 { steps.collect() } else { steps.rev().collect() };
            for step in steps {
                let x = &input[sequence][step];
                let of_input = |gate: u64| {
                    let product = times(n, &given.weights, p, gate, x);
                    (0..h).map(|k| product[k] + bias(n, &given.weights, p, gate, k)).collect::<Vec<_>>()
                };
                let of_state = |gate: u64| {
                    let product = times(n, &given.weights, p, gates + gate, &state);
                    (0..h)
                        .map(|k| product[k] + bias(n, &given.weights, p, gates + gate, k))
                        .collect::<Vec<_>>()
                };
                let sum = |gate: u64| -> Vec<f64> {
                    of_input(gate).iter().zip(of_state(gate)).map(|(a, b)| a + b).collect()
                };
                state = match n.cell {
                    DnnCell::Relu => sum(0).into_iter().map(|x| x.max(0.0)).collect(),
                    DnnCell::Tanh => sum(0).into_iter().map(f64::tanh).collect(),
                    DnnCell::Lstm => {
                        let [i, f, g, out] = [0, 1, 2, 3].map(sum);
                        memory =
                            (0..h).map(|k| sigmoid(f[k]) * memory[k] + sigmoid(i[k]) * g[k].tanh()).collect();
                        let full: Vec<f64> = (0..h).map(|k| sigmoid(out[k]) * memory[k].tanh()).collect();
                        if n.projection > 0 { times(n, &given.weights, p, 2 * gates, &full) } else { full }
                    }
                    DnnCell::Gru => {
                        let (r, z, of_x, of_h) = (sum(0), sum(1), of_input(2), of_state(2));
                        (0..h)
                            .map(|k| {
                                let new = (of_x[k] + sigmoid(r[k]) * of_h[k]).tanh();
                                (1.0 - sigmoid(z[k])) * new + sigmoid(z[k]) * state[k]
                            })
                            .collect()
                    }
                };
                output[sequence][step][direction as usize * o..][..o].copy_from_slice(&state);
            }
            hy[at * o..][..o].copy_from_slice(&state);
            cy[at * h..][..h].copy_from_slice(&memory);
        }
        if layer + 1 < n.layers {
            for (sequence, steps) in output.iter_mut().enumerate() {
                for (step, vector) in steps.iter_mut().enumerate() {
                    vector.iter_mut().enumerate().for_each(|(k, x)| *x *= factors(layer, sequence, step, k));
                }
            }
        }
        input = output;
    }
    Made { y: input, hy, cy }
}

/// Where the vector of a step of a sequence lies, by the layout.
fn place(n: &DnnRecurrent, sequence: usize, step: usize) -> usize {
    match n.layout {
        DnnSequenceLayout::TimeMajor => step * n.lengths.len() + sequence,
        DnnSequenceLayout::BatchMajor => sequence * n.steps as usize + step,
        DnnSequenceLayout::Packed => {
            let before: usize =
                (0..step).map(|t| n.lengths.iter().filter(|&&length| length as usize > t).count()).sum();
            before + n.lengths[..sequence].iter().filter(|&&length| length as usize > step).count()
        }
    }
}

/// How many vectors have room.
fn room(n: &DnnRecurrent) -> usize {
    match n.layout {
        DnnSequenceLayout::Packed => n.lengths.iter().sum::<u32>() as usize,
        _ => n.lengths.len() * n.steps as usize,
    }
}

/// In memory, with 7 behind the ends.
fn stored(n: &DnnRecurrent, vectors: &[Vec<Vec<f64>>], width: usize) -> Vec<f64> {
    let mut all = vec![7.0; room(n) * width];
    for (sequence, steps) in vectors.iter().enumerate() {
        for (step, vector) in steps.iter().enumerate() {
            all[place(n, sequence, step) * width..][..width].copy_from_slice(vector);
        }
    }
    all
}

#[derive(Debug, Clone)]
struct Case {
    network: DnnRecurrent,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let cells = prop::sample::select(
        &[(DnnCell::Relu, 0), (DnnCell::Tanh, 0), (DnnCell::Lstm, 0), (DnnCell::Lstm, 2), (DnnCell::Gru, 0)]
            [..],
    );
    let layout = prop::sample::select(DnnSequenceLayout::ALL);
    (cells, layout, any::<[bool; 4]>(), 1u64..4, prop::collection::vec(1u32..4, 1..4), any::<u64>()).prop_map(
        |(
            (cell, projection),
            layout,
            [both_ways, skips_input, input_bias, state_bias],
            layers,
            lengths,
            seed,
        )| {
            let network = DnnRecurrent {
                cell,
                projection,
                layout,
                both_ways,
                skips_input,
                input_bias,
                state_bias,
                layers,
                lengths,
                kind: DnnType::F64,
                input: if skips_input { 3 } else { 2 },
                hidden: 3,
                steps: 3,
                ..DnnRecurrent::default()
            };
            Case { network, seed }
        },
    )
}

impl Case {
    fn states(&self) -> usize {
        (self.network.layers * self.network.directions()) as usize * self.network.lengths.len()
    }

    fn given(&self) -> Given {
        let n = &self.network;
        let width = n.input as usize;
        let sequence = |(i, &t): (usize, &u32)| {
            (0..t as u64).map(|step| numbers(width, self.seed ^ (100 * i as u64 + step + 10))).collect()
        };
        Given {
            weights: numbers(n.weight_count().unwrap() as usize, self.seed ^ 1),
            x: n.lengths.iter().enumerate().map(sequence).collect(),
            hx: numbers(self.states() * n.outputs() as usize, self.seed ^ 2),
            cx: numbers(self.states() * n.hidden as usize, self.seed ^ 3),
        }
    }

    /// The network on the device, trained once.
    fn trained(&self, rig: &Rig, given: &Given) -> DnnRecurrent {
        let n = &self.network;
        let wide = (n.directions() * n.outputs()) as usize;
        let lstm = n.cell == DnnCell::Lstm;
        let kept = rig.alloc(n.kept_bytes().unwrap() as usize);
        let (hy, cy) = (rig.put(&given.hx), if lstm { rig.put(&given.cx) } else { 0 });
        let work = DnnRecurrent {
            task: DnnRecurrentTask::Train,
            weights: rig.put(&given.weights),
            kept,
            x: rig.put(&stored(n, &given.x, n.input as usize)),
            y: rig.put(&vec![7.0; room(n) * wide]),
            hx: rig.put(&given.hx),
            cx: if lstm { rig.put(&given.cx) } else { 0 },
            hy,
            cy,
            ..n.clone()
        };
        rig.call(&work).unwrap();
        work
    }
}

fn ones(_: u64, _: usize, _: usize, _: usize) -> f64 {
    1.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn outputs_are_those_of_cells(case in cases(), fills in any::<bool>()) {
        let (rig, given) = (Rig::shared(), case.given());
        let case = Case {
            network: DnnRecurrent { fill: fills.then_some(-2.0), ..case.network }, ..case
        };
        let n = &case.network;
        let wanted = oracle(n, &given, &ones);
        let work = case.trained(rig, &given);
        let wide = (n.directions() * n.outputs()) as usize;
        let found = rig.get::<f64>(work.y, room(n) * wide).unwrap();
        let mut expected = stored(n, &wanted.y, wide);
        if fills {
            // What is 7 is behind the ends; outputs of this size there are none of.
            expected.iter_mut().filter(|y| **y == 7.0).for_each(|y| *y = -2.0);
        }
        close(&found, &expected, 1e-12)?;
        close(&rig.get::<f64>(work.hy, given.hx.len()).unwrap(), &wanted.hy, 1e-12)?;
        if n.cell == DnnCell::Lstm {
            close(&rig.get::<f64>(work.cy, given.cx.len()).unwrap(), &wanted.cy, 1e-12)?;
        }
        // Without keeping anything it is the same.
        let y = rig.put(&vec![7.0; room(n) * wide]);
        rig.call(&DnnRecurrent { task: DnnRecurrentTask::Infer, kept: 0, hy: 0, cy: 0, y, ..work }).unwrap();
        close(&rig.get::<f64>(y, room(n) * wide).unwrap(), &expected, 1e-12)?;
    }

    #[test]
    fn gradients_are_differences(case in cases()) {
        let (rig, given) = (Rig::shared(), case.given());
        let n = &case.network;
        let (wide, lstm) = ((n.directions() * n.outputs()) as usize, n.cell == DnnCell::Lstm);
        let made = oracle(n, &given, &ones);
        // The loss is a sum of all results with these factors.
        let dy: Vec<Vec<Vec<f64>>> = made.y.iter().enumerate().map(|(i, steps)| {
            (0..steps.len()).map(|step| numbers(wide, case.seed ^ (1000 + 10 * i as u64 + step as u64))).collect()
        }).collect();
        let (dhy, dcy) = (numbers(given.hx.len(), case.seed ^ 5), numbers(given.cx.len(), case.seed ^ 6));
        let loss = |given: &Given| {
            let made = oracle(n, given, &ones);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let of_y: f64 = made.y.iter().flatten().zip(dy.iter().flatten()).map(|(a, b)| dot(a, b)).sum();
            of_y + dot(&made.hy, &dhy) + if lstm { dot(&made.cy, &dcy) } else { 0.0 }
        };
        let difference = |change: &dyn Fn(&mut Given, f64)| {
            let at = |by: f64| {
                let mut changed = given.clone();
                change(&mut changed, by);
                loss(&changed)
            };
            (at(1e-6) - at(-1e-6)) / 2e-6
        };
        let work = case.trained(rig, &given);
        let data = DnnRecurrent {
            task: DnnRecurrentTask::Data,
            dy: rig.put(&stored(n, &dy, wide)),
            dx: rig.put(&vec![7.0; room(n) * n.input as usize]),
            dhy: rig.put(&dhy),
            dhx: rig.put(&given.hx),
            dcy: if lstm { rig.put(&dcy) } else { 0 },
            dcx: if lstm { rig.put(&given.cx) } else { 0 },
            ..work.clone()
        };
        rig.call(&data).unwrap();
        let before = numbers(given.weights.len(), case.seed ^ 8);
        let weights = DnnRecurrent {
            task: DnnRecurrentTask::Weights, dweights: rig.put(&before), adds: true, ..work
        };
        rig.call(&weights).unwrap();
        let found = rig.get::<f64>(data.dx, room(n) * n.input as usize).unwrap();
        for (sequence, &length) in n.lengths.iter().enumerate() {
            for (step, k) in (0..length as usize).flat_map(|t| (0..n.input as usize).map(move |k| (t, k))) {
                let wanted = difference(&|given, by| given.x[sequence][step][k] += by);
                let at = place(n, sequence, step) * n.input as usize + k;
                close(&found[at..=at], &[wanted], 1e-5)?;
            }
        }
        let found = rig.get::<f64>(data.dhx, given.hx.len()).unwrap();
        for (i, found) in found.iter().enumerate() {
            close(&[*found], &[difference(&|given, by| given.hx[i] += by)], 1e-5)?;
        }
        if lstm {
            for (i, found) in rig.get::<f64>(data.dcx, given.cx.len()).unwrap().iter().enumerate() {
                close(&[*found], &[difference(&|given, by| given.cx[i] += by)], 1e-5)?;
            }
        }
        let found = rig.get::<f64>(weights.dweights, before.len()).unwrap();
        for (i, found) in found.iter().enumerate() {
            let wanted = before[i] + difference(&|given, by| given.weights[i] += by);
            close(&[*found], &[wanted], 1e-5)?;
        }
        // Set instead of added up.
        rig.call(&DnnRecurrent { adds: false, ..weights.clone() }).unwrap();
        let set = rig.get::<f64>(weights.dweights, before.len()).unwrap();
        let sums: Vec<f64> = set.iter().zip(&before).map(|(a, b)| a + b).collect();
        close(&sums, &found, 1e-12)?;
    }

    #[test]
    fn what_is_dropped_is_dropped_both_ways(case in cases(), chance in 0.1f64..0.9) {
        let rig = Rig::shared();
        let network = DnnRecurrent { layers: 2, chance, seed: case.seed, ..case.network.clone() };
        let case = Case { network, seed: case.seed };
        let given = case.given();
        let n = &case.network;
        let wide = (n.directions() * n.outputs()) as usize;
        let work = case.trained(rig, &given);
        let rows = n.steps as usize * n.lengths.len();
        // The first layer's dropped outputs come first in what is kept, and then the factors.
        let factors = rig.get::<f64>(work.kept, 2 * rows * wide).unwrap()[rows * wide..].to_vec();
        for factor in &factors {
            prop_assert!(*factor == 0.0 || (factor - 1.0 / (1.0 - chance)).abs() < 1e-12);
        }
        let at = |_: u64, sequence: usize, step: usize, k: usize| {
            factors[(step * n.lengths.len() + sequence) * wide + k]
        };
        let wanted = oracle(n, &given, &at);
        let found = rig.get::<f64>(work.y, room(n) * wide).unwrap();
        close(&found, &stored(n, &wanted.y, wide), 1e-12)?;
        // Other places of the sequence give other factors.
        let again = DnnRecurrent { place: 1 << 20, kept: rig.alloc(n.kept_bytes().unwrap() as usize), ..work };
        rig.call(&again).unwrap();
        let others = rig.get::<f64>(again.kept, 2 * rows * wide).unwrap()[rows * wide..].to_vec();
        prop_assert!(factors.len() < 24 || factors != others);
    }
}

#[test]
fn narrow_types_are_computed_in_wide_ones() {
    let rig = Rig::shared();
    let network = DnnRecurrent {
        task: DnnRecurrentTask::Infer,
        cell: DnnCell::Tanh,
        kind: DnnType::F16,
        input: 1,
        hidden: 1,
        layers: 1,
        steps: 2,
        lengths: vec![2],
        ..DnnRecurrent::default()
    };
    let bits = |values: &[f32]| values.iter().map(|&x| half_bits(x)).collect::<Vec<u16>>();
    let y = rig.put(&[0u16; 2]);
    let work =
        DnnRecurrent { weights: rig.put(&bits(&[0.5, 0.25])), x: rig.put(&bits(&[1.0, -2.0])), y, ..network };
    rig.call(&work).unwrap();
    let first = 0.5f32.tanh();
    let wanted = [first, (-1.0f32 + 0.25 * first).tanh()];
    let found: Vec<u16> = rig.get(y, 2).unwrap();
    assert_eq!(found, wanted.map(half_bits));
}

/// The bits of a number of 16 bits, rounded to nearest.
fn half_bits(x: f32) -> u16 {
    half::f16::from_f32(x).to_bits()
}

#[test]
fn what_cannot_be_is_refused() {
    let rig = Rig::new();
    let network = DnnRecurrent {
        input: 1,
        hidden: 1,
        layers: 1,
        steps: 1,
        lengths: vec![1],
        ..DnnRecurrent::default()
    };
    let fails = |work: DnnRecurrent| rig.call(&work).and_then(|()| rig.get::<u8>(rig.alloc(1), 1)).is_err();
    // Without weights.
    assert!(fails(network.clone()));
    assert!(fails(DnnRecurrent { kind: DnnType::I8, ..network.clone() }));
    assert!(fails(DnnRecurrent { hidden: 0, ..network }));
}
