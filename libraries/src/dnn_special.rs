//! Operations of cuDNN that are no graphs of tensors: recurrent networks, the loss of connectionist temporal classification (CTC), and
//! spatial transformers.

use rgpu_wire::records;

use crate::dnn::{DnnTensor, DnnType};
use crate::types::numbered;

numbered! {
    /// What the cells of a recurrent network compute, numbered as `cudnnRNNMode_t`.
    DnnCell, "cell of a recurrent network" {
        /// `h = max(0, W x + R h')`
        #[default]
        Relu = 0,
        /// `h = tanh(W x + R h')`
        Tanh = 1,
        /// Long short-term memory (Hochreiter and Schmidhuber, 1997), with the gates input, forget, new and output.
        Lstm = 2,
        /// Gated recurrent units (Cho et al., 2014), with the gates reset, update and new; the reset gate is applied to `R h' + b`.
        Gru = 3,
    }
    /// What is done with a recurrent network.
    DnnRecurrentTask, "task of a recurrent network" {
        /// The outputs are computed, and nothing is kept.
        #[default]
        Infer = 0,
        /// The outputs are computed, and what the gradients need is kept.
        Train = 1,
        /// The gradients of the inputs and of the first states; what those of the weights need is kept, too.
        Data = 2,
        /// The gradients of the weights.
        Weights = 3,
    }
    /// How sequences lie in memory, numbered as `cudnnRNNDataLayout_t`.
    DnnSequenceLayout, "layout of sequences" {
        /// By time, then by sequence; there is room for all steps of all sequences.
        #[default]
        TimeMajor = 0,
        /// By time, then by sequence; sequences that have ended have no place.
        Packed = 1,
        /// By sequence, then by time; there is room for all steps of all sequences.
        BatchMajor = 2,
    }
    /// What is done with a spatial transformer (Jaderberg et al., 2015).
    DnnSpatialTask, "task of a spatial transformer" {
        /// Places are made of affine maps.
        #[default]
        Grid = 0,
        /// The gradient of affine maps from that of places.
        GridBackward = 1,
        /// An image is read at places, between its pixels.
        Sample = 2,
        /// The gradients of the image and of the places.
        SampleBackward = 3,
    }
}

