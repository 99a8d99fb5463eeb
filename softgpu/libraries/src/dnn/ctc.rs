//! The loss of connectionist temporal classification (Graves, Fernández, Gomez and Schmidhuber, 2006), by forward and backward variables in
//! logarithms.

use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{DnnCtc, DnnType};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use super::tensor::{List, Shape, store_line};
use crate::{invalid, memory};

/// What [`DnnCtc`] comes to.
pub(crate) fn plan(work: DnnCtc) -> Result<Plan> {
    let shape = Shape::new(&work.probabilities)?;
    let &[_, sequences, _] = shape.dims.as_slice() else {
        return invalid("Probabilities have three dimensions: steps, sequences, symbols");
    };
    if !matches!(work.probabilities.kind, DnnType::F32 | DnnType::F64) {
        return crate::missing(format!("the CTC loss of {:?}", work.probabilities.kind));
    }
    if work.labels_at == 0 {
        return by_value(work, 0);
    }
    let lengths = |addr: u64| memory::array(addr, sequences as u64, 4, false);
    let operands = vec![lengths(work.label_lengths_at)?, lengths(work.input_lengths_at)?];
    Ok(Plan { operands, computation: Box::new(InMemory { work, sequences }) })
}

/// A loss whose labels are in device memory: how many there are is read first.
struct InMemory {
    work: DnnCtc,
    sequences: usize,
}

impl Computation for InMemory {
    unsafe fn run(&self, _: &[*mut u8], _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn then(&self, memory: &[*mut u8]) -> Result<Option<Plan>> {
        let numbers = |at: *const u8| {
            // SAFETY: the operands have a number for each sequence.
            let number = |i: usize| unsafe { at.cast::<i32>().add(i).read_unaligned() };
            (0..self.sequences).map(number).collect::<Vec<_>>()
        };
        let (label_lengths, input_lengths) = (numbers(memory[0]), numbers(memory[1]));
        let labels = label_lengths.iter().map(|&n| u64::try_from(n).unwrap_or(0)).sum();
        by_value(DnnCtc { label_lengths, input_lengths, ..self.work.clone() }, labels).map(Some)
    }
}

/// A loss whose lengths are known, and so many of whose labels are in device memory.
fn by_value(work: DnnCtc, in_memory: u64) -> Result<Plan> {
    let shape = Shape::new(&work.probabilities)?;
    let (steps, sequences) = (shape.dims[0], shape.dims[1]);
    let wanted = work.gradient.addr != 0;
    if wanted && work.gradient.dims != work.probabilities.dims {
        return invalid("A gradient of other dimensions than its probabilities");
    }
    if [work.label_lengths.len(), work.input_lengths.len()] != [sequences; 2] {
        return invalid(format!("{sequences} sequences with another number of lengths"));
    }
    let long = |length: &i32| usize::try_from(*length).is_ok_and(|length| length <= steps);
    if work.label_lengths.iter().any(|&length| length < 0) || !work.input_lengths.iter().all(long) {
        return invalid(format!(
            "A sequence with less than no labels, or with other than 0 to {steps} steps"
        ));
    }
    let labels: i64 = work.label_lengths.iter().map(|&length| i64::from(length)).sum();
    if work.labels_at == 0 && labels != work.labels.len() as i64 {
        return invalid(format!("{} labels of {labels}", work.labels.len()));
    }
    let gradient = if wanted { Shape::new(&work.gradient)? } else { shape.clone() };
    let operands = vec![
        Operand { addr: work.probabilities.addr, bytes: shape.extent, written: false },
        Operand { addr: work.gradient.addr, bytes: if wanted { gradient.extent } else { 0 }, written: true },
        memory::array(work.costs, sequences as u64, work.probabilities.kind.bytes(), true)?,
        memory::array(work.labels_at, in_memory, 4, false)?,
    ];
    Ok(Plan { operands, computation: Box::new(Loss { work, shape, gradient }) })
}

struct Loss {
    work: DnnCtc,
    shape: Shape,
    gradient: Shape,
}

/// The logarithm of a sum whose parts are given by their logarithms.
fn log_sum(a: f64, b: f64) -> f64 {
    let (most, least) = if a > b { (a, b) } else { (b, a) };
    if least == f64::NEG_INFINITY { most } else { most + (least - most).exp().ln_1p() }
}

/// One sequence: the logarithms of its symbols' probabilities, by step and symbol.
struct Sequence<'a> {
    logarithms: &'a [f64],
    symbols: usize,
    /// The labels with blanks before, between and behind them.
    states: Vec<usize>,
}

