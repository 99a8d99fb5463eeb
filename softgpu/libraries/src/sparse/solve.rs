//! Systems of equations with sparse matrices.

use std::collections::BTreeMap;

use num_complex::Complex;
use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, SparseSolve, SparseSystem};
use rgpu_softgpu::library::Operand;

use super::places::{dense, each, is_whole, operands, place, room, set_number, set_value, value};
use super::product::{conjugates, element, turns, used};
use super::{Sparse, factor, factor_now, list};
use crate::{invalid, missing};

/// A quotient.
pub(super) fn divided<T: Dense>(a: T, b: T) -> T {
    let (a, b) = (a.parts(), b.parts());
    if !T::COMPLEX {
        return T::of(a.0 / b.0, 0.0);
    }
    let quotient = Complex::new(a.0, a.1) / Complex::new(b.0, b.1);
    T::of(quotient.re, quotient.im)
}

/// The square of the absolute value.
pub(super) fn squared<T: Dense>(x: T) -> f64 {
    let (re, im) = x.parts();
    re * re + im * im
}

impl Sparse for SparseSolve {
    fn shape(&self) -> (DataType, u64) {
        // Each thread solves for columns of its own.
        (self.c.kind, self.c.columns)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (a, c) = (&self.a, &self.c);
        let b = used(self.op_b, self.b.rows, self.b.columns);
        if a.rows != a.columns || b != (a.rows, c.columns) || c.rows != a.rows {
            return invalid("A triangular system of matrices whose shapes do not fit");
        }
        if a.kind != c.kind || self.b.kind != c.kind {
            return missing("triangular systems in several types");
        }
        is_whole(a)?;
        let [offsets, indices, values] = operands(a, false, false)?;
        Ok(vec![
            offsets,
            indices,
            values,
            dense(&self.b, false)?,
            dense(c, true)?,
            factor(&self.alpha, c.kind),
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], from: u64, to: u64) -> Result<()> {
        // SAFETY: the operands are as said above; here and below.
        let alpha: T = unsafe { factor_now(&self.alpha, memory[5]) };
        let n = self.a.rows;
        if from == to {
            return Ok(());
        }
        let mut diagonal = room(n, T::of(if self.unit { 1.0 } else { 0.0 }, 0.0))?;
        let mut others: Vec<(u64, u64, T)> = Vec::new();
        // SAFETY: the first three operands.
        unsafe {
            each(&self.a, (memory[0], memory[1]), |i, j, k| {
                let of: T = value(memory[2], k);
                let of = if conjugates(self.op_a) { of.conjugate() } else { of };
                if i == j && !self.unit {
                    diagonal[i as usize] += of;
                } else if i != j && (j > i) == self.upper {
                    others.push(if turns(self.op_a) { (j, i, of) } else { (i, j, of) });
                }
            })?;
        }
        // From the row on that has nothing but its diagonal.
        let downwards = self.upper == turns(self.op_a);
        others.sort_by_key(|e| if downwards { e.0 } else { n - 1 - e.0 });
        for column in from..to {
            let mut x = room(n, T::of(0.0, 0.0))?;
            for row in 0..n {
                // SAFETY: op(B) has this element.
                x[row as usize] = alpha * unsafe { element::<T>(&self.b, memory[3], self.op_b, row, column) };
            }
            let mut rows = others.as_slice();
            for step in 0..n {
                let row = if downwards { step } else { n - 1 - step };
                let count = rows.iter().take_while(|e| e.0 == row).count();
                let (these, rest) = rows.split_at(count);
                rows = rest;
                let mut sum = x[row as usize];
                these.iter().for_each(|&(_, j, of)| sum -= of * x[j as usize]);
                x[row as usize] = if self.unit { sum } else { divided(sum, diagonal[row as usize]) };
            }
            for row in 0..n {
                // SAFETY: inside of C.
                unsafe { set_value(memory[4], place(&self.c, row, column), x[row as usize]) };
            }
        }
        Ok(())
    }
}

/// A row's elements by their columns, and its right side.
struct Row<T> {
    elements: BTreeMap<u64, T>,
    right: T,
}

impl<T: Dense> Row<T> {
    /// `a` times this one plus `b` times another one, without the column that both begin with.
    fn mixed(&self, a: T, other: &Self, b: T, first: u64) -> Self {
        let mut elements: BTreeMap<u64, T> =
            self.elements.range(first + 1..).map(|(&j, &x)| (j, a * x)).collect();
        for (&j, &x) in other.elements.range(first + 1..) {
            *elements.entry(j).or_insert(T::of(0.0, 0.0)) += b * x;
        }
        Row { elements, right: a * self.right + b * other.right }
    }
}

/// The upper triangle that rotations make of rows, by its rows; where there is none, the diagonal is zero.
fn rotated<T: Dense>(rows: Vec<Row<T>>, n: u64) -> Vec<Option<Row<T>>> {
    let mut triangle: Vec<Option<Row<T>>> = Vec::new();
    triangle.resize_with(n as usize, || None);
    for mut row in rows {
        while let Some((&first, &y)) = row.elements.first_key_value() {
            let Some(above) = &triangle[first as usize] else {
                triangle[first as usize] = Some(row);
                break;
            };
            if squared(y) == 0.0 {
                row.elements.remove(&first);
                continue;
            }
            let x = above.elements[&first];
            let length = squared(x).sqrt().hypot(squared(y).sqrt());
            let by = |z: T| T::of(z.parts().0 / length, z.parts().1 / length);
            let (c, s) = (by(x), by(y));
            let mut upper = above.mixed(c.conjugate(), &row, s.conjugate(), first);
            upper.elements.insert(first, T::of(length, 0.0));
            let minus = T::of(-s.parts().0, -s.parts().1);
            row = row.mixed(c, above, minus, first);
            triangle[first as usize] = Some(upper);
        }
    }
    triangle
}

/// Solves by rotations of rows. Which row of the triangle is zero, and the solution.
fn by_rotations<T: Dense>(rows: Vec<Row<T>>, n: u64, tolerance: f64) -> Result<(Option<u64>, Vec<T>)> {
    let triangle = rotated(rows, n);
    let zero = T::of(0.0, 0.0);
    let diagonal = |row: u64| triangle[row as usize].as_ref().map_or(zero, |of| of.elements[&row]);
    let singular = (0..n).find(|&row| squared(diagonal(row)).sqrt() <= tolerance);
    let mut x = room(n, zero)?;
    for row in (0..n).rev() {
        let mut sum = zero;
        if let Some(of) = &triangle[row as usize] {
            sum = of.right;
            of.elements.range(row + 1..).for_each(|(&j, &a)| sum -= a * x[j as usize]);
        }
        x[row as usize] = divided(sum, diagonal(row));
    }
    Ok((singular, x))
}

/// Solves by a triangle and its adjoint, row by row. Which row is not positive, and the solution.
fn by_cholesky<T: Dense>(rows: Vec<Row<T>>, n: u64, tolerance: f64) -> Result<(Option<u64>, Vec<T>)> {
    let zero = T::of(0.0, 0.0);
    let mut columns: Vec<Vec<(u64, T)>> = room(n, Vec::new())?;
    let mut diagonal = room(n, 0.0f64)?;
    let mut x = room(n, zero)?;
    let mut singular = None;
    for (i, row) in rows.into_iter().enumerate() {
        let Row { mut elements, right } = row;
        elements.split_off(&(i as u64 + 1));
        let mut left = elements.remove(&(i as u64)).map_or(0.0, |of| of.parts().0);
        let mut y = right;
        while let Some((j, element)) = elements.pop_first() {
            let j = j as usize;
            let of = divided(element, T::of(diagonal[j], 0.0));
            for &(k, other) in &columns[j] {
                let change = of * other.conjugate();
                let at = elements.entry(k).or_insert(zero);
                *at -= change;
            }
            left -= squared(of);
            y -= of * x[j];
            columns[j].push((i as u64, of));
        }
        // A number that is none is not positive, either.
        let positive = left > 0.0 && left.sqrt() > tolerance;
        if singular.is_none() && !positive {
            singular = Some(i as u64);
        }
        diagonal[i] = left.sqrt();
        x[i] = divided(y, T::of(diagonal[i], 0.0));
    }
    for i in (0..n as usize).rev() {
        let mut sum = x[i];
        columns[i].iter().for_each(|&(k, of)| sum -= of.conjugate() * x[k as usize]);
        x[i] = divided(sum, T::of(diagonal[i], 0.0));
    }
    Ok((singular, x))
}

impl Sparse for SparseSystem {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let a = &self.a;
        if a.rows != a.columns {
            return invalid("A system of equations that is not square");
        }
        if a.rows > 0 && (self.b == 0 || self.x == 0) {
            return invalid("A system of equations without right sides or a place for its solution");
        }
        is_whole(a)?;
        let mut all = operands(a, false, false)?.to_vec();
        all.extend([
            list(self.b, a.rows, a.kind.bytes(), false)?,
            list(self.x, a.rows, a.kind.bytes(), true)?,
            list(self.singular, 1, 4, true)?,
        ]);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let n = self.a.rows;
        let mut rows: Vec<Row<T>> = Vec::new();
        for row in 0..n as usize {
            // SAFETY: the operands are as said above; here and below.
            rows.push(Row { elements: BTreeMap::new(), right: unsafe { value(memory[3], row) } });
        }
        // SAFETY: the first three operands.
        unsafe {
            each(&self.a, (memory[0], memory[1]), |i, j, k| {
                let at = rows[i as usize].elements.entry(j).or_insert(T::of(0.0, 0.0));
                *at += value::<T>(memory[2], k);
            })?;
        }
        let solve = if self.positive { by_cholesky } else { by_rotations };
        let (singular, x) = solve(rows, n, self.tolerance)?;
        // SAFETY: the solution has a place for each row, and `singular` is one number.
        unsafe {
            x.iter().enumerate().for_each(|(row, &of)| set_value(memory[4], row, of));
            if self.singular != 0 {
                set_number(memory[5], 0, false, singular.map_or(-1, |row| row as i64));
            }
        }
        Ok(())
    }
}
