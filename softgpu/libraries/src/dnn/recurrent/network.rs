//! Networks, layer by layer and step by step.

use gemm::Parallelism;
use rgpu_device::Result;
use rgpu_libraries::{DnnCell, DnnRecurrent, DnnRecurrentTask};
use rgpu_random::{Distribution, Pseudo, fill};

use super::cell;
use super::kept::{Cells, Kept, zeros};
use super::sequences::Sequences;
use crate::dnn::Real;

/// The states of all layers, or their gradients: of outputs, and of an LSTM's cells.
pub(super) struct States<T> {
    pub(super) h: Vec<T>,
    pub(super) c: Vec<T>,
}

/// A matrix in rows: its elements, the distance of its rows, and whether it is used transposed.
type Rows<'a, T> = (&'a [T], usize, bool);

/// `c += a b`, where c has m rows and n columns, and a has k columns.
fn add_product<T: Real>(
    (m, n, k): (usize, usize, usize),
    (c, c_row): (&mut [T], usize),
    (a, a_row, a_turned): Rows<'_, T>,
    (b, b_row, b_turned): Rows<'_, T>,
) {
    let extent = |rows: usize, columns: usize, row: usize| (rows - 1) * row + columns;
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let of_a = if a_turned { extent(k, m, a_row) } else { extent(m, k, a_row) };
    let of_b = if b_turned { extent(n, k, b_row) } else { extent(k, n, b_row) };
    assert!(c.len() >= extent(m, n, c_row) && a.len() >= of_a && b.len() >= of_b, "matrices of a network");
    let steps = |row: usize, turned: bool| if turned { (row as isize, 1) } else { (1, row as isize) };
    let ((a_cs, a_rs), (b_cs, b_rs)) = (steps(a_row, a_turned), steps(b_row, b_turned));
    let one = T::of(1.0);
    // SAFETY: all elements are inside of their lists, as was looked at above.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            c_row as isize,
            true,
            a.as_ptr(),
            a_cs,
            a_rs,
            b.as_ptr(),
            b_cs,
            b_rs,
            one,
            one,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Adds up.
fn add<T: Real>(to: &mut [T], from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
}

/// A network that is being computed.
pub(super) struct Network<'a> {
    pub(super) work: &'a DnnRecurrent,
    pub(super) sequences: &'a Sequences,
}

/// One direction of a layer.
#[derive(Clone, Copy)]
struct Part {
    layer: u64,
    direction: usize,
    /// `layer * directions + direction`.
    pseudo: u64,
}

