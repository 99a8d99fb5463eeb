//! Which algorithms there are: one, for everything that can be computed. Nobody is asked for it.

use std::ffi::c_int;

use super::descriptors::{self, Algorithm, Descriptor, Layout, Preference, Product, read};
use super::library::enter;
use super::matmul::Form;
use crate::abi::c_functions;
use crate::libraries::cublas::status::{In, Out, Result, guard, invalid};
use crate::libraries::cublas::types::{compute_type, data_type, is_complex};

/// `cublasLtMatmulAlgo_t`: an algorithm with room behind it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Place {
    algorithm: Algorithm,
    room: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Found {
    algorithm: Place,
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Found>() == 96 && size_of::<Place>() == 64);

fn found() -> Found {
    let mut algorithm = Place { room: [0; 8] };
    algorithm.algorithm = Algorithm::only();
    Found { algorithm, workspace: 0, state: 0, waves: 1.0, reserved: [0; 4] }
}

fn form(product: *const Product, layouts: [*const Layout; 4]) -> Result<Form> {
    let [a, b, c, d] = layouts.map(read);
    Form::of(&read(product)?, [&a?, &b?, &c?, &d?])
}

/// The epilogues that there are, as a mask of their bits.
const EPILOGUES: u32 = 0x3ff;

/// An attribute that says what an algorithm can do.
fn capability(attribute: u32) -> Option<Vec<u8>> {
    Some(match attribute {
        // Splitting, swizzling, triangles, negative leading dimensions, emulation, pointer arrays, groups: no.
        0 | 2 | 5 | 14 | 21 | 22 | 23 => 0i32.to_ne_bytes().to_vec(),
        // Batches one behind the other, and results elsewhere than in C: yes.
        3 | 4 => 1i32.to_ne_bytes().to_vec(),
        1 => 0u32.to_ne_bytes().to_vec(),
        // Tiles and stages: the one that is none.
        6 | 13 => 0u32.to_ne_bytes().to_vec(),
        7 => 0i32.to_ne_bytes().to_vec(),
        // Orders: any of rows and columns.
        10 => 1i32.to_ne_bytes().to_vec(),
        // Pointer modes: the host, the device, and a vector for alpha.
        11 => (1u32 | 2 | 8 | 16).to_ne_bytes().to_vec(),
        12 => EPILOGUES.to_ne_bytes().to_vec(),
        15 => 0u64.to_ne_bytes().to_vec(),
        // Alignments.
        16..=19 => 1u32.to_ne_bytes().to_vec(),
        _ => return None,
    })
}

c_functions! {
    /// `cublasLtMatmulAlgoGetHeuristic`
    #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
    fn get_heuristic(
        handle: usize, product: *const Product, a: *const Layout, b: *const Layout, c: *const Layout, d: *const Layout,
        preference: *const Preference, wanted: c_int, results: Out<Found>, count: Out<c_int>,
    ) -> u32 {
        guard("cublasLtMatmulAlgoGetHeuristic", move || {
            enter(handle)?;
            count.set(0)?;
            read(preference)?;
            if wanted < 1 {
                return invalid(format!("{wanted} algorithms are wanted"));
            }
            form(product, [a, b, c, d])?;
            results.set(found())?;
            count.set(1)
        })
    }

    /// `cublasLtMatmulAlgoGetIds`
    #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
    fn get_ids(
        handle: usize, compute: u32, scale: u32, a: u32, b: u32, c: u32, d: u32,
        wanted: c_int, ids: Out<c_int>, count: Out<c_int>,
    ) -> u32 {
        guard("cublasLtMatmulAlgoGetIds", move || {
            enter(handle)?;
            if wanted < 1 {
                return invalid(format!("{wanted} algorithms are wanted"));
            }
            check_types(compute, [scale, a, b, c, d])?;
            ids.set(0)?;
            count.set_if_wanted(1);
            Ok(())
        })
    }

    /// `cublasLtMatmulAlgoInit`
    #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
    fn init(
        handle: usize, compute: u32, scale: u32, a: u32, b: u32, c: u32, d: u32, id: c_int, algorithm: Out<Place>,
    ) -> u32 {
        guard("cublasLtMatmulAlgoInit", move || {
            enter(handle)?;
            check_types(compute, [scale, a, b, c, d])?;
            if id != 0 {
                return invalid(format!("there is no algorithm {id}"));
            }
            algorithm.set(found().algorithm)
        })
    }

    /// `cublasLtMatmulAlgoCheck`
    #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
    fn check(
        handle: usize, product: *const Product, a: *const Layout, b: *const Layout, c: *const Layout, d: *const Layout,
        algorithm: *const Algorithm, result: Out<Found>,
    ) -> u32 {
        guard("cublasLtMatmulAlgoCheck", move || {
            enter(handle)?;
            read(algorithm)?;
            form(product, [a, b, c, d])?;
            result.set(found())
        })
    }

    /// `cublasLtMatmulAlgoCapGetAttribute`
    fn capability_get(
        algorithm: *const Algorithm, attribute: u32, value: Out<u8>, size: usize, written: Out<usize>,
    ) -> u32 {
        guard("cublasLtMatmulAlgoCapGetAttribute", move || {
            read(algorithm)?;
            let Some(bytes) = capability(attribute) else {
                return invalid(format!("an {} has no capability {attribute}", Algorithm::WHAT));
            };
            if size == 0 {
                return written.set(bytes.len());
            }
            value.check()?;
            if size < bytes.len() {
                return invalid(format!("capability {attribute} has {} bytes, not {size}", bytes.len()));
            }
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: the program has room for so many.
                unsafe { value.at(i) }.set(*byte)?;
            }
            written.set_if_wanted(bytes.len());
            Ok(())
        })
    }

    /// `cublasLtMatmulAlgoConfigSetAttribute`: kept, and of no consequence.
    fn config_set(algorithm: *mut Algorithm, attribute: u32, value: In<u8>, size: usize) -> u32 {
        guard("cublasLtMatmulAlgoConfigSetAttribute", move || descriptors::set(algorithm, attribute, value, size))
    }

    /// `cublasLtMatmulAlgoConfigGetAttribute`
    fn config_get(
        algorithm: *const Algorithm, attribute: u32, value: Out<u8>, size: usize, written: Out<usize>,
    ) -> u32 {
        guard("cublasLtMatmulAlgoConfigGetAttribute", move || {
            descriptors::get(algorithm, attribute, value, size, written)
        })
    }
}

fn check_types(compute: u32, [scale, a, b, c, d]: [u32; 5]) -> Result<()> {
    compute_type(compute, is_complex(data_type(a)?))?;
    for number in [scale, b, c, d] {
        data_type(number)?;
    }
    Ok(())
}
