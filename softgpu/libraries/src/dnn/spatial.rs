//! Spatial transformers (Jaderberg, Simonyan, Zisserman and Kavukcuoglu, 2015): places by affine maps, and bilinear reading of images.

use rgpu_device::Result;
use rgpu_libraries::{DnnSpatial, DnnSpatialTask, DnnTensor, DnnType};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use super::tensor::{List, Shape};
use crate::invalid;

/// The tensors, by their places in the plan.
mod place {
    pub(super) const THETA: usize = 0;
    pub(super) const GRID: usize = 1;
    pub(super) const X: usize = 2;
    pub(super) const Y: usize = 3;
    pub(super) const DX: usize = 4;
    pub(super) const DGRID: usize = 5;
}

/// What [`DnnSpatial`] comes to.
pub(crate) fn plan(work: DnnSpatial) -> Result<Plan> {
    use DnnSpatialTask::{Grid, GridBackward, Sample, SampleBackward};
    let maps = matches!(work.task, Grid | GridBackward);
    let back = work.task == SampleBackward;
    // Which tensors are used, and which of them are written.
    let uses = [maps, true, !maps, !maps, back && work.dx.addr != 0, back && work.dgrid.addr != 0];
    let writes = [work.task == GridBackward, work.task == Grid, false, work.task == Sample, true, true];
    let tensors = [&work.theta, &work.grid, &work.x, &work.y, &work.dx, &work.dgrid];
    let shapes: Vec<Option<Shape>> = uses
        .iter()
        .zip(tensors)
        .map(|(&used, tensor)| {
            if used && tensor.addr == 0 {
                return invalid("A spatial transformer without one of its tensors");
            }
            if used && !matches!(tensor.kind, DnnType::F32 | DnnType::F64 | DnnType::F16 | DnnType::Bf16) {
                return crate::missing(format!("spatial transformers of {:?}", tensor.kind));
            }
            used.then(|| Shape::new(tensor)).transpose()
        })
        .collect::<Result<_>>()?;
    let dims = |index: usize| shapes[index].as_ref().map(|shape| shape.dims.as_slice());
    let Some(&[images, rows, columns, 2]) = dims(place::GRID) else {
        return invalid("Places have four dimensions, of which the last one is 2");
    };
    let fits = if maps {
        dims(place::THETA) == Some(&[images, 2, 3])
    } else {
        let (x, y) = (dims(place::X).unwrap_or(&[]), dims(place::Y).unwrap_or(&[]));
        x.len() == 4
            && x[0] == images
            && y == [images, x[1], rows, columns]
            && dims(place::DX).is_none_or(|dx| dx == x)
            && dims(place::DGRID).is_none_or(|dgrid| Some(dgrid) == dims(place::GRID))
    };
    if !fits {
        return invalid("A spatial transformer whose tensors do not fit each other");
    }
    let operands = tensors.iter().zip(&shapes).zip(writes).map(|((tensor, shape), written)| Operand {
        addr: tensor.addr,
        bytes: shape.as_ref().map_or(0, |shape| shape.extent),
        written,
    });
    let operands = operands.collect();
    Ok(Plan { operands, computation: Box::new(Spatial { work, shapes }) })
}

struct Spatial {
    work: DnnSpatial,
    /// The tensors that are used.
    shapes: Vec<Option<Shape>>,
}

/// The coordinate of a pixel: -1 for the first one, 1 for the last one. A single one is in the middle.
fn coordinate(index: usize, count: usize) -> f64 {
    if count < 2 { 0.0 } else { 2.0 * index as f64 / (count - 1) as f64 - 1.0 }
}

/// The two pixels along an axis between which a coordinate lies, those that are there, with their shares and the derivative of these.
fn neighbours(coordinate: f64, count: usize) -> [Option<(usize, f64, f64)>; 2] {
    let half = (count - 1) as f64 / 2.0;
    let at = (coordinate + 1.0) * half;
    let low = at.floor();
    let pixel = |index: f64, share: f64, slope: f64| {
        let inside = index >= 0.0 && index < count as f64;
        inside.then_some((index as usize, share, slope * half))
    };
    [pixel(low, 1.0 - (at - low), -1.0), pixel(low + 1.0, at - low, 1.0)]
}

impl Spatial {
    fn tensor(&self, index: usize) -> &DnnTensor {
        let work = &self.work;
        [&work.theta, &work.grid, &work.x, &work.y, &work.dx, &work.dgrid][index]
    }

    /// Reads a tensor; where `wanted` says no, there are zeros. `None` where it is not used.
    ///
    /// # Safety
    /// The pointers are to the operands.
    unsafe fn read(&self, memory: &[*mut u8], index: usize, wanted: bool) -> Option<List<f64>> {
        let shape = self.shapes[index].as_ref()?;
        if !wanted {
            return Some(List::filled(shape, 0.0));
        }
        // SAFETY: the operand is as long as the shape says.
        Some(unsafe { List::read(self.tensor(index).kind, shape, memory[index]) })
    }

    /// Writes a tensor that is used.
    ///
    /// # Safety
    /// As for [`Spatial::read`].
    unsafe fn write(&self, memory: &[*mut u8], index: usize, list: &List<f64>) {
        if let Some(shape) = &self.shapes[index] {
            // SAFETY: the operand is as long as the shape says.
            unsafe { list.write(self.tensor(index).kind, shape, memory[index]) };
        }
    }

