//! Recurrent networks: their descriptors, where their weights are, and what is computed.

use rgpu_libraries::{DnnCell, DnnRecurrent, DnnRecurrentTask, DnnType};

use super::super::handles::stream_of;
use super::super::{Out, Result, Status};
use super::composer::ensure;
use super::dropout;
use super::forms::{Forms, created_and_destroyed};
use super::sequences::{Sequences, sequences};
use super::tensor::{Tensor, set_tensor, tensor};
use super::{calls, not_written, type_of};
use crate::libraries::math::Queue;

/// What a network's descriptor says.
#[derive(Debug, Clone)]
struct Network {
    /// The numbers that were given: algorithm, cell, biases, directions, input, type, precision, kind of products.
    modes: [u32; 8],
    /// Elements of an input, of a state, of an output; and layers.
    sizes: [i32; 4],
    /// The descriptor of the dropout between layers, or 0.
    dropout: usize,
    flags: u32,
    /// Its sizes and what its cells compute.
    form: DnnRecurrent,
}

static NETWORKS: Forms<Network> = Forms::new("cuDNN RNN descriptor");
created_and_destroyed!(NETWORKS, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor);

/// The network that a descriptor's numbers describe.
fn network(modes: [u32; 8], [input, hidden, outputs, layers]: [i32; 4]) -> Result<DnnRecurrent> {
    let [algorithm, cell, biases, directions, inputs, kind, precision, _] = modes;
    let cell = DnnCell::from_number(cell).ok_or(Status::BadParam)?;
    let positive = |n: i32| u64::try_from(n).ok().filter(|&n| n > 0).ok_or(Status::BadParam);
    ensure(algorithm <= 3 && biases <= 3 && directions <= 1 && inputs <= 1)?;
    let kind = type_of(kind)?;
    let fits = match kind {
        DnnType::F32 => precision == DnnType::F32 as u32,
        DnnType::F64 => precision == DnnType::F64 as u32,
        DnnType::F16 => [DnnType::F16 as u32, DnnType::F32 as u32].contains(&precision),
        DnnType::Bf16 => precision == DnnType::F32 as u32,
        _ => return Err(not_written("recurrent networks of integers")),
    };
    let [input, hidden, outputs, layers] =
        [positive(input)?, positive(hidden)?, positive(outputs)?, positive(layers)?];
    // An output that is as long as the state is no projection.
    let projection = if outputs == hidden { 0 } else { outputs };
    ensure(fits && outputs <= hidden && (projection == 0 || cell == DnnCell::Lstm))?;
    let skips_input = inputs == 1;
    ensure(!skips_input || input == hidden)?;
    Ok(DnnRecurrent {
        cell,
        kind,
        input,
        hidden,
        projection,
        layers,
        both_ways: directions == 1,
        skips_input,
        input_bias: matches!(biases, 1 | 2),
        state_bias: matches!(biases, 2 | 3),
        ..DnnRecurrent::default()
    })
}

/// A network with its sequences.
fn with_sequences(network: &Network, of: &Sequences) -> Result<DnnRecurrent> {
    ensure(of.kind == network.form.kind)?;
    let (layout, lengths) = (of.layout, of.lengths.clone());
    let chance = if network.dropout == 0 { 0.0 } else { dropout::chance(network.dropout)? };
    let form = DnnRecurrent { layout, steps: of.steps, lengths, chance, ..network.form.clone() };
    if form.is_sound() { Ok(form) } else { Err(Status::BadParam) }
}

/// A network with what goes in and what comes out.
fn between(network: &Network, x_form: usize, y_form: usize) -> Result<DnnRecurrent> {
    let (x, y) = (sequences(x_form)?, sequences(y_form)?);
    let form = with_sequences(network, &x)?;
    let outputs = form.directions() * form.outputs();
    ensure(x.width == form.input && y.width == outputs && y.kind == x.kind)?;
    ensure(y.layout == x.layout && y.steps == x.steps && y.lengths == x.lengths)?;
    Ok(DnnRecurrent { fill: y.fill, ..form })
}

