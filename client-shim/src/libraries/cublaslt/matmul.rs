//! Products.

use std::ffi::c_void;

use rgpu_libraries::{
    Activation, Arguments, BiasGradient, DataType, Matmul, Matrix, Scalar, Transpose, Vector,
};

use super::descriptors::{Algorithm, Layout, Product, read};
use super::library::enter;
use crate::abi::c_functions;
use crate::core::error::say_once;
use crate::libraries::cublas::status::{Result, guard, invalid, unsupported};
use crate::libraries::cublas::types::{compute_type, data_type, is_complex, operation, parts_at};

/// `CUBLASLT_ORDER_ROW`.
const ROW: u32 = 1;

/// Bits of an epilogue.
mod epilogue {
    pub(super) const RELU: u32 = 2;
    pub(super) const BIAS: u32 = 4;
    pub(super) const DRELU: u32 = 8;
    pub(super) const BGRAD: u32 = 16;
    pub(super) const GELU: u32 = 32;
    pub(super) const DGELU: u32 = 64;
    pub(super) const AUX: u32 = 128;
    pub(super) const BGRAD_A: u32 = 256;
    pub(super) const BGRAD_B: u32 = 512;
}

/// The form of a product, without its factors and addresses.
pub(super) struct Form {
    matmul: Matmul,
    /// Whether A and B have changed places, because the result lies row by row.
    swapped: bool,
}

/// The matrix of a layout, as if it lay column by column; and whether that is its transpose.
fn matrix(layout: &Layout, name: &str) -> Result<(Matrix, bool)> {
    if layout.order > ROW {
        return unsupported(&format!("cuBLASLt's order {} of a matrix", layout.order));
    }
    if layout.batch_mode != 0 {
        return unsupported("cuBLASLt's batches by arrays of pointers");
    }
    if layout.plane != 0 {
        return unsupported("cuBLASLt's matrices with real and imaginary parts apart");
    }
    let is_row = layout.order == ROW;
    let line = if is_row { layout.columns } else { layout.rows };
    let Some(ld) = u64::try_from(layout.ld).ok().filter(|ld| *ld >= line) else {
        return invalid(format!(
            "the leading dimension {} of {name}, whose lines have {line} elements",
            layout.ld
        ));
    };
    if layout.count < 1 {
        return invalid(format!("a batch of {} matrices", layout.count));
    }
    Ok((Matrix { addr: 0, kind: data_type(layout.kind)?, ld, stride: layout.stride }, is_row))
}

/// The use of the transpose of what was to be used like this.
fn transposed(op: Transpose) -> Transpose {
    match op {
        Transpose::None => Transpose::Transposed,
        Transpose::Transposed => Transpose::None,
        Transpose::Adjoint => Transpose::Conjugated,
        Transpose::Conjugated => Transpose::Adjoint,
    }
}

/// Whether matrices of these types can be multiplied.
fn check_types(m: &Matmul) -> Result<()> {
    use DataType::{Bf16, C32, C64, F16, F32, F64, I8, I32};
    let narrow = |kind| matches!(kind, F32 | F16 | Bf16 | I8);
    let known = match m.compute {
        F32 => narrow(m.a.kind) && narrow(m.d.kind) && narrow(m.c.kind),
        F16 => [m.a.kind, m.c.kind, m.d.kind] == [F16; 3],
        F64 | C64 => [m.a.kind, m.c.kind, m.d.kind] == [m.compute; 3],
        C32 => [m.a.kind, m.c.kind, m.d.kind] == [C32; 3],
        I32 => m.a.kind == I8 && matches!(m.d.kind, I32 | I8 | F32),
        _ => false,
    };
    let _ = C64;
    if known && m.a.kind == m.b.kind {
        return Ok(());
    }
    unsupported(&format!(
        "cuBLASLt's product of {:?} and {:?} into {:?}, summed in {:?},",
        m.a.kind, m.b.kind, m.d.kind, m.compute
    ))
}

