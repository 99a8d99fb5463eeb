//! The loss of connectionist temporal classification against a sum over all paths, and spatial transformers against readings made one by
//! one; gradients against differences.

mod rig;

use proptest::prelude::*;
use rgpu_libraries::{DnnCtc, DnnSpatial, DnnSpatialTask, DnnTensor, DnnType};
use rig::{Rig, close, numbers};

fn tensor(addr: u64, dims: &[usize]) -> DnnTensor {
    let dims: Vec<i64> = dims.iter().map(|&n| n as i64).collect();
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    DnnTensor { addr, kind: DnnType::F64, dims, strides, value: None }
}

/// The probability that a sequence of symbols without repeats and blanks is `labels`, by adding up all paths.
fn by_paths(probabilities: &[Vec<f64>], labels: &[i32]) -> f64 {
    let (steps, symbols) = (probabilities.len(), probabilities.first().map_or(1, Vec::len));
    let mut all = 0.0;
    for path in 0..symbols.pow(steps as u32) {
        let path: Vec<usize> = (0..steps).map(|t| path / symbols.pow(t as u32) % symbols).collect();
        let mut said = path.clone();
        said.dedup();
        said.retain(|&symbol| symbol != 0);
        if said.iter().map(|&symbol| symbol as i32).eq(labels.iter().copied()) {
            all += path.iter().enumerate().map(|(t, &symbol)| probabilities[t][symbol]).product::<f64>();
        }
    }
    all
}

fn softmax(of: &[f64]) -> Vec<f64> {
    let sum: f64 = of.iter().map(|x| x.exp()).sum();
    of.iter().map(|x| x.exp() / sum).collect()
}