    /// Calls `f` with the numbers of each image's places, and the coordinates that maps are applied to.
    fn each_place(&self, grid: &List<f64>, mut f: impl FnMut(usize, usize, [f64; 3])) {
        let (images, rows, columns) = (grid.dims[0], grid.dims[1], grid.dims[2]);
        for place in 0..images * rows * columns {
            let (image, row, column) = (place / (rows * columns), place / columns % rows, place % columns);
            f(image, place, [coordinate(column, columns), coordinate(row, rows), 1.0]);
        }
    }

    /// Calls `f` with each place, each plane of its image, where it is among what is read, and the pixels that it is read from: number, share,
    /// and the derivatives of that by both coordinates.
    fn each_sample(
        &self,
        grid: &List<f64>,
        x: &List<f64>,
        mut f: impl FnMut(usize, usize, [(usize, f64, [f64; 2]); 4]),
    ) {
        let (rows, columns) = (grid.dims[1], grid.dims[2]);
        let (planes, height, width) = (x.dims[1], x.dims[2], x.dims[3]);
        for place in 0..grid.values.len() / 2 {
            let across = neighbours(grid.values[2 * place], width);
            let down = neighbours(grid.values[2 * place + 1], height);
            let (image, inside) = (place / (rows * columns), place % (rows * columns));
            for plane in 0..planes {
                let first = (image * planes + plane) * height * width;
                // What is beyond the edges has no share.
                let mut pixels = [(first, 0.0, [0.0; 2]); 4];
                for (number, pixel) in pixels.iter_mut().enumerate() {
                    if let (Some(column), Some(row)) = (across[number % 2], down[number / 2]) {
                        let at = first + row.0 * width + column.0;
                        *pixel = (at, row.1 * column.1, [row.1 * column.2, row.2 * column.1]);
                    }
                }
                f(place, (image * planes + plane) * rows * columns + inside, pixels);
            }
        }
    }
}

impl Computation for Spatial {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let work = &self.work;
        // SAFETY: the pointers are to the operands, here and below.
        unsafe {
            match work.task {
                DnnSpatialTask::Grid => {
                    let theta = self.read(memory, place::THETA, true);
                    let (Some(theta), Some(mut grid)) = (theta, self.read(memory, place::GRID, false)) else {
                        return invalid("A spatial transformer without maps");
                    };
                    let mut values = std::mem::take(&mut grid.values);
                    self.each_place(&grid, |image, place, from| {
                        for axis in 0..2 {
                            let map = &theta.values[image * 6 + axis * 3..][..3];
                            values[2 * place + axis] = map.iter().zip(from).map(|(a, b)| a * b).sum();
                        }
                    });
                    self.write(memory, place::GRID, &List { values, ..grid });
                }
                DnnSpatialTask::GridBackward => {
                    let theta = self.read(memory, place::THETA, false);
                    let (Some(mut theta), Some(grid)) = (theta, self.read(memory, place::GRID, true)) else {
                        return invalid("A spatial transformer without maps");
                    };
                    self.each_place(&grid, |image, place, from| {
                        for axis in 0..2 {
                            let map = &mut theta.values[image * 6 + axis * 3..][..3];
                            let gradient = grid.values[2 * place + axis];
                            map.iter_mut().zip(from).for_each(|(to, from)| *to += gradient * from);
                        }
                    });
                    self.write(memory, place::THETA, &theta);
                }
                DnnSpatialTask::Sample => {
                    let (grid, x) = (self.read(memory, place::GRID, true), self.read(memory, place::X, true));
                    let y = self.read(memory, place::Y, work.beta != 0.0);
                    let (Some(grid), Some(x), Some(mut y)) = (grid, x, y) else {
                        return invalid("A spatial transformer without images");
                    };
                    self.each_sample(&grid, &x, |_, at, pixels| {
                        let sum: f64 = pixels.iter().map(|&(pixel, share, _)| share * x.values[pixel]).sum();
                        y.values[at] = work.alpha * sum + work.beta * y.values[at];
                    });
                    self.write(memory, place::Y, &y);
                }
                DnnSpatialTask::SampleBackward => {
                    let (grid, x) = (self.read(memory, place::GRID, true), self.read(memory, place::X, true));
                    let (Some(grid), Some(x), Some(dy)) = (grid, x, self.read(memory, place::Y, true)) else {
                        return invalid("A spatial transformer without images");
                    };
                    let mut dx = self.read(memory, place::DX, work.beta != 0.0);
                    let mut dgrid = self.read(memory, place::DGRID, work.beta_grid != 0.0);
                    let scale = |list: &mut Option<List<f64>>, factor: f64| {
                        list.iter_mut().flat_map(|list| &mut list.values).for_each(|value| *value *= factor);
                    };
                    scale(&mut dx, work.beta);
                    scale(&mut dgrid, work.beta_grid);
                    self.each_sample(&grid, &x, |place, at, pixels| {
                        let gradient = dy.values[at];
                        for (pixel, share, slopes) in pixels {
                            if let Some(dx) = &mut dx {
                                dx.values[pixel] += work.alpha * gradient * share;
                            }
                            if let Some(dgrid) = &mut dgrid {
                                let by = work.alpha_grid * gradient * x.values[pixel];
                                dgrid.values[2 * place] += by * slopes[0];
                                dgrid.values[2 * place + 1] += by * slopes[1];
                            }
                        }
                    });
                    for (index, list) in [(place::DX, dx), (place::DGRID, dgrid)] {
                        if let Some(list) = list {
                            self.write(memory, index, &list);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