fn epilogue_of(product: &Product, m: &mut Matmul) -> Result<()> {
    use epilogue::{AUX, BGRAD, BGRAD_A, BGRAD_B, BIAS, DGELU, DRELU, GELU, RELU};
    let bits = product.epilogue;
    m.activation = match bits & (RELU | GELU | DRELU | DGELU) {
        0 => Activation::None,
        RELU => Activation::Relu,
        GELU => Activation::Gelu,
        DRELU if bits & AUX != 0 => Activation::ReluGradient,
        DGELU if bits & AUX != 0 => Activation::GeluGradient,
        _ => return invalid(format!("{bits} is no cublasLtEpilogue_t")),
    };
    m.gradient = match bits & (BGRAD | BGRAD_A | BGRAD_B) {
        0 => BiasGradient::None,
        BGRAD => BiasGradient::OfResult,
        BGRAD_A => BiasGradient::OfA,
        BGRAD_B => BiasGradient::OfB,
        _ => return invalid(format!("{bits} is no cublasLtEpilogue_t")),
    };
    if bits >> 10 != 0 || (bits & BIAS != 0 && m.gradient != BiasGradient::None) {
        return invalid(format!("{bits} is no cublasLtEpilogue_t"));
    }
    let kind = |number: i32| if number < 0 { Ok(m.d.kind) } else { data_type(number as u32) };
    if bits & (BIAS | BGRAD | BGRAD_A | BGRAD_B) != 0 {
        m.bias = Vector {
            addr: product.bias,
            kind: kind(product.bias_kind)?,
            inc: 1,
            stride: product.bias_stride,
        };
    }
    if bits & AUX != 0 {
        let Ok(ld) = u64::try_from(product.aux_ld) else {
            return invalid("the leading dimension of what an epilogue keeps is negative");
        };
        m.kept = Matrix { addr: product.aux, kind: kind(product.aux_kind)?, ld, stride: product.aux_stride };
    }
    Ok(())
}

impl Form {
    /// What descriptors say, checked.
    pub(super) fn of(product: &Product, [a, b, c, d]: [&Layout; 4]) -> Result<Self> {
        for (pointer, what) in [
            (product.scale_a, "A_SCALE_POINTER"),
            (product.scale_b, "B_SCALE_POINTER"),
            (product.scale_c, "C_SCALE_POINTER"),
            (product.scale_d, "D_SCALE_POINTER"),
            (product.amax, "AMAX_D_POINTER"),
            (product.aux_scale, "EPILOGUE_AUX_SCALE_POINTER"),
            (product.aux_amax, "EPILOGUE_AUX_AMAX_POINTER"),
        ] {
            if pointer != 0 {
                return unsupported(&format!("cuBLASLt's CUBLASLT_MATMUL_DESC_{what}"));
            }
        }
        if product.fill != 2 {
            return unsupported("cuBLASLt's products of which one triangle is stored");
        }
        if product.op_c != 0 {
            return unsupported("cuBLASLt's CUBLASLT_MATMUL_DESC_TRANSC");
        }
        let (op_a, op_b) = (operation(product.op_a)?, operation(product.op_b)?);
        let turned = |op| matches!(op, Transpose::Transposed | Transpose::Adjoint);
        let shape = |op, of: &Layout| if turned(op) { (of.columns, of.rows) } else { (of.rows, of.columns) };
        let ((m, k), (k_b, n)) = (shape(op_a, a), shape(op_b, b));
        if k != k_b || (d.rows, d.columns) != (m, n) || (c.rows, c.columns) != (m, n) {
            return invalid(format!(
                "a product of {m} × {k} and {k_b} × {n} with C of {} × {} into {} × {}",
                c.rows, c.columns, d.rows, d.columns
            ));
        }
        if [a.count, b.count, c.count].iter().any(|count| *count != d.count) {
            return invalid("batches of different lengths");
        }
        let ((matrix_a, a_rows), (matrix_b, b_rows)) = (matrix(a, "A")?, matrix(b, "B")?);
        let ((matrix_c, c_rows), (matrix_d, d_rows)) = (matrix(c, "C")?, matrix(d, "D")?);
        if c_rows != d_rows {
            return unsupported("cuBLASLt's products whose C and D lie in different orders");
        }
        let op_a = if a_rows { transposed(op_a) } else { op_a };
        let op_b = if b_rows { transposed(op_b) } else { op_b };
        let mut matmul = Matmul {
            op_a,
            op_b,
            m,
            n,
            k,
            compute: compute_type(product.compute, is_complex(matrix_a.kind))?,
            a: matrix_a,
            b: matrix_b,
            c: matrix_c,
            d: matrix_d,
            scalar: data_type(product.scale)?,
            count: d.count as u64,
            ..Matmul::default()
        };
        check_types(&matmul)?;
        epilogue_of(product, &mut matmul)?;
        if d_rows {
            // D' = op(B)' op(A)', whose columns are D's rows.
            std::mem::swap(&mut matmul.a, &mut matmul.b);
            (matmul.op_a, matmul.op_b) = (transposed(matmul.op_b), transposed(matmul.op_a));
            (matmul.m, matmul.n) = (n, m);
            matmul.by_column = true;
            matmul.gradient = match matmul.gradient {
                BiasGradient::OfA => BiasGradient::OfB,
                BiasGradient::OfB => BiasGradient::OfA,
                other => other,
            };
        }
        Ok(Self { matmul, swapped: d_rows })
    }

