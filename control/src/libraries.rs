//! NVIDIA's libraries above the driver, and which of them `librgpu.so` stands in for: the one list that the library itself,
//! its link (symbol versions), and the directory of links that `rgpu run` makes are built from.
//!
//! This file depends on nothing, because the build script of the library includes it, too.

/// When `librgpu.so` stands in for a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandsIn {
    /// For every device: the library cannot work over a forwarded driver.
    Always,
    /// Where the program's device is a software GPU, which takes PTX where the library would make machine code. With an
    /// NVIDIA device the library does its work itself.
    ForSoftware,
    /// As [`Self::ForSoftware`], but for a few functions of the library, which does the rest itself.
    InPartForSoftware,
    /// Not yet.
    Never,
}

/// A library of NVIDIA's.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// What it is called in documents and in the source tree.
    pub name: &'static str,
    /// The names of its files, which are the names of their symbols' versions, too, and the version of CUDA that each belongs
    /// to, such as 12000.
    pub files: &'static [(&'static str, u32)],
    /// When `librgpu.so` stands in for it.
    pub stands_in: StandsIn,
}

const fn library(name: &'static str, files: &'static [(&'static str, u32)], stands_in: StandsIn) -> Library {
    Library { name, files, stands_in }
}

/// The libraries.
pub const LIBRARIES: [Library; 10] = [
    library(
        "nvjitlink",
        &[("libnvJitLink.so.12", 12000), ("libnvJitLink.so.13", 13000)],
        StandsIn::ForSoftware,
    ),
    library("nvrtc", &[("libnvrtc.so.12", 12000), ("libnvrtc.so.13", 13000)], StandsIn::InPartForSoftware),
    library("cublas", &[("libcublas.so.12", 12000), ("libcublas.so.13", 13000)], StandsIn::Always),
    library("cublaslt", &[("libcublasLt.so.12", 12000), ("libcublasLt.so.13", 13000)], StandsIn::Always),
    library("cufft", &[("libcufft.so.11", 12000), ("libcufft.so.12", 13000)], StandsIn::Always),
    library("curand", &[("libcurand.so.10", 12000)], StandsIn::Always),
    library("cusolver", &[("libcusolver.so.11", 12000), ("libcusolver.so.12", 13000)], StandsIn::Always),
    library("cusparse", &[("libcusparse.so.12", 12000)], StandsIn::Always),
    library("cudnn", &[("libcudnn.so.9", 12000)], StandsIn::Always),
    library("nccl", &[("libnccl.so.2", 12000)], StandsIn::Always),
];

/// The names of the files that `librgpu.so` can be loaded instead of in such a case.
pub fn files(stands_in: StandsIn) -> impl Iterator<Item = &'static str> {
    let libraries = LIBRARIES.iter().filter(move |library| library.stands_in == stands_in);
    libraries.flat_map(|library| library.files.iter().map(|(file, _)| *file))
}

/// The names under which programs look for what `librgpu.so` replaces on every machine: CUDA's runtime and driver, NVML, and
/// [libraries](StandsIn::Always).
pub fn links() -> impl Iterator<Item = &'static str> {
    let own = ["libcudart.so.12", "libcudart.so.13", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];
    own.into_iter().chain(files(StandsIn::Always))
}

/// The library with a file of this name, and the version of CUDA that the file belongs to.
pub fn of_file(file: &[u8]) -> Option<(&'static Library, u32)> {
    LIBRARIES.iter().find_map(|library| {
        let (_, version) = library.files.iter().find(|(name, _)| name.as_bytes() == file)?;
        Some((library, *version))
    })
}