records! {
    /// A recurrent network, or its gradients. Of addresses that the task doesn't use, nothing is read. States are one behind the other: by layer,
    /// direction, sequence.
    DnnRecurrent {
        /// What is done.
        task: DnnRecurrentTask,
        /// What cells compute.
        cell: DnnCell,
        /// The type of all elements.
        kind: DnnType,
        /// Elements of an input.
        input: u64,
        /// Elements of a cell's state.
        hidden: u64,
        /// Elements of an output where that is a projection of the state (LSTM only), or 0.
        projection: u64,
        /// Layers.
        layers: u64,
        /// Whether a second network of each layer goes from the end of the sequences to their beginning.
        both_ways: bool,
        /// Whether the first layer's input is added as it is, instead of a product with a matrix.
        skips_input: bool,
        /// Whether there are biases that are added to the products with inputs.
        input_bias: bool,
        /// Whether there are biases that are added to the products with states.
        state_bias: bool,
        /// How inputs and outputs lie.
        layout: DnnSequenceLayout,
        /// The room for steps of each sequence.
        steps: u64,
        /// How many steps each sequence has.
        lengths: Vec<u32>,
        /// What outputs behind a sequence's end become, where something is written there.
        fill: Option<f64>,
        /// The chance with which an element between two layers becomes zero.
        chance: f64,
        /// The random numbers' seed.
        seed: u64,
        /// Where in their sequence they begin.
        place: u64,
        /// The weights: see [`DnnRecurrent::matrix`].
        weights: u64,
        /// What is kept between the tasks, [`DnnRecurrent::kept_bytes`] of it.
        kept: u64,
        /// The input.
        x: u64,
        /// The output.
        y: u64,
        /// The first states, or 0 for zeros.
        hx: u64,
        /// The last states, or 0.
        hy: u64,
        /// The first states of an LSTM's cells, or 0 for zeros.
        cx: u64,
        /// The last states of an LSTM's cells, or 0.
        cy: u64,
        /// The gradient of the output.
        dy: u64,
        /// The gradient of the input.
        dx: u64,
        /// The gradient of the last states, or 0 for zeros.
        dhy: u64,
        /// The gradient of the first states, or 0.
        dhx: u64,
        /// The gradient of the last states of an LSTM's cells, or 0 for zeros.
        dcy: u64,
        /// The gradient of the first states of an LSTM's cells, or 0.
        dcx: u64,
        /// The gradients of the weights.
        dweights: u64,
        /// Whether they are added to what is there.
        adds: bool,
    }
    /// The loss of connectionist temporal classification (Graves et al., 2006), whose blank has the number 0; and its gradient by the
    /// activations before their softmax.
    DnnCtc {
        /// Activations or probabilities: steps, sequences, symbols.
        probabilities: DnnTensor,
        /// Whether the softmax of activations is still to be computed.
        softmax: bool,
        /// The gradient, of the same dimensions; there is none where its address is 0.
        gradient: DnnTensor,
        /// Where the loss of each sequence goes, numbers of the probabilities' type.
        costs: u64,
        /// All labels, one sequence's behind the other's, where they came by value.
        labels: Vec<i32>,
        /// How many labels each sequence has, where they came by value.
        label_lengths: Vec<i32>,
        /// How many steps each sequence has, where they came by value.
        input_lengths: Vec<i32>,
        /// Where the labels are in device memory (32 bits), or 0 where they came by value.
        labels_at: u64,
        /// Where their numbers are, if the labels are in device memory.
        label_lengths_at: u64,
        /// Where the numbers of steps are, if the labels are in device memory.
        input_lengths_at: u64,
        /// Whether the gradient of a sequence that cannot have its labels stays as it was, instead of becoming zeros.
        skips: bool,
    }
    /// A spatial transformer: affine maps (image, 2, 3), places (image, row, column, 2) with coordinates from -1 to 1 between the centres of the first and
    /// the last pixel, and images of which nothing is seen beyond their edges.
    DnnSpatial {
        /// What is done.
        task: DnnSpatialTask,
        /// The affine maps, or their gradient.
        theta: DnnTensor,
        /// The places; for [`DnnSpatialTask::GridBackward`] their gradient.
        grid: DnnTensor,
        /// The image that is read.
        x: DnnTensor,
        /// What is read, or its gradient.
        y: DnnTensor,
        /// The gradient of the image; there is none where its address is 0.
        dx: DnnTensor,
        /// The gradient of the places; there is none where its address is 0.
        dgrid: DnnTensor,
        /// `y = alpha f(x) + beta y`, or `dx`.
        alpha: f64,
        /// See alpha; where it is zero, what was there is not read.
        beta: f64,
        /// The same for `dgrid`.
        alpha_grid: f64,
        /// See `alpha_grid`.
        beta_grid: f64,
    }
}

/// A matrix or a vector among the weights of a recurrent network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnnWeights {
    /// Elements before it.
    pub offset: u64,
    /// Its rows: what it makes.
    pub rows: u64,
    /// Its columns: what it is multiplied by; 1 of a vector.
    pub columns: u64,
}

/// So many of anything in a recurrent network are none.
const MOST: u64 = 1 << 31;

impl DnnRecurrent {
    /// Whether its sizes are those of a network whose sequences can be counted.
    pub fn is_sound(&self) -> bool {
        let counts = [self.input, self.hidden, self.layers, self.steps, self.lengths.len() as u64];
        let longest = self.lengths.iter().all(|&length| u64::from(length) <= self.steps);
        counts.iter().all(|count| (1..MOST).contains(count))
            && self.projection < self.hidden.max(1)
            && (self.projection == 0 || self.cell == DnnCell::Lstm)
            && (!self.skips_input || self.input == self.hidden)
            && (0.0..=1.0).contains(&self.chance)
            && longest
            && self.weight_count().is_some()
            && self.kept_count().is_some()
    }

