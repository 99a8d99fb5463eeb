//! Which algorithms there are: one, for all convolutions, which needs no workspace.

use super::super::handles::stream_of;
use super::super::{Out, Result};
use super::calls;
use super::composer::ensure;
use super::convolution::convolution;
use super::filter::filter;
use super::tensor::tensor;

/// The number of the algorithm: in all three lists the one that works for all shapes.
const ALGORITHM: u32 = 1;

/// How an algorithm does (`cudnnConvolutionFwdAlgoPerf_t` and its like).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(in super::super) struct Performance {
    algorithm: u32,
    status: u32,
    milliseconds: f32,
    workspace: usize,
    is_deterministic: u32,
    math: u32,
    reserved: [i32; 3],
}

/// The descriptors of a convolution: its form, input, filter and output.
type Shapes = (usize, usize, usize, usize);

fn check(handle: usize, (form, x, w, y): Shapes) -> Result<()> {
    stream_of(handle)?;
    convolution(form)?.check(&tensor(x)?, &filter(w)?, &tensor(y)?)
}

fn known(
    handle: usize,
    shapes: Shapes,
    wanted: i32,
    count: Out<i32>,
    results: Out<Performance>,
) -> Result<()> {
    check(handle, shapes)?;
    ensure(wanted > 0)?;
    let math = convolution(shapes.0)?.math();
    results.set(Performance {
        algorithm: ALGORITHM,
        status: 0,
        milliseconds: 0.0,
        workspace: 0,
        is_deterministic: 1,
        math,
        reserved: [0; 3],
    })?;
    count.set(1)
}

fn workspace(handle: usize, shapes: Shapes, size: Out<usize>) -> Result<()> {
    check(handle, shapes)?;
    size.set(0)
}

fn count_of(handle: usize, count: Out<i32>) -> Result<()> {
    stream_of(handle)?;
    count.set(1)
}

calls! {
    /// `cudnnGetConvolutionForwardAlgorithmMaxCount`.
    fn cudnnGetConvolutionForwardAlgorithmMaxCount(handle: usize, count: Out<i32>) {
        count_of(handle, count)
    }
    /// `cudnnGetConvolutionBackwardDataAlgorithmMaxCount`.
    fn cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle: usize, count: Out<i32>) {
        count_of(handle, count)
    }
    /// `cudnnGetConvolutionBackwardFilterAlgorithmMaxCount`.
    fn cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle: usize, count: Out<i32>) {
        count_of(handle, count)
    }
    /// `cudnnGetConvolutionForwardAlgorithm_v7`, `cudnnFindConvolutionForwardAlgorithm`.
    fn cudnnGetConvolutionForwardAlgorithm_v7(
        handle: usize, x: usize, w: usize, form: usize, y: usize, wanted: i32, count: Out<i32>, results: Out<Performance>,
    ) {
        known(handle, (form, x, w, y), wanted, count, results)
    }
    /// `cudnnGetConvolutionBackwardDataAlgorithm_v7`, `cudnnFindConvolutionBackwardDataAlgorithm`.
    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
        handle: usize, w: usize, dy: usize, form: usize, dx: usize, wanted: i32, count: Out<i32>, results: Out<Performance>,
    ) {
        known(handle, (form, dx, w, dy), wanted, count, results)
    }
    /// `cudnnGetConvolutionBackwardFilterAlgorithm_v7`, `cudnnFindConvolutionBackwardFilterAlgorithm`.
    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        handle: usize, x: usize, dy: usize, form: usize, dw: usize, wanted: i32, count: Out<i32>, results: Out<Performance>,
    ) {
        known(handle, (form, x, dw, dy), wanted, count, results)
    }
    /// `cudnnFindConvolutionForwardAlgorithmEx`.
    fn cudnnFindConvolutionForwardAlgorithmEx(
        handle: usize, x: usize, _x_data: usize, w: usize, _w_data: usize, form: usize, y: usize, _y_data: usize,
        wanted: i32, count: Out<i32>, results: Out<Performance>, _space: usize, _size: usize,
    ) {
        known(handle, (form, x, w, y), wanted, count, results)
    }
    /// `cudnnFindConvolutionBackwardDataAlgorithmEx`.
    fn cudnnFindConvolutionBackwardDataAlgorithmEx(
        handle: usize, w: usize, _w_data: usize, dy: usize, _dy_data: usize, form: usize, dx: usize, _dx_data: usize,
        wanted: i32, count: Out<i32>, results: Out<Performance>, _space: usize, _size: usize,
    ) {
        known(handle, (form, dx, w, dy), wanted, count, results)
    }
    /// `cudnnFindConvolutionBackwardFilterAlgorithmEx`.
    fn cudnnFindConvolutionBackwardFilterAlgorithmEx(
        handle: usize, x: usize, _x_data: usize, dy: usize, _dy_data: usize, form: usize, dw: usize, _dw_data: usize,
        wanted: i32, count: Out<i32>, results: Out<Performance>, _space: usize, _size: usize,
    ) {
        known(handle, (form, x, dw, dy), wanted, count, results)
    }
    /// `cudnnGetConvolutionForwardWorkspaceSize`.
    fn cudnnGetConvolutionForwardWorkspaceSize(
        handle: usize, x: usize, w: usize, form: usize, y: usize, _algorithm: u32, size: Out<usize>,
    ) {
        workspace(handle, (form, x, w, y), size)
    }
    /// `cudnnGetConvolutionBackwardDataWorkspaceSize`.
    fn cudnnGetConvolutionBackwardDataWorkspaceSize(
        handle: usize, w: usize, dy: usize, form: usize, dx: usize, _algorithm: u32, size: Out<usize>,
    ) {
        workspace(handle, (form, dx, w, dy), size)
    }
    /// `cudnnGetConvolutionBackwardFilterWorkspaceSize`.
    fn cudnnGetConvolutionBackwardFilterWorkspaceSize(
        handle: usize, x: usize, dy: usize, form: usize, dw: usize, _algorithm: u32, size: Out<usize>,
    ) {
        workspace(handle, (form, x, dw, dy), size)
    }
}