    fn factors(&mut self, pointer_mode: u32, alpha: *const c_void, beta: *const c_void) -> Result<()> {
        let kind = self.matmul.scalar;
        let host = |place: *const c_void| {
            if place.is_null() {
                return invalid("a factor's pointer is null");
            }
            // SAFETY: the program says that a number of this type lies there.
            let [re, im] = unsafe { parts_at(place.cast(), kind) };
            Ok(Scalar::complex(re, im))
        };
        if alpha.is_null() {
            return invalid("alpha is null");
        }
        let m = &mut self.matmul;
        match pointer_mode {
            0 => (m.alpha, m.beta) = (host(alpha)?, host(beta)?),
            1 if beta.is_null() => return invalid("beta is null"),
            1 => (m.alpha, m.beta) = (Scalar::device(alpha as u64), Scalar::device(beta as u64)),
            3 => m.alpha_vector = alpha as u64,
            4 => {
                m.alpha_vector = alpha as u64;
                m.beta = host(beta)?;
            }
            other => return unsupported(&format!("cuBLASLt's pointer mode {other}")),
        }
        Ok(())
    }
}

/// Without its own products of matrices, which `rgpu run` turns off, XLA makes of `2 * (a @ b + bias)` the product with the factor 2 and the bias:
/// but a bias is added behind the factor. The same call is right for `2 * (a @ b) + bias`, so all that can be done here is to say so.
fn warn_of_xla(m: &Matmul, epilogue: u32) {
    if epilogue & epilogue::BIAS == 0
        || m.alpha == Scalar::real(1.0)
        || m.alpha.addr != 0
        || m.alpha_vector != 0
    {
        return;
    }
    let turned_off =
        std::env::var("XLA_FLAGS").is_ok_and(|flags| flags.contains("xla_gpu_enable_triton_gemm=false"));
    if turned_off {
        say_once(
            "XLA has put a factor and a bias into one product of matrices. If the program multiplies the sum with the bias, and not the product alone, \
             XLA's result is wrong (a fault of XLA's). XLA_FLAGS=--xla_gpu_enable_triton_gemm=true computes it right, and more slowly",
        );
    }
}

c_functions! {
    /// `cublasLtMatmul`
    #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
    fn matmul(
        handle: usize, product: *const Product, alpha: *const c_void,
        a: u64, a_layout: *const Layout, b: u64, b_layout: *const Layout, beta: *const c_void,
        c: u64, c_layout: *const Layout, d: u64, d_layout: *const Layout,
        algorithm: *const Algorithm, _workspace: *mut c_void, _bytes: usize, stream: usize,
    ) -> u32 {
        guard("cublasLtMatmul", move || {
            let (core, context) = enter(handle)?;
            let product = read(product)?;
            if !algorithm.is_null() {
                read(algorithm)?;
            }
            let layouts = [read(a_layout)?, read(b_layout)?, read(c_layout)?, read(d_layout)?];
            let mut form = Form::of(&product, [&layouts[0], &layouts[1], &layouts[2], &layouts[3]])?;
            form.factors(product.pointer_mode, alpha, beta)?;
            warn_of_xla(&form.matmul, product.epilogue);
            let swapped = form.swapped;
            let m = &mut form.matmul;
            (m.a.addr, m.b.addr) = if swapped { (b, a) } else { (a, b) };
            (m.c.addr, m.d.addr) = (c, d);
            if m.m == 0 || m.n == 0 {
                return Ok(());
            }
            let stream = core.stream(&context, stream, false)?;
            let (operation, params) = m.written();
            Ok(core.compute(&stream, operation, &params)?)
        })
    }
}