/// Checks the descriptor of states of this length, where there are such states.
fn check_states(form: &DnnRecurrent, raw: usize, width: u64, are_there: bool) -> Result<()> {
    if !are_there {
        return Ok(());
    }
    let states = tensor(raw)?;
    let dims = [form.layers * form.directions(), form.lengths.len() as u64, width].map(|n| n as i64);
    let strides = [dims[1] * dims[2], dims[2], 1];
    // How far apart the only one of something is says nothing.
    let packed = (0..3).all(|axis| dims[axis] == 1 || states.strides.get(axis) == Some(&strides[axis]));
    // Frameworks give their tensors more dimensions than they need.
    let fits = states.dims.starts_with(&dims) && states.dims[3..].iter().all(|&n| n == 1);
    ensure(states.kind == form.kind && fits && packed)
}

/// How much room a task needs, which has to be there.
fn check_rooms(
    form: &DnnRecurrent,
    weights: (usize, usize),
    kept: (usize, usize),
    keeps: bool,
) -> Result<()> {
    let long_enough = |bytes: Option<u64>, size: usize| bytes.is_some_and(|bytes| size as u64 >= bytes);
    ensure(long_enough(form.weight_bytes(), weights.1))?;
    ensure(!keeps || long_enough(form.kept_bytes(), kept.1))?;
    there(&[weights.0])?;
    if keeps { there(&[kept.0]) } else { Ok(()) }
}

/// An error where an address is missing.
fn there(addresses: &[usize]) -> Result<()> {
    if addresses.contains(&0) { Err(Status::NullPointer) } else { Ok(()) }
}

fn post(handle: usize, form: &DnnRecurrent) -> Result<()> {
    Ok(Queue::of(stream_of(handle)?)?.post(form)?)
}

/// Says where a matrix or a vector among the weights is; a tensor of no dimensions where there is none.
fn say(
    form: &DnnRecurrent,
    place: Option<rgpu_libraries::DnnWeights>,
    weights: usize,
    raw: usize,
    addr: Out<usize>,
) -> Result<()> {
    let Some(place) = place else {
        set_tensor(raw, Tensor { kind: form.kind, dims: Vec::new(), strides: Vec::new() })?;
        return addr.set(0);
    };
    let dims = vec![1, place.rows as i64, place.columns as i64];
    let strides = vec![dims[1] * dims[2], dims[2], 1];
    set_tensor(raw, Tensor { kind: form.kind, dims, strides })?;
    addr.set(weights + (place.offset * form.kind.bytes()) as usize)
}

