//! Copies of matrices in another layout, type or scale.

use std::ffi::c_void;

use rgpu_libraries::{AddMatrices, Arguments, DataType, Matrix, Scalar, Transpose};

use super::descriptors::{Layout, Transform, read};
use super::library::enter;
use crate::abi::c_functions;
use crate::libraries::cublas::status::{Result, guard, invalid, unsupported};
use crate::libraries::cublas::types::{data_type, operation, parts_at};

fn matrix(layout: &Layout, addr: u64) -> Result<Matrix> {
    if layout.order > 1 || layout.batch_mode != 0 || layout.plane != 0 {
        return unsupported(
            "cuBLASLt's transform of matrices that do not lie row by row or column by column",
        );
    }
    let line = if layout.order == 1 { layout.columns } else { layout.rows };
    match u64::try_from(layout.ld) {
        Ok(ld) if ld >= line => Ok(Matrix { addr, kind: data_type(layout.kind)?, ld, stride: layout.stride }),
        _ => invalid(format!(
            "the leading dimension {} of a matrix whose lines have {line} elements",
            layout.ld
        )),
    }
}

/// How a matrix is used for a result whose order is another one.
fn op_of(number: u32, layout: &Layout, result: &Layout) -> Result<Transpose> {
    let op = operation(number)?;
    if layout.order == result.order {
        return Ok(op);
    }
    Ok(match op {
        Transpose::None => Transpose::Transposed,
        Transpose::Transposed => Transpose::None,
        Transpose::Adjoint => Transpose::Conjugated,
        Transpose::Conjugated => Transpose::Adjoint,
    })
}

fn factor(mode: u32, place: *const c_void, kind: DataType) -> Result<Scalar> {
    if place.is_null() {
        return Ok(Scalar::default());
    }
    match mode {
        0 => {
            // SAFETY: the program says that a number of this type lies there.
            let [re, im] = unsafe { parts_at(place.cast(), kind) };
            Ok(Scalar::complex(re, im))
        }
        1 => Ok(Scalar::device(place as u64)),
        other => unsupported(&format!("cuBLASLt's pointer mode {other} of a transform")),
    }
}

c_functions! {
    /// `cublasLtMatrixTransform`
    fn matrix_transform(
        handle: usize, transform: *const Transform, alpha: *const c_void, a: u64, a_layout: *const Layout,
        beta: *const c_void, b: u64, b_layout: *const Layout, c: u64, c_layout: *const Layout, stream: usize,
    ) -> u32 {
        guard("cublasLtMatrixTransform", move || {
            let (core, context) = enter(handle)?;
            let transform = read(transform)?;
            let result = read(c_layout)?;
            let scalar = data_type(transform.scale)?;
            let mut work = AddMatrices { scalar, c: matrix(&result, c)?, count: result.count.max(0) as u64, ..AddMatrices::default() };
            (work.m, work.n) = if result.order == 1 { (result.columns, result.rows) } else { (result.rows, result.columns) };
            let check = |layout: &Layout, number: u32| {
                let turned = matches!(operation(number)?, Transpose::Transposed | Transpose::Adjoint);
                let shape = if turned { (layout.columns, layout.rows) } else { (layout.rows, layout.columns) };
                if shape != (result.rows, result.columns) || layout.count != result.count {
                    return invalid("a transform of a matrix of another shape");
                }
                Ok(())
            };
            if !alpha.is_null() && a != 0 {
                let layout = read(a_layout)?;
                check(&layout, transform.op_a)?;
                work.op_a = op_of(transform.op_a, &layout, &result)?;
                (work.alpha, work.a) = (factor(transform.pointer_mode, alpha, scalar)?, matrix(&layout, a)?);
            }
            if !beta.is_null() && b != 0 {
                let layout = read(b_layout)?;
                check(&layout, transform.op_b)?;
                work.op_b = op_of(transform.op_b, &layout, &result)?;
                (work.beta, work.b) = (factor(transform.pointer_mode, beta, scalar)?, matrix(&layout, b)?);
            }
            work.compute = match scalar {
                DataType::F16 | DataType::Bf16 => DataType::F32,
                DataType::I32 => DataType::F64,
                other => other,
            };
            if work.m == 0 || work.n == 0 {
                return Ok(());
            }
            let stream = core.stream(&context, stream, false)?;
            let (operation, params) = work.written();
            Ok(core.compute(&stream, operation, &params)?)
        })
    }
}