    /// How many gates a cell has.
    pub fn gates(&self) -> u64 {
        match self.cell {
            DnnCell::Relu | DnnCell::Tanh => 1,
            DnnCell::Lstm => 4,
            DnnCell::Gru => 3,
        }
    }

    /// Directions.
    pub fn directions(&self) -> u64 {
        if self.both_ways { 2 } else { 1 }
    }

    /// Elements of what a cell gives.
    pub fn outputs(&self) -> u64 {
        if self.projection > 0 { self.projection } else { self.hidden }
    }

    /// Elements of what a layer gets.
    pub fn inputs_of(&self, layer: u64) -> u64 {
        if layer == 0 { self.input } else { self.directions() * self.outputs() }
    }

    /// The elements of the matrices of one direction of a layer, of each: by which inputs are multiplied, by which states are, and which projects.
    fn matrices(&self, layer: u64) -> Option<[u64; 3]> {
        let of_inputs = if layer == 0 && self.skips_input { 0 } else { self.inputs_of(layer) };
        let of = |columns: u64| self.hidden.checked_mul(columns);
        Some([of(of_inputs)?, of(self.outputs())?, of(self.projection)?])
    }

    /// Elements before the matrices of one direction of a layer.
    fn matrices_before(&self, pseudo: u64) -> Option<u64> {
        let directions = self.directions();
        let of = |layer| {
            let [inputs, states, projects] = self.matrices(layer)?;
            inputs.checked_add(states)?.checked_mul(self.gates())?.checked_add(projects)
        };
        let first = of(0)?.checked_mul(pseudo.min(directions))?;
        of(1)?.checked_mul(pseudo.saturating_sub(directions))?.checked_add(first)
    }

    /// How many elements all weights have: first the matrices of all layers and their directions, then all vectors.
    pub fn weight_count(&self) -> Option<u64> {
        let pseudo = self.layers.checked_mul(self.directions())?;
        let biases = u64::from(self.input_bias) + u64::from(self.state_bias);
        let vectors = pseudo.checked_mul(biases * self.gates())?.checked_mul(self.hidden)?;
        self.matrices_before(pseudo)?.checked_add(vectors)
    }

    /// The matrix of this number (gates for inputs, gates for states, and the projection) of one direction of a layer, stored row by row. `None`
    /// where there is none. `pseudo` is `layer * directions + direction`.
    pub fn matrix(&self, pseudo: u64, number: u64) -> Option<DnnWeights> {
        let (layer, gates) = (pseudo / self.directions(), self.gates());
        let [inputs, states, projects] = self.matrices(layer)?;
        let before = self.matrices_before(pseudo)?;
        let (rows, columns, offset, size) = if number < gates {
            (self.hidden, inputs / self.hidden, before + number * inputs, inputs)
        } else if number < 2 * gates {
            (self.hidden, self.outputs(), before + gates * inputs + (number - gates) * states, states)
        } else if number == 2 * gates {
            (self.projection, self.hidden, before + gates * (inputs + states), projects)
        } else {
            return None;
        };
        (size > 0).then_some(DnnWeights { offset, rows, columns })
    }

    /// The vector that is added to the product with the matrix of this number.
    pub fn bias(&self, pseudo: u64, number: u64) -> Option<DnnWeights> {
        let gates = self.gates();
        let each = u64::from(self.input_bias) + u64::from(self.state_bias);
        let (is_there, place) = match number / gates {
            0 => (self.input_bias, number),
            1 => (self.state_bias, number - gates + u64::from(self.input_bias) * gates),
            _ => (false, 0),
        };
        let all = self.matrices_before(self.layers * self.directions())?;
        let offset = all + (pseudo * each * gates + place) * self.hidden;
        is_there.then_some(DnnWeights { offset, rows: self.hidden, columns: 1 })
    }