calls! {
    /// `cudnnSetRNNDescriptor_v8`.
    fn cudnnSetRNNDescriptor_v8(
        raw: usize, algorithm: u32, cell: u32, biases: u32, directions: u32, inputs: u32, kind: u32, precision: u32,
        products: u32, input: i32, hidden: i32, outputs: i32, layers: i32, dropout: usize, flags: u32,
    ) {
        let modes = [algorithm, cell, biases, directions, inputs, kind, precision, products];
        let sizes = [input, hidden, outputs, layers];
        let form = network(modes, sizes)?;
        if dropout != 0 {
            dropout::chance(dropout)?;
        }
        NETWORKS.set(raw, Network { modes, sizes, dropout, flags, form })
    }
    /// `cudnnGetRNNDescriptor_v8`.
    fn cudnnGetRNNDescriptor_v8(
        raw: usize, algorithm: Out<u32>, cell: Out<u32>, biases: Out<u32>, directions: Out<u32>, inputs: Out<u32>,
        kind: Out<u32>, precision: Out<u32>, products: Out<u32>, input: Out<i32>, hidden: Out<i32>, outputs: Out<i32>,
        layers: Out<i32>, dropout: Out<usize>, flags: Out<u32>,
    ) {
        let said = NETWORKS.get(raw)?;
        let modes = [algorithm, cell, biases, directions, inputs, kind, precision, products];
        modes.into_iter().zip(said.modes).for_each(|(out, value)| out.set_if_wanted(value));
        let sizes = [input, hidden, outputs, layers];
        sizes.into_iter().zip(said.sizes).for_each(|(out, value)| out.set_if_wanted(value));
        dropout.set_if_wanted(said.dropout);
        flags.set_if_wanted(said.flags);
        Ok(())
    }
    /// `cudnnBuildRNNDynamic`: nothing has to be built.
    fn cudnnBuildRNNDynamic(handle: usize, raw: usize, _batch: i32) {
        stream_of(handle)?;
        NETWORKS.get(raw).map(drop)
    }
    /// `cudnnGetRNNTempSpaceSizes`: nothing is needed but what is kept for the gradients.
    fn cudnnGetRNNTempSpaceSizes(
        handle: usize, raw: usize, mode: u32, x_form: usize, work: Out<usize>, kept: Out<usize>,
    ) {
        stream_of(handle)?;
        ensure(mode <= 1)?;
        let form = with_sequences(&NETWORKS.get(raw)?, &sequences(x_form)?)?;
        work.set_if_wanted(0);
        let bytes = if mode == 1 { form.kept_bytes().ok_or(Status::BadParam)? } else { 0 };
        kept.set_if_wanted(bytes as usize);
        Ok(())
    }
    /// `cudnnGetRNNWeightSpaceSize`.
    fn cudnnGetRNNWeightSpaceSize(handle: usize, raw: usize, size: Out<usize>) {
        stream_of(handle)?;
        size.set(NETWORKS.get(raw)?.form.weight_bytes().ok_or(Status::BadParam)? as usize)
    }
    /// `cudnnGetRNNWeightParams`.
    fn cudnnGetRNNWeightParams(
        handle: usize, raw: usize, pseudo: i32, size: usize, weights: usize, number: i32,
        matrix_form: usize, matrix: Out<usize>, vector_form: usize, vector: Out<usize>,
    ) {
        stream_of(handle)?;
        let form = NETWORKS.get(raw)?.form;
        let (Ok(pseudo), Ok(number)) = (u64::try_from(pseudo), u64::try_from(number)) else {
            return Err(Status::BadParam);
        };
        // The projection of an LSTM comes behind its gates.
        let last = 2 * form.gates() + u64::from(form.cell == DnnCell::Lstm);
        ensure(pseudo < form.layers * form.directions() && number < last)?;
        ensure(form.weight_bytes().is_some_and(|bytes| size as u64 >= bytes))?;
        say(&form, form.matrix(pseudo, number), weights, matrix_form, matrix)?;
        say(&form, form.bias(pseudo, number), weights, vector_form, vector)
    }
    /// `cudnnRNNForward`. The lengths of sequences are those of the descriptors, as cuDNN wants them to be.
    fn cudnnRNNForward(
        handle: usize, raw: usize, mode: u32, _lengths: usize, x_form: usize, x: usize, y_form: usize, y: usize,
        h_form: usize, hx: usize, hy: usize, c_form: usize, cx: usize, cy: usize, size: usize, weights: usize,
        _work_size: usize, _work: usize, kept_size: usize, kept: usize,
    ) {
        let network = NETWORKS.get(raw)?;
        let form = between(&network, x_form, y_form)?;
        let (trains, lstm) = (mode == 1, form.cell == DnnCell::Lstm);
        ensure(mode <= 1)?;
        there(&[x, y])?;
        check_states(&form, h_form, form.outputs(), hx != 0 || hy != 0)?;
        check_states(&form, c_form, form.hidden, lstm && (cx != 0 || cy != 0))?;
        check_rooms(&form, (weights, size), (kept, kept_size), trains)?;
        let task = if trains { DnnRecurrentTask::Train } else { DnnRecurrentTask::Infer };
        let of_cell = |addr: usize| if lstm { addr as u64 } else { 0 };
        let (seed, place) = match trains && form.chance > 0.0 {
            true => {
                let between = form.steps * form.lengths.len() as u64 * form.directions() * form.outputs();
                dropout::take(network.dropout, between * (form.layers - 1))?
            }
            false => (0, 0),
        };
        post(handle, &DnnRecurrent {
            task, seed, place,
            weights: weights as u64,
            kept: if trains { kept as u64 } else { 0 },
            x: x as u64,
            y: y as u64,
            hx: hx as u64,
            hy: hy as u64,
            cx: of_cell(cx),
            cy: of_cell(cy),
            ..form
        })
    }
    /// `cudnnRNNBackwardData_v8`.
    fn cudnnRNNBackwardData_v8(
        handle: usize, raw: usize, _lengths: usize, y_form: usize, _y: usize, dy: usize, x_form: usize, dx: usize,
        h_form: usize, hx: usize, dhy: usize, dhx: usize, c_form: usize, cx: usize, dcy: usize, dcx: usize,
        size: usize, weights: usize, _work_size: usize, _work: usize, kept_size: usize, kept: usize,
    ) {
        let form = between(&NETWORKS.get(raw)?, x_form, y_form)?;
        let lstm = form.cell == DnnCell::Lstm;
        there(&[dy, dx])?;
        check_states(&form, h_form, form.outputs(), hx != 0 || dhy != 0 || dhx != 0)?;
        check_states(&form, c_form, form.hidden, lstm && (cx != 0 || dcy != 0 || dcx != 0))?;
        check_rooms(&form, (weights, size), (kept, kept_size), true)?;
        let of_cell = |addr: usize| if lstm { addr as u64 } else { 0 };
        post(handle, &DnnRecurrent {
            task: DnnRecurrentTask::Data,
            weights: weights as u64,
            kept: kept as u64,
            dy: dy as u64,
            dx: dx as u64,
            hx: hx as u64,
            dhy: dhy as u64,
            dhx: dhx as u64,
            cx: of_cell(cx),
            dcy: of_cell(dcy),
            dcx: of_cell(dcx),
            ..form
        })
    }
    /// `cudnnRNNBackwardWeights_v8`, which uses what `cudnnRNNBackwardData_v8` has kept.
    fn cudnnRNNBackwardWeights_v8(
        handle: usize, raw: usize, mode: u32, _lengths: usize, x_form: usize, x: usize, h_form: usize, hx: usize,
        y_form: usize, _y: usize, size: usize, dweights: usize, _work_size: usize, _work: usize,
        kept_size: usize, kept: usize,
    ) {
        let form = between(&NETWORKS.get(raw)?, x_form, y_form)?;
        ensure(mode <= 1)?;
        there(&[x])?;
        check_states(&form, h_form, form.outputs(), hx != 0)?;
        check_rooms(&form, (dweights, size), (kept, kept_size), true)?;
        post(handle, &DnnRecurrent {
            task: DnnRecurrentTask::Weights,
            dweights: dweights as u64,
            kept: kept as u64,
            x: x as u64,
            hx: hx as u64,
            adds: mode == 0,
            ..form
        })
    }
}

