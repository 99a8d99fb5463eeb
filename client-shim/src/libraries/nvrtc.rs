//! NVRTC, which compiles CUDA C++ when the program runs. It does so without a GPU, and for an architecture such as sm_80 makes
//! both PTX and machine code. For a software GPU the functions that give the machine code give the PTX instead, with the NUL
//! that ends an image of text. Both pairs of functions have the same arguments, so the loader makes each of the one begin with a
//! jump to its counterpart in the same file.

/// The functions that are replaced, and by which others of the library.
const INSTEAD: [(&[u8], &[u8]); 2] =
    [(b"nvrtcGetCUBIN", b"nvrtcGetPTX"), (b"nvrtcGetCUBINSize", b"nvrtcGetPTXSize")];

/// The library's name in the list of libraries.
pub(crate) const NAME: &str = "nvrtc";

/// The function of NVRTC's that answers instead of another of its functions.
pub(crate) fn instead_of(function: &[u8]) -> Option<&'static [u8]> {
    INSTEAD.iter().find(|(name, _)| *name == function).map(|(_, instead)| *instead)
}