    /// Bytes of the weights.
    pub fn weight_bytes(&self) -> Option<u64> {
        self.weight_count()?.checked_mul(self.kind.bytes())
    }

    /// How many numbers are kept for each step of each sequence by one direction of a layer: what gates, cells and outputs were, and their
    /// gradients.
    pub fn kept_of_cells(&self) -> [u64; 4] {
        let (h, o) = (self.hidden, self.outputs());
        match self.cell {
            DnnCell::Relu | DnnCell::Tanh => [0, o, h, 0],
            // Four gates, the cell, and the output before it is projected.
            DnnCell::Lstm => [6 * h, o, 4 * h, self.projection],
            DnnCell::Gru => [4 * h, o, 4 * h, 0],
        }
    }

    /// How many numbers are kept between the tasks.
    pub fn kept_count(&self) -> Option<u64> {
        let cells: u64 = self.kept_of_cells().iter().try_fold(0u64, |all, &n| all.checked_add(n))?;
        let (directions, outputs) = (self.directions(), self.outputs());
        // What comes between two layers, and by what it was multiplied.
        let between =
            directions.checked_mul(outputs)?.checked_mul(2)?.checked_mul(self.layers.checked_sub(1)?)?;
        let of_step = self.layers.checked_mul(directions)?.checked_mul(cells)?.checked_add(between)?;
        self.steps.checked_mul(self.lengths.len() as u64)?.checked_mul(of_step)
    }

    /// Bytes of what is kept: numbers of 64 bits where the network's have so many, else of 32.
    pub fn kept_bytes(&self) -> Option<u64> {
        self.kept_count()?.checked_mul(if self.kind == DnnType::F64 { 8 } else { 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks() -> impl Iterator<Item = DnnRecurrent> {
        let cells = [(DnnCell::Tanh, 0), (DnnCell::Lstm, 0), (DnnCell::Lstm, 2), (DnnCell::Gru, 0)];
        let flags = (0..16u32).map(|bits| [1, 2, 4, 8].map(|bit| bits & bit != 0));
        flags.flat_map(move |[both_ways, skips_input, input_bias, state_bias]| {
            cells.map(|(cell, projection)| DnnRecurrent {
                cell,
                projection,
                both_ways,
                skips_input,
                input_bias,
                state_bias,
                input: if skips_input { 3 } else { 5 },
                hidden: 3,
                layers: 3,
                steps: 4,
                lengths: vec![4, 2],
                ..DnnRecurrent::default()
            })
        })
    }

    #[test]
    fn weights_fill_their_room_without_overlapping() {
        for network in networks() {
            assert!(network.is_sound(), "{network:?}");
            let pseudo = network.layers * network.directions();
            let mut used = vec![0; network.weight_count().unwrap() as usize];
            for (pseudo, number) in (0..pseudo).flat_map(|p| (0..=2 * network.gates()).map(move |n| (p, n))) {
                for found in
                    [network.matrix(pseudo, number), network.bias(pseudo, number)].into_iter().flatten()
                {
                    let (from, size) = (found.offset as usize, (found.rows * found.columns) as usize);
                    used[from..from + size].iter_mut().for_each(|count| *count += 1);
                }
            }
            assert!(used.iter().all(|&count| count == 1), "{network:?}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let sound = networks().next().unwrap();
        let with = |change: fn(&mut DnnRecurrent)| {
            let mut changed = sound.clone();
            change(&mut changed);
            changed.is_sound()
        };
        assert!(with(|_| {}));
        assert!(!with(|n| n.layers = 0));
        assert!(!with(|n| n.projection = 1));
        assert!(!with(|n| n.lengths[0] = 5));
        assert!(!with(|n| n.chance = 1.5));
        assert!(!with(|n| (n.hidden, n.input, n.layers) = (1 << 30, 1 << 30, 1 << 30)));
    }
}