/// What `CUDNN_RNN_CLIP_NONE` is: nothing is done to a cell, which is what networks here do.
fn unclipped(mode: u32) -> Result<()> {
    match mode {
        0 => Ok(()),
        1 => Err(not_written("LSTMs whose cells are clipped")),
        _ => Err(Status::BadParam),
    }
}

calls! {
    /// `cudnnRNNSetClip_v8`.
    fn cudnnRNNSetClip_v8(raw: usize, mode: u32, _nan: u32, _least: f64, _most: f64) {
        NETWORKS.get(raw)?;
        unclipped(mode)
    }
    /// `cudnnRNNSetClip_v9`.
    fn cudnnRNNSetClip_v9(raw: usize, mode: u32, _least: f64, _most: f64) {
        NETWORKS.get(raw)?;
        unclipped(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LSTM: [u32; 8] = [0, 2, 2, 0, 0, 0, 0, 0];

    #[test]
    fn networks_are_what_their_numbers_say() {
        let form = network([0, 3, 1, 1, 1, 1, 1, 0], [4, 4, 4, 2]).unwrap();
        assert_eq!((form.cell, form.kind, form.projection), (DnnCell::Gru, DnnType::F64, 0));
        assert!(form.both_ways && form.skips_input && form.input_bias && !form.state_bias);
        assert_eq!(network(LSTM, [4, 8, 3, 1]).unwrap().projection, 3);
        for (modes, sizes) in [
            ([0, 4, 2, 0, 0, 0, 0, 0], [4, 4, 4, 1]),
            // A projection of what is no LSTM, or to something longer.
            ([0, 3, 2, 0, 0, 0, 0, 0], [4, 8, 3, 1]),
            (LSTM, [4, 8, 9, 1]),
            // An input that is added as it is, and has another length.
            ([0, 2, 2, 0, 1, 0, 0, 0], [4, 8, 8, 1]),
            // A precision that isn't the type's.
            ([0, 2, 2, 0, 0, 1, 0, 0], [4, 8, 8, 1]),
            (LSTM, [4, 8, 8, 0]),
        ] {
            assert_eq!(network(modes, sizes).err(), Some(Status::BadParam), "{modes:?} {sizes:?}");
        }
        assert_eq!(network([0, 2, 2, 0, 0, 3, 0, 0], [4, 4, 4, 1]).err(), Some(Status::NotSupported));
    }
}