impl Sequence<'_> {
    fn steps(&self) -> usize {
        self.logarithms.len() / self.symbols
    }

    fn log(&self, step: usize, state: usize) -> f64 {
        self.logarithms[step * self.symbols + self.states[state]]
    }

    /// Whether the state of this number can follow the one before the blank before it.
    fn skips(&self, state: usize) -> bool {
        state >= 2 && self.states[state] != 0 && self.states[state] != self.states[state - 2]
    }

    /// The logarithms of the probabilities of all beginnings that end in a state at a step; by step and state.
    fn forward(&self) -> Result<Vec<f64>> {
        let count = self.states.len();
        let mut all = room(self.steps(), count)?;
        for step in 0..self.steps() {
            for state in 0..count {
                let before = |back: usize| all[(step - 1) * count + state - back];
                let mut sum = match step {
                    0 if state < 2 => 0.0,
                    0 => f64::NEG_INFINITY,
                    _ => before(0),
                };
                if step > 0 && state > 0 {
                    sum = log_sum(sum, before(1));
                }
                if step > 0 && self.skips(state) {
                    sum = log_sum(sum, before(2));
                }
                all[step * count + state] = sum + self.log(step, state);
            }
        }
        Ok(all)
    }

    /// The logarithms of the probabilities of all ends that begin in a state behind a step.
    fn backward(&self) -> Result<Vec<f64>> {
        let (count, steps) = (self.states.len(), self.steps());
        let mut all = room(steps, count)?;
        for step in (0..steps).rev() {
            for state in 0..count {
                let behind = |forth: usize| {
                    all[(step + 1) * count + state + forth] + self.log(step + 1, state + forth)
                };
                all[step * count + state] = if step + 1 == steps {
                    if state + 2 >= count { 0.0 } else { f64::NEG_INFINITY }
                } else {
                    let mut sum = behind(0);
                    if state + 1 < count {
                        sum = log_sum(sum, behind(1));
                    }
                    if state + 2 < count && self.skips(state + 2) {
                        sum = log_sum(sum, behind(2));
                    }
                    sum
                };
            }
        }
        Ok(all)
    }

    /// The logarithm of the probability of the labels, and what the gradient takes away from each symbol's probability at each step. `None` where there
    /// are too few steps.
    fn solve(&self) -> Result<Option<(f64, Vec<f64>)>> {
        let count = self.states.len();
        let repeats = (3..count).step_by(2).filter(|&state| !self.skips(state)).count();
        if count / 2 + repeats > self.steps() {
            return Ok(None);
        }
        if self.steps() == 0 {
            return Ok(Some((0.0, Vec::new())));
        }
        let (forward, backward) = (self.forward()?, self.backward()?);
        let last = &forward[(self.steps() - 1) * count..];
        let all = log_sum(last[count - 1], if count > 1 { last[count - 2] } else { f64::NEG_INFINITY });
        if all == f64::NEG_INFINITY {
            return Ok(None);
        }
        let mut shares = room(self.steps(), self.symbols)?;
        shares.fill(0.0);
        for step in 0..self.steps() {
            for (state, &symbol) in self.states.iter().enumerate() {
                let at = step * count + state;
                shares[step * self.symbols + symbol] += (forward[at] + backward[at] - all).exp();
            }
        }
        Ok(Some((all, shares)))
    }
}

/// Room for so many numbers.
fn room(rows: usize, columns: usize) -> Result<Vec<f64>> {
    let none = || Error::new(Code::OutOfMemory, format!("No memory for {rows} x {columns} probabilities"));
    let count = rows.checked_mul(columns).ok_or_else(none)?;
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| none())?;
    all.resize(count, f64::NEG_INFINITY);
    Ok(all)
}

impl Loss {
    /// The labels of all sequences.
    ///
    /// # Safety
    /// `at` is the operand of the labels.
    unsafe fn labels(&self, at: *const u8) -> Vec<i32> {
        if self.work.labels_at == 0 {
            return self.work.labels.clone();
        }
        let count: usize = self.work.label_lengths.iter().map(|&n| n as usize).sum();
        // SAFETY: the caller's promise.
        (0..count).map(|i| unsafe { at.cast::<i32>().add(i).read_unaligned() }).collect()
    }
}

impl Computation for Loss {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let &[steps, sequences, symbols] = self.shape.dims.as_slice() else {
            return invalid("Probabilities have three dimensions");
        };
        let work = &self.work;
        // SAFETY: the first operand is as long as the shape says.
        let given: List<f64> = unsafe { List::read(work.probabilities.kind, &self.shape, memory[0]) };
        // SAFETY: the last operand.
        let labels = unsafe { self.labels(memory[3]) };
        let wanted = work.gradient.addr != 0;
        let mut gradient = if wanted && work.skips {
            // SAFETY: the second operand is as long as its shape says.
            unsafe { List::read(work.gradient.kind, &self.gradient, memory[1]) }
        } else {
            List::filled(&self.shape, 0.0)
        };
        let (mut costs, mut next) = (vec![0.0f64; sequences], 0);
        for (sequence, cost) in costs.iter_mut().enumerate() {
            let long = work.input_lengths[sequence] as usize;
            let of_step = |step: usize| (step * sequences + sequence) * symbols;
            let mut logarithms = room(long, symbols)?;
            for step in 0..long {
                let from = &given.values[of_step(step)..][..symbols];
                let to = &mut logarithms[step * symbols..][..symbols];
                let most = from.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum = from.iter().map(|value| (value - most).exp()).sum::<f64>().ln() + most;
                for (to, &value) in to.iter_mut().zip(from) {
                    *to = if work.softmax { value - sum } else { value.ln() };
                }
            }
            let end = next + work.label_lengths[sequence] as usize;
            let mut states = vec![0];
            for &label in &labels[next..end] {
                let Some(label) = usize::try_from(label).ok().filter(|label| (1..symbols).contains(label))
                else {
                    return invalid(format!("The label {label} is none of 1 to {}", symbols - 1));
                };
                states.extend([label, 0]);
            }
            next = end;
            let found = Sequence { logarithms: &logarithms, symbols, states }.solve()?;
            *cost = found.as_ref().map_or(f64::INFINITY, |(all, _)| -all);
            if found.is_none() && work.skips {
                continue;
            }
            for step in 0..steps {
                let to = &mut gradient.values[of_step(step)..][..symbols];
                to.fill(0.0);
                if let (Some((_, shares)), true) = (&found, step < long) {
                    for (k, to) in to.iter_mut().enumerate() {
                        *to = logarithms[step * symbols + k].exp() - shares[step * symbols + k];
                    }
                }
            }
        }
        // SAFETY: the second operand is as long as its shape says, and the third has a number for each sequence.
        unsafe {
            if wanted {
                gradient.write(work.gradient.kind, &self.gradient, memory[1]);
            }
            store_line(work.probabilities.kind, memory[2], &costs);
        }
        Ok(())
    }
}
