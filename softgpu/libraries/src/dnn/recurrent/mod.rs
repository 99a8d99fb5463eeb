//! Recurrent networks and their gradients.
//!
//! A network goes layer by layer. What all steps of a layer get from its input is one product of matrices; then come the
//! steps, each with one product of the states of all sequences. Sequences that have ended, or that have not begun where a network goes
//! backwards, keep their states.

mod cell;
mod kept;
mod network;
mod sequences;

use std::marker::PhantomData;

use rgpu_device::Result;
use rgpu_libraries::{DnnRecurrent, DnnRecurrentTask, DnnType};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use super::Real;
use super::tensor::{line, store_line};
use crate::invalid;
use kept::Kept;
use network::{Network, States};
use sequences::Sequences;

/// The operands, by their places in the plan.
mod place {
    pub(super) const WEIGHTS: usize = 0;
    pub(super) const KEPT: usize = 1;
    pub(super) const X: usize = 2;
    pub(super) const Y: usize = 3;
    pub(super) const HX: usize = 4;
    pub(super) const HY: usize = 5;
    pub(super) const CX: usize = 6;
    pub(super) const CY: usize = 7;
    pub(super) const DY: usize = 8;
    pub(super) const DX: usize = 9;
    pub(super) const DHY: usize = 10;
    pub(super) const DHX: usize = 11;
    pub(super) const DCY: usize = 12;
    pub(super) const DCX: usize = 13;
    pub(super) const DWEIGHTS: usize = 14;
}

/// What [`DnnRecurrent`] comes to.
pub(crate) fn plan(work: DnnRecurrent) -> Result<Plan> {
    if !matches!(work.kind, DnnType::F32 | DnnType::F64 | DnnType::F16 | DnnType::Bf16) {
        return crate::missing(format!("recurrent networks of {:?}", work.kind));
    }
    if !work.is_sound() {
        return invalid("A recurrent network whose sizes do not fit each other");
    }
    let operands = operands(&work)?;
    let computation: Box<dyn Computation> = if work.kind == DnnType::F64 {
        Box::new(Recurrent::<f64> { work, of: PhantomData })
    } else {
        Box::new(Recurrent::<f32> { work, of: PhantomData })
    };
    Ok(Plan { operands, computation })
}

fn operands(work: &DnnRecurrent) -> Result<Vec<Operand>> {
    use DnnRecurrentTask::{Data, Train, Weights};
    let (forward, data, weights) =
        (matches!(work.task, DnnRecurrentTask::Infer | Train), work.task == Data, work.task == Weights);
    let each = work.kind.bytes();
    let lines = |width: u64| sequences::lines(work).checked_mul(width);
    let pseudo = work.layers * work.directions() * work.lengths.len() as u64;
    let (h, c) = (pseudo.checked_mul(work.outputs()), pseudo.checked_mul(work.hidden));
    let (x, y) = (lines(work.input), lines(work.directions() * work.outputs()));
    let mut all = Vec::new();
    // Whether the task uses it, whether it has to be there, whether it is written.
    let mut push = |used: bool, needed: bool, addr: u64, count: Option<u64>, bytes: u64, written: bool| {
        if used && needed && addr == 0 {
            return invalid(
                "A recurrent network without its weights, its sequences, or room for what is kept",
            );
        }
        let bytes = match count.and_then(|count| count.checked_mul(bytes)) {
            _ if !used || addr == 0 => 0,
            Some(bytes) if addr.checked_add(bytes).is_some() => bytes,
            _ => return invalid("A recurrent network that is longer than the address space"),
        };
        all.push(Operand { addr, bytes, written });
        Ok(())
    };
    let wide = if work.kind == DnnType::F64 { 8 } else { 4 };
    push(!weights, true, work.weights, work.weight_count(), each, false)?;
    push(work.task != DnnRecurrentTask::Infer, true, work.kept, work.kept_count(), wide, !weights)?;
    push(forward || weights, true, work.x, x, each, false)?;
    push(forward, true, work.y, y, each, true)?;
    push(true, false, work.hx, h, each, false)?;
    push(forward, false, work.hy, h, each, true)?;
    push(forward || data, false, work.cx, c, each, false)?;
    push(forward, false, work.cy, c, each, true)?;
    push(data, true, work.dy, y, each, false)?;
    push(data, true, work.dx, x, each, true)?;
    push(data, false, work.dhy, h, each, false)?;
    push(data, false, work.dhx, h, each, true)?;
    push(data, false, work.dcy, c, each, false)?;
    push(data, false, work.dcx, c, each, true)?;
    push(weights, true, work.dweights, work.weight_count(), each, true)?;
    Ok(all)
}