const STEPS: usize = 5;
const SYMBOLS: usize = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn losses_are_sums_over_paths(
        sequences in prop::collection::vec((prop::collection::vec(1i32..SYMBOLS as i32, 0..4), 0..=STEPS as i32), 1..4),
        seed in any::<u64>(),
        (in_memory, normalized, skips) in any::<(bool, bool, bool)>(),
    ) {
        let rig = Rig::shared();
        let count = sequences.len();
        let activations: Vec<f64> = numbers(STEPS * count * SYMBOLS, seed).iter().map(|x| 2.0 * x).collect();
        let of = |all: &[f64], sequence: usize, steps: usize| -> Vec<Vec<f64>> {
            (0..steps).map(|t| softmax(&all[(t * count + sequence) * SYMBOLS..][..SYMBOLS])).collect()
        };
        let given: Vec<f64> = if normalized {
            activations.chunks(SYMBOLS).flat_map(softmax).collect()
        } else {
            activations.clone()
        };
        let labels: Vec<i32> = sequences.iter().flat_map(|(labels, _)| labels.clone()).collect();
        let label_lengths: Vec<i32> = sequences.iter().map(|(labels, _)| labels.len() as i32).collect();
        let input_lengths: Vec<i32> = sequences.iter().map(|(_, steps)| *steps).collect();
        let dims = [STEPS, count, SYMBOLS];
        let gradient = rig.put(&vec![9.0; activations.len()]);
        let costs = rig.put(&vec![9.0; count]);
        let work = DnnCtc {
            probabilities: tensor(rig.put(&given), &dims),
            softmax: !normalized,
            gradient: tensor(gradient, &dims),
            costs,
            skips,
            ..DnnCtc::default()
        };
        let work = if in_memory {
            // One label more, so that there is an address even where there are none.
            let at = [labels, vec![0]].concat();
            DnnCtc {
                labels_at: rig.put(&at),
                label_lengths_at: rig.put(&label_lengths),
                input_lengths_at: rig.put(&input_lengths),
                ..work
            }
        } else {
            DnnCtc { labels, label_lengths, input_lengths, ..work }
        };
        rig.call(&work).unwrap();
        let (found, slopes) = (rig.get::<f64>(costs, count).unwrap(), rig.get::<f64>(gradient, given.len()).unwrap());
        for (sequence, (labels, steps)) in sequences.iter().enumerate() {
            let loss = |all: &[f64]| -by_paths(&of(all, sequence, *steps as usize), labels).ln();
            let wanted = loss(&activations);
            let possible = wanted.is_finite();
            prop_assert!(possible == found[sequence].is_finite());
            if possible {
                close(&[found[sequence]], &[wanted], 1e-12)?;
            }
            for (step, k) in (0..STEPS).flat_map(|t| (0..SYMBOLS).map(move |k| (t, k))) {
                let at = (step * count + sequence) * SYMBOLS + k;
                let wanted = if !possible {
                    if skips { 9.0 } else { 0.0 }
                } else {
                    let by = |change: f64| {
                        let mut changed = activations.clone();
                        changed[at] += change;
                        loss(&changed)
                    };
                    (by(1e-6) - by(-1e-6)) / 2e-6
                };
                close(&[slopes[at]], &[wanted], 1e-6)?;
            }
        }
    }

    #[test]
    fn images_are_read_between_their_pixels(
        (images, planes) in (1usize..3, 1usize..3),
        (height, width, rows, columns) in (1usize..4, 1usize..4, 1usize..4, 1usize..4),
        seed in any::<u64>(),
        (alpha, beta) in prop::sample::select(&[(1.0, 0.0), (2.0, -0.5)][..]),
    ) {
        let rig = Rig::shared();
        let theta = numbers(images * 6, seed);
        let x = numbers(images * planes * height * width, seed ^ 1);
        // Places by the maps.
        let middle = |i: usize, n: usize| if n < 2 { 0.0 } else { 2.0 * i as f64 / (n - 1) as f64 - 1.0 };
        let places = |theta: &[f64]| -> Vec<f64> {
            let each = (0..images * rows * columns).map(|p| (p / (rows * columns), p / columns % rows, p % columns));
            each.flat_map(|(image, row, column)| {
                let map = theta[image * 6..][..6].to_vec();
                let (a, b) = (middle(column, columns), middle(row, rows));
                [map[0] * a + map[1] * b + map[2], map[3] * a + map[4] * b + map[5]]
            }).collect()
        };
        let read = |x: &[f64], grid: &[f64]| -> Vec<f64> {
            let mut all = Vec::new();
            for (image, plane) in (0..images).flat_map(|i| (0..planes).map(move |p| (i, p))) {
                for at in 0..rows * columns {
                    let place = &grid[2 * (image * rows * columns + at)..][..2];
                    let (across, down) = (
                        (place[0] + 1.0) / 2.0 * (width - 1) as f64, (place[1] + 1.0) / 2.0 * (height - 1) as f64,
                    );
                    // Every pixel's share falls from one to zero over the distance of a pixel.
                    let share = |a: f64, b: usize| (1.0 - (a - b as f64).abs()).max(0.0);
                    all.push((0..height * width).map(|pixel| {
                        let value = x[(image * planes + plane) * height * width + pixel];
                        value * share(down, pixel / width) * share(across, pixel % width)
                    }).sum());
                }
            }
            all
        };
        let (of_theta, of_grid) = ([images, 2, 3], [images, rows, columns, 2]);
        let (of_x, of_y) = ([images, planes, height, width], [images, planes, rows, columns]);
        let grid = places(&theta);
        let at_grid = rig.put(&vec![9.0; grid.len()]);
        let maps = DnnSpatial {
            task: DnnSpatialTask::Grid,
            theta: tensor(rig.put(&theta), &of_theta),
            grid: tensor(at_grid, &of_grid),
            ..DnnSpatial::default()
        };
        rig.call(&maps).unwrap();
        close(&rig.get::<f64>(at_grid, grid.len()).unwrap(), &grid, 1e-12)?;
        let dgrid = numbers(grid.len(), seed ^ 2);
        let dtheta = rig.put(&vec![9.0; theta.len()]);
        rig.call(&DnnSpatial {
            task: DnnSpatialTask::GridBackward,
            theta: tensor(dtheta, &of_theta),
            grid: tensor(rig.put(&dgrid), &of_grid),
            ..DnnSpatial::default()
        }).unwrap();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        // Maps are linear in theta, so differences are exact.
        let wanted: Vec<f64> = (0..theta.len()).map(|i| {
            let mut one = vec![0.0; theta.len()];
            one[i] = 1.0;
            dot(&places(&one), &dgrid)
        }).collect();
        close(&rig.get::<f64>(dtheta, theta.len()).unwrap(), &wanted, 1e-12)?;
        // Reading.
        let count = of_y.iter().product::<usize>();
        let before = numbers(count, seed ^ 3);
        let y = rig.put(&before);
        let sample = DnnSpatial {
            task: DnnSpatialTask::Sample,
            x: tensor(rig.put(&x), &of_x),
            y: tensor(y, &of_y),
            alpha,
            beta,
            ..maps
        };
        rig.call(&sample).unwrap();
        let wanted: Vec<f64> = read(&x, &grid).iter().zip(&before).map(|(y, b)| alpha * y + beta * b).collect();
        close(&rig.get::<f64>(y, count).unwrap(), &wanted, 1e-12)?;
        // Its gradients.
        let (dy, of_dx, of_dgrid) = (numbers(count, seed ^ 4), numbers(x.len(), seed ^ 5), numbers(grid.len(), seed ^ 6));
        let (dx, dgrid) = (rig.put(&of_dx), rig.put(&of_dgrid));
        rig.call(&DnnSpatial {
            task: DnnSpatialTask::SampleBackward,
            y: tensor(rig.put(&dy), &of_y),
            dx: tensor(dx, &of_x),
            dgrid: tensor(dgrid, &of_grid),
            alpha_grid: 3.0,
            beta_grid: beta,
            ..sample
        }).unwrap();
        let wanted: Vec<f64> = (0..x.len()).map(|i| {
            let mut one = vec![0.0; x.len()];
            one[i] = 1.0;
            alpha * dot(&read(&one, &grid), &dy) + beta * of_dx[i]
        }).collect();
        close(&rig.get::<f64>(dx, x.len()).unwrap(), &wanted, 1e-12)?;
        let found = rig.get::<f64>(dgrid, grid.len()).unwrap();
        for i in 0..grid.len() {
            let length = if i % 2 == 0 { width } else { height };
            let pixel = (grid[i] + 1.0) / 2.0 * (length - 1) as f64;
            // At a pixel's centre the slope changes.
            if (pixel - pixel.round()).abs() < 1e-4 {
                continue;
            }
            let by = |change: f64| {
                let mut changed = grid.clone();
                changed[i] += change;
                dot(&read(&x, &changed), &dy)
            };
            close(&[found[i]], &[3.0 * (by(1e-6) - by(-1e-6)) / 2e-6 + beta * of_dgrid[i]], 1e-6)?;
        }
    }
}

#[test]
fn labels_that_are_no_symbols_are_refused() {
    let rig = Rig::new();
    let work = DnnCtc {
        probabilities: tensor(rig.put(&[0.5; 2]), &[1, 1, 2]),
        costs: rig.put(&[0.0]),
        labels: vec![2],
        label_lengths: vec![1],
        input_lengths: vec![1],
        ..DnnCtc::default()
    };
    rig.call(&work).unwrap();
    assert!(rig.get::<f64>(work.costs, 1).is_err());
}