impl Network<'_> {
    /// Steps of all sequences, with the room behind their ends.
    fn rows(&self) -> usize {
        self.sequences.steps * self.sequences.count()
    }

    /// The sums that gates are made of, of one step.
    fn width(&self) -> usize {
        (self.work.gates() * self.work.hidden) as usize
    }

    fn directions(&self) -> usize {
        self.work.directions() as usize
    }

    fn parts(&self, layer: u64) -> impl Iterator<Item = Part> + use<> {
        let directions = self.work.directions();
        (0..directions).map(move |d| Part { layer, direction: d as usize, pseudo: layer * directions + d })
    }

    /// The times of the steps, in the order in which they are done.
    fn times(&self, part: Part) -> Vec<usize> {
        let forwards = 0..self.sequences.steps;
        if part.direction == 0 { forwards.collect() } else { forwards.rev().collect() }
    }

    /// The matrices by which inputs are multiplied, or states; `None` where inputs are added as they are.
    fn matrices<'w, T>(&self, weights: &'w [T], part: Part, of_states: bool) -> Option<(&'w [T], usize)> {
        let number = if of_states { self.work.gates() } else { 0 };
        let first = self.work.matrix(part.pseudo, number)?;
        let count = self.work.gates() * first.rows * first.columns;
        Some((&weights[first.offset as usize..][..count as usize], first.columns as usize))
    }

    /// The vectors that are added to products with inputs, or with states.
    fn biases<'w, T>(&self, weights: &'w [T], part: Part, of_states: bool) -> Option<&'w [T]> {
        let number = if of_states { self.work.gates() } else { 0 };
        let first = self.work.bias(part.pseudo, number)?;
        Some(&weights[first.offset as usize..][..self.width()])
    }

    /// The matrix that projects.
    fn projection<'w, T>(&self, weights: &'w [T], part: Part) -> Option<&'w [T]> {
        let of = self.work.matrix(part.pseudo, 2 * self.work.gates())?;
        Some(&weights[of.offset as usize..][..(of.rows * of.columns) as usize])
    }

    /// The output of the last layer. `states` are the first ones, and become the last ones.
    pub(super) fn forward<T: Real>(
        &self,
        x: Vec<T>,
        weights: &[T],
        states: &mut States<T>,
        kept: &mut Kept<T>,
    ) -> Result<Vec<T>> {
        let (outputs, directions) = (self.work.outputs() as usize, self.directions());
        let wide = directions * outputs;
        let mut input = x;
        for layer in 0..self.work.layers {
            let mut output = zeros(self.rows() * wide)?;
            for part in self.parts(layer) {
                let cells = &mut kept.cells[part.pseudo as usize];
                self.layer(part, &input, weights, states, cells)?;
                for row in 0..self.rows() {
                    output[row * wide + part.direction * outputs..][..outputs]
                        .copy_from_slice(&cells.outputs[row * outputs..][..outputs]);
                }
            }
            if layer + 1 < self.work.layers {
                let [next, factors] = &mut kept.between[layer as usize];
                self.drop_out(layer, factors);
                for ((to, &from), &factor) in next.iter_mut().zip(&output).zip(factors.iter()) {
                    *to = from * factor;
                }
                input.clone_from(next);
            } else {
                input = output;
            }
        }
        Ok(input)
    }

    /// What the outputs of a layer are multiplied by.
    fn drop_out<T: Real>(&self, layer: u64, factors: &mut [T]) {
        let chance = self.work.chance;
        if self.work.task != DnnRecurrentTask::Train || chance == 0.0 {
            factors.fill(T::of(1.0));
            return;
        }
        let mut bytes = vec![0; 4 * factors.len()];
        let place = self.work.place.wrapping_add(layer * factors.len() as u64);
        let count = factors.len() as u64;
        fill(Pseudo::Philox, (self.work.seed, place), Distribution::UniformF32, (0, count), &mut bytes);
        for (factor, number) in factors.iter_mut().zip(bytes.as_chunks::<4>().0) {
            // Numbers are more than zero and at most one: with a chance of one nothing is above it.
            let stays = f64::from(f32::from_le_bytes(*number)) > chance;
            *factor = T::of(if stays { 1.0 / (1.0 - chance) } else { 0.0 });
        }
    }

    /// All steps of one direction of a layer.
    fn layer<T: Real>(
        &self,
        part: Part,
        input: &[T],
        weights: &[T],
        states: &mut States<T>,
        cells: &mut Cells<T>,
    ) -> Result<()> {
        let work = self.work;
        let (h, outputs, width, count) =
            (work.hidden as usize, work.outputs() as usize, self.width(), self.sequences.count());
        let gru = work.cell == DnnCell::Gru;
        let (rows, inputs) = (self.rows(), work.inputs_of(part.layer) as usize);
        let mut sums = zeros(rows * width)?;
        match self.matrices(weights, part, false) {
            Some((matrices, columns)) => add_product(
                (rows, width, inputs),
                (&mut sums, width),
                (input, inputs, false),
                (matrices, columns, true),
            ),
            None => {
                for (sums, input) in sums.chunks_mut(width).zip(input.chunks(inputs)) {
                    sums.chunks_mut(h).for_each(|gate| add(gate, input));
                }
            }
        }
        for of_states in [false, true] {
            let Some(biases) = self.biases(weights, part, of_states) else { continue };
            // The third gate of a GRU has that of the state in another place.
            let these = if gru && of_states { 2 * h } else { width };
            sums.chunks_mut(width).for_each(|sums| add(&mut sums[..these], &biases[..these]));
        }
        let (matrices, columns) = self.matrices(weights, part, true).unwrap_or((&[], 0));
        let projection = self.projection(weights, part);
        let state = &mut states.h[part.pseudo as usize * count * outputs..][..count * outputs];
        let memory = &mut states.c[part.pseudo as usize * count * h..][..count * h];
        let kept = work.kept_of_cells()[0] as usize;
        for time in self.times(part) {
            let mut of_state = zeros(count * width)?;
            add_product(
                (count, width, outputs),
                (&mut of_state, width),
                (state, outputs, false),
                (matrices, columns, true),
            );
            if let (true, Some(biases)) = (gru, self.biases(weights, part, true)) {
                of_state.chunks_mut(width).for_each(|sums| add(&mut sums[2 * h..], &biases[2 * h..]));
            }
            for sequence in (0..count).filter(|&sequence| self.sequences.has(time, sequence)) {
                let row = time * count + sequence;
                let sums = &mut sums[row * width..][..width];
                let of_state = &of_state[sequence * width..][..width];
                let these = if gru { 2 * h } else { width };
                add(&mut sums[..these], &of_state[..these]);
                let state = &mut state[sequence * outputs..][..outputs];
                let kept = &mut cells.gates[row * kept..][..kept];
                match work.cell {
                    DnnCell::Relu | DnnCell::Tanh => {
                        let relu = work.cell == DnnCell::Relu;
                        state.iter_mut().zip(sums).for_each(|(to, sum)| *to = cell::simple(relu, *sum));
                    }
                    DnnCell::Gru => cell::gru(h, sums, &of_state[2 * h..], kept, state),
                    DnnCell::Lstm => {
                        let memory = &mut memory[sequence * h..][..h];
                        cell::lstm(h, sums, memory, kept);
                        memory.copy_from_slice(&kept[4 * h..5 * h]);
                        let output = &kept[5 * h..6 * h];
                        match projection {
                            Some(matrix) => {
                                state.fill(T::ZERO);
                                add_product(
                                    (1, outputs, h),
                                    (state, outputs),
                                    (output, h, false),
                                    (matrix, h, true),
                                );
                            }
                            None => state.copy_from_slice(output),
                        }
                    }
                }
                cells.outputs[row * outputs..][..outputs].copy_from_slice(state);
            }
        }
        Ok(())
    }

    /// For each row the output, or the cell, of the step before it, which is a first state for the first step of a sequence.
    fn before<T: Real>(
        &self,
        part: Part,
        first: &[T],
        rows: (&[T], usize, usize),
        width: usize,
    ) -> Result<Vec<T>> {
        let (from, distance, skip) = rows;
        let count = self.sequences.count();
        let first = &first[part.pseudo as usize * count * width..][..count * width];
        let mut all = zeros(self.rows() * width)?;
        for time in 0..self.sequences.steps {
            for sequence in (0..count).filter(|&sequence| self.sequences.has(time, sequence)) {
                let before = if part.direction == 0 { time.checked_sub(1) } else { Some(time + 1) };
                let before = before
                    .filter(|&before| before < self.sequences.steps && self.sequences.has(before, sequence));
                let of = match before {
                    Some(before) => &from[(before * count + sequence) * distance + skip..][..width],
                    None => &first[sequence * width..][..width],
                };
                all[(time * count + sequence) * width..][..width].copy_from_slice(of);
            }
        }
        Ok(all)
    }

    /// The gradient of the input. `ends` are the gradients of the last states, and become those of the first ones.
    pub(super) fn backward<T: Real>(
        &self,
        dy: Vec<T>,
        weights: &[T],
        first: &States<T>,
        ends: &mut States<T>,
        kept: &mut Kept<T>,
    ) -> Result<Vec<T>> {
        let mut of_output = dy;
        for layer in (0..self.work.layers).rev() {
            let inputs = self.work.inputs_of(layer) as usize;
            let mut of_input = zeros(self.rows() * inputs)?;
            for part in self.parts(layer) {
                let cells = &mut kept.cells[part.pseudo as usize];
                self.layer_backward(part, &of_output, weights, first, ends, cells)?;
                let (gradients, width, row) = (&cells.gradients, self.width(), self.gradients());
                match self.matrices(weights, part, false) {
                    Some((matrices, columns)) => add_product(
                        (self.rows(), inputs, width),
                        (&mut of_input, inputs),
                        (gradients, row, false),
                        (matrices, columns, false),
                    ),
                    None => {
                        for (to, gates) in of_input.chunks_mut(inputs).zip(gradients.chunks(row)) {
                            gates[..width].chunks(inputs).for_each(|gate| add(to, gate));
                        }
                    }
                }
            }
            if layer > 0 {
                let factors = &kept.between[layer as usize - 1][1];
                of_input.iter_mut().zip(factors).for_each(|(to, &factor)| *to = *to * factor);
            }
            of_output = of_input;
        }
        Ok(of_output)
    }

    /// How many gradients there are of a row: those of the gates' sums, and for a GRU that of the third gate's sum with the state.
    fn gradients(&self) -> usize {
        self.work.kept_of_cells()[2] as usize
    }

    /// Where, among the gradients of a row, those of each gate's product with the state are.
    fn of_states(&self) -> Vec<usize> {
        let h = self.work.hidden as usize;
        match self.work.cell {
            DnnCell::Gru => vec![0, h, 3 * h],
            _ => (0..self.work.gates() as usize).map(|gate| gate * h).collect(),
        }
    }

    /// All steps of one direction of a layer, from the last one to the first one.
    fn layer_backward<T: Real>(
        &self,
        part: Part,
        of_output: &[T],
        weights: &[T],
        first: &States<T>,
        ends: &mut States<T>,
        cells: &mut Cells<T>,
    ) -> Result<()> {
        let work = self.work;
        let (h, outputs, count) = (work.hidden as usize, work.outputs() as usize, self.sequences.count());
        let (wide, row_of_gradients) = (self.directions() * outputs, self.gradients());
        let [kept, ..] = work.kept_of_cells().map(|n| n as usize);
        let before = if work.cell == DnnCell::Gru {
            self.before(part, &first.h, (&cells.outputs, outputs, 0), outputs)?
        } else if work.cell == DnnCell::Lstm {
            self.before(part, &first.c, (&cells.gates, kept, 4 * h), h)?
        } else {
            Vec::new()
        };
        let (matrices, columns) = self.matrices(weights, part, true).unwrap_or((&[], 0));
        let projection = self.projection(weights, part);
        let dh = &mut ends.h[part.pseudo as usize * count * outputs..][..count * outputs];
        let dc = &mut ends.c[part.pseudo as usize * count * h..][..count * h];
        let mut of_cell = zeros(h)?;
        for time in self.times(part).into_iter().rev() {
            for sequence in (0..count).filter(|&sequence| self.sequences.has(time, sequence)) {
                let row = time * count + sequence;
                let dh = &mut dh[sequence * outputs..][..outputs];
                add(dh, &of_output[row * wide + part.direction * outputs..][..outputs]);
                let sums = &mut cells.gradients[row * row_of_gradients..][..row_of_gradients];
                let output = &cells.outputs[row * outputs..][..outputs];
                match work.cell {
                    DnnCell::Relu | DnnCell::Tanh => {
                        let relu = work.cell == DnnCell::Relu;
                        for ((sum, &y), dh) in sums.iter_mut().zip(output).zip(dh.iter_mut()) {
                            *sum = cell::simple_gradient(relu, y, *dh);
                            *dh = T::ZERO;
                        }
                    }
                    DnnCell::Gru => {
                        let before = &before[row * h..][..h];
                        cell::gru_gradient(h, &cells.gates[row * kept..][..kept], before, dh, sums);
                    }
                    DnnCell::Lstm => {
                        let gates = &cells.gates[row * kept..][..kept];
                        match projection {
                            Some(matrix) => {
                                cells.projected[row * outputs..][..outputs].copy_from_slice(dh);
                                of_cell.fill(T::ZERO);
                                add_product(
                                    (1, h, outputs),
                                    (&mut of_cell, h),
                                    (dh, outputs, false),
                                    (matrix, h, false),
                                );
                            }
                            None => of_cell.copy_from_slice(dh),
                        }
                        let (before, dc) = (&before[row * h..][..h], &mut dc[sequence * h..][..h]);
                        cell::lstm_gradient(h, gates, before, &of_cell, dc, sums);
                        dh.fill(T::ZERO);
                    }
                }
                for (gate, at) in self.of_states().into_iter().enumerate() {
                    let matrix = &matrices[gate * h * columns..][..h * columns];
                    add_product(
                        (1, outputs, h),
                        (dh, outputs),
                        (&sums[at..][..h], h, false),
                        (matrix, columns, false),
                    );
                }
            }
        }
        Ok(())
    }

    /// Adds the gradients of the weights to `gradient`.
    pub(super) fn weights<T: Real>(
        &self,
        x: Vec<T>,
        first: &[T],
        kept: &Kept<T>,
        gradient: &mut [T],
    ) -> Result<()> {
        let work = self.work;
        let (h, outputs, rows, row) =
            (work.hidden as usize, work.outputs() as usize, self.rows(), self.gradients());
        for layer in 0..work.layers {
            let inputs = work.inputs_of(layer) as usize;
            let input = if layer == 0 { &x } else { &kept.between[layer as usize - 1][0] };
            for part in self.parts(layer) {
                let cells = &kept.cells[part.pseudo as usize];
                let before = self.before(part, first, (&cells.outputs, outputs, 0), outputs)?;
                for (gate, of_state) in self.of_states().into_iter().enumerate() {
                    let sides = [
                        (gate as u64, gate * h, input, inputs),
                        (work.gates() + gate as u64, of_state, &before, outputs),
                    ];
                    for (number, at, by, width) in sides {
                        if let Some(place) = work.matrix(part.pseudo, number) {
                            let to = &mut gradient[place.offset as usize..][..h * width];
                            let sums = (&cells.gradients[at..], row, true);
                            add_product((h, width, rows), (to, width), sums, (by, width, false));
                        }
                        if let Some(place) = work.bias(part.pseudo, number) {
                            let to = &mut gradient[place.offset as usize..][..h];
                            cells.gradients.chunks(row).for_each(|sums| add(to, &sums[at..][..h]));
                        }
                    }
                }
                if let Some(place) = work.matrix(part.pseudo, 2 * work.gates()) {
                    let to = &mut gradient[place.offset as usize..][..outputs * h];
                    let wide = work.kept_of_cells()[0] as usize;
                    add_product(
                        (outputs, h, rows),
                        (to, h),
                        (&cells.projected, outputs, true),
                        (&cells.gates[5 * h..], wide, false),
                    );
                }
            }
        }
        Ok(())
    }
}
