//! Dropout: elements become zero by chance, and the others greater by as much.

use rgpu_libraries::{Distribution, DnnType, Generator, Random};

use super::super::handles::stream_of;
use super::super::{Out, Result, Status};
use super::calls;
use super::composer::{Composer, ensure, function};
use super::forms::{Forms, created_and_destroyed};
use super::tensor::{Tensor, packed, tensor};
use crate::libraries::math::Queue;

/// What a dropout's descriptor says.
#[derive(Debug, Clone, Copy)]
struct Dropout {
    /// The chance of becoming zero.
    chance: f32,
    /// What the program keeps for the generator, which needs none of it.
    states: usize,
    seed: u64,
    /// How many numbers have been taken.
    taken: u64,
}

/// How much memory a program is asked for.
const STATES: usize = 16;

static DROPOUTS: Forms<Dropout> = Forms::new("cuDNN dropout descriptor");
created_and_destroyed!(DROPOUTS, cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor);

fn set(raw: usize, handle: usize, chance: f32, states: usize, seed: u64) -> Result<()> {
    stream_of(handle)?;
    ensure((0.0..=1.0).contains(&chance))?;
    DROPOUTS.set(raw, Dropout { chance, states, seed, taken: 0 })
}

/// The random numbers of a tensor's elements, which are kept between the two directions.
fn numbers(of: &Tensor) -> Result<Tensor> {
    Ok(Tensor { kind: DnnType::F32, strides: packed(0, &of.dims)?, dims: of.dims.clone() })
}

/// `y = x` where the number is above the chance, divided by what is left of it.
fn apply(
    handle: usize,
    dropout: Dropout,
    (from, x): (&Tensor, usize),
    (to, y): (&Tensor, usize),
    kept: usize,
) -> Result<()> {
    let mut graph = Composer::default();
    let numbers = graph.given(&numbers(from)?, kept)?;
    let x = graph.given(from, x)?;
    let (chance, zero) = (f64::from(dropout.chance), graph.number(0.0, from.dims.len()));
    let limit = graph.number(chance, from.dims.len());
    // Numbers are more than zero and at most one: with a chance of one nothing is above it.
    let stays = graph.combine(function::GREATER, numbers, limit);
    let value = graph.select(stays, x, zero);
    let factor = if chance < 1.0 { 1.0 / (1.0 - chance) } else { 0.0 };
    graph.store(value, (factor, 0.0), to, y)?;
    graph.post(handle)
}

/// The chance that a descriptor says.
pub(super) fn chance(raw: usize) -> Result<f64> {
    Ok(f64::from(DROPOUTS.get(raw)?.chance))
}

/// Takes so many of a descriptor's random numbers: their seed, and where they begin.
pub(super) fn take(raw: usize, count: u64) -> Result<(u64, u64)> {
    let said = DROPOUTS.get(raw)?;
    DROPOUTS.change(raw, said, |said| said.taken = said.taken.wrapping_add(count))?;
    Ok((said.seed, said.taken))
}

fn check(x: &Tensor, y: &Tensor, size: usize) -> Result<()> {
    ensure(x.dims == y.dims && size >= 4 * x.count() as usize)
}

calls! {
    /// `cudnnDropoutGetStatesSize`.
    fn cudnnDropoutGetStatesSize(handle: usize, size: Out<usize>) {
        stream_of(handle)?;
        size.set(STATES)
    }
    /// `cudnnDropoutGetReserveSpaceSize`: a number for each element.
    fn cudnnDropoutGetReserveSpaceSize(form: usize, size: Out<usize>) {
        size.set(4 * tensor(form)?.count() as usize)
    }
    /// `cudnnSetDropoutDescriptor`.
    fn cudnnSetDropoutDescriptor(
        raw: usize, handle: usize, chance: f32, states: usize, size: usize, seed: u64,
    ) {
        ensure(states == 0 || size >= STATES)?;
        set(raw, handle, chance, states, seed)
    }
    /// `cudnnRestoreDropoutDescriptor`.
    fn cudnnRestoreDropoutDescriptor(
        raw: usize, handle: usize, chance: f32, states: usize, size: usize, seed: u64,
    ) {
        ensure(states == 0 || size >= STATES)?;
        set(raw, handle, chance, states, seed)
    }
    /// `cudnnGetDropoutDescriptor`.
    fn cudnnGetDropoutDescriptor(raw: usize, handle: usize, chance: Out<f32>, states: Out<usize>, seed: Out<u64>) {
        stream_of(handle)?;
        let said = DROPOUTS.get(raw)?;
        chance.set(said.chance)?;
        states.set(said.states)?;
        seed.set(said.seed)
    }
    /// `cudnnDropoutForward`. The numbers are Philox's, not those of NVIDIA's library.
    fn cudnnDropoutForward(
        handle: usize, raw: usize, x_form: usize, x: usize, y_form: usize, y: usize, kept: usize, size: usize,
    ) {
        let (dropout, from, to) = (DROPOUTS.get(raw)?, tensor(x_form)?, tensor(y_form)?);
        check(&from, &to, size)?;
        if kept == 0 {
            return Err(Status::NullPointer);
        }
        let count = from.count() as u64;
        Queue::of(stream_of(handle)?)?.post(&Random {
            generator: Generator::Philox,
            seed: dropout.seed,
            place: dropout.taken,
            dimensions: 1,
            distribution: Distribution::UniformF32,
            a: 0.0,
            b: 0.0,
            addr: kept as u64,
            count,
        })?;
        DROPOUTS.change(raw, dropout, |said| said.taken += count)?;
        apply(handle, dropout, (&from, x), (&to, y), kept)
    }
    /// `cudnnDropoutBackward`.
    fn cudnnDropoutBackward(
        handle: usize, raw: usize, dy_form: usize, dy: usize, dx_form: usize, dx: usize, kept: usize, size: usize,
    ) {
        let (dropout, from, to) = (DROPOUTS.get(raw)?, tensor(dy_form)?, tensor(dx_form)?);
        check(&from, &to, size)?;
        apply(handle, dropout, (&from, dy), (&to, dx), kept)
    }
}