struct Recurrent<T> {
    work: DnnRecurrent,
    of: PhantomData<fn(T)>,
}

impl<T: Real> Recurrent<T> {
    /// The states of all layers at one end, or zeros where there are none.
    ///
    /// # Safety
    /// `at` is the operand of so many numbers, or there is no address.
    unsafe fn states(&self, addr: u64, at: *const u8, width: u64) -> Result<Vec<T>> {
        let count = self.work.layers * self.work.directions() * self.work.lengths.len() as u64 * width;
        if addr == 0 {
            return kept::zeros(count as usize);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { line(self.work.kind, at, count as usize) })
    }

    /// Stores states, where they are wanted.
    ///
    /// # Safety
    /// `at` is the operand of so many numbers, or there is no address.
    unsafe fn store_states(&self, addr: u64, at: *mut u8, states: &[T]) {
        if addr != 0 {
            // SAFETY: the caller's promise.
            unsafe { store_line(self.work.kind, at, states) };
        }
    }
}

impl<T: Real> Computation for Recurrent<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        use DnnRecurrentTask::{Data, Infer, Train, Weights};
        let work = &self.work;
        let sequences = Sequences::new(work);
        let network = Network { work, sequences: &sequences };
        let (h, c) = (work.outputs(), work.hidden);
        let weights = || {
            let count = work.weight_count().unwrap_or(0) as usize;
            // SAFETY: the operand has so many numbers.
            unsafe { line::<T>(work.kind, memory[place::WEIGHTS], count) }
        };
        let wide = work.directions() * work.outputs();
        // SAFETY: here and below, each operand is as long as `operands` said, and there if the task uses it.
        unsafe {
            let hx = self.states(work.hx, memory[place::HX], h)?;
            match work.task {
                Infer | Train => {
                    let mut kept = Kept::new(work)?;
                    let x = sequences.read(work.kind, memory[place::X], work.input)?;
                    let cx = self.states(work.cx, memory[place::CX], c)?;
                    let mut states = States { h: hx, c: cx };
                    let y = network.forward(x, &weights(), &mut states, &mut kept)?;
                    if work.task == Train {
                        kept.write(memory[place::KEPT]);
                    }
                    sequences.write(work.kind, memory[place::Y], wide, &y, work.fill);
                    self.store_states(work.hy, memory[place::HY], &states.h);
                    self.store_states(work.cy, memory[place::CY], &states.c);
                }
                Data => {
                    let mut kept = Kept::new(work)?;
                    kept.read(memory[place::KEPT]);
                    let cx = self.states(work.cx, memory[place::CX], c)?;
                    let before = States { h: hx, c: cx };
                    let dy = sequences.read(work.kind, memory[place::DY], wide)?;
                    let mut ends = States {
                        h: self.states(work.dhy, memory[place::DHY], h)?,
                        c: self.states(work.dcy, memory[place::DCY], c)?,
                    };
                    let dx = network.backward(dy, &weights(), &before, &mut ends, &mut kept)?;
                    kept.write(memory[place::KEPT]);
                    sequences.write(work.kind, memory[place::DX], work.input, &dx, Some(0.0));
                    self.store_states(work.dhx, memory[place::DHX], &ends.h);
                    self.store_states(work.dcx, memory[place::DCX], &ends.c);
                }
                Weights => {
                    let mut kept = Kept::new(work)?;
                    kept.read(memory[place::KEPT]);
                    let x = sequences.read(work.kind, memory[place::X], work.input)?;
                    let count = work.weight_count().unwrap_or(0) as usize;
                    let mut gradient = if work.adds {
                        line(work.kind, memory[place::DWEIGHTS], count)
                    } else {
                        kept::zeros(count)?
                    };
                    network.weights(x, &hx, &kept, &mut gradient)?;
                    store_line(work.kind, memory[place::DWEIGHTS], &gradient);
                }
            }
        }
        Ok(())
    }
}
