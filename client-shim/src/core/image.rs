//! Images of GPU code that a program points to: how long they are, and what of them a device gets.

use std::ffi::c_void;

use rgpu_device::{DeviceInfo, FunctionInfo};
use rgpu_softgpu::image::{self, Accepts, ImageKind};

use super::error::{Code, Error, Result};

/// Magic number of the wrapper that nvcc puts round a fat binary.
const WRAPPER_MAGIC: u32 = 0x466243B1;

/// The wrapper itself.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    prelinked: *const c_void,
}

/// An image: the program's, at an address that stays valid, or a copy.
pub enum Image {
    /// The program's own; the address of the data, and its length.
    Kept(usize, usize),
    /// A copy.
    Copied(Vec<u8>),
}

impl Image {
    /// The image at an address, following a wrapper.
    ///
    /// # Safety
    /// `at` must point to a wrapper, a container, a cubin, or PTX text ending in NUL; it must stay valid as long as the
    /// result.
    pub unsafe fn at(at: *const u8) -> Result<Self> {
        let not_an_image = || Error::new(Code::InvalidImage, "The image is no fat binary, cubin or PTX text");
        if at.is_null() {
            return Err(Error::new(Code::InvalidValue, "The image is null"));
        }
        let mut data = at;
        // SAFETY: every kind of image has at least four bytes, PTX text ending in NUL included once its first
        // characters are not NUL; an unaligned read is allowed for.
        let is_wrapper = unsafe { starts_with(at, &WRAPPER_MAGIC.to_le_bytes()) };
        if is_wrapper {
            // SAFETY: it says that it is a wrapper.
            data = unsafe { at.cast::<Wrapper>().read_unaligned() }.data;
            if data.is_null() {
                return Err(not_an_image());
            }
        }
        // SAFETY: bytes are compared one by one, and reading stops at the first that differs.
        let (container, elf) =
            unsafe { (starts_with(data, &0xBA55_ED50u32.to_le_bytes()), starts_with(data, b"\x7fELF")) };
        let len = if container {
            // SAFETY: a container has a header of 16 bytes.
            image::size_of_container(unsafe { std::slice::from_raw_parts(data, 16) })
        } else if elf {
            // SAFETY: a 64-bit ELF file has a header of 64 bytes.
            image::size_of_cubin(unsafe { std::slice::from_raw_parts(data, 64) })
        } else {
            // SAFETY: what else it may be ends in NUL.
            Some(unsafe { libc::strlen(data.cast()) })
        };
        Ok(Self::Kept(data as usize, len.ok_or_else(not_an_image)?))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: `at`'s caller keeps the memory valid, and its length was found there.
            Self::Kept(at, len) => unsafe { std::slice::from_raw_parts(*at as *const u8, *len) },
            Self::Copied(bytes) => bytes,
        }
    }

    /// An image that no longer depends on the program's memory.
    pub fn into_copy(self) -> Self {
        Self::Copied(self.bytes().to_vec())
    }
}

/// What a device can use of an image.
pub fn for_device(bytes: &[u8], info: &DeviceInfo) -> Result<Vec<u8>> {
    let (major, minor) = info.compute_capability;
    let accepts =
        Accepts { ptx: info.accepts_ptx, cubin: info.accepts_cubin, capability: Some(major * 10 + minor) };
    if image::sniff(bytes) == Some(ImageKind::Ptx) {
        // A terminating NUL is no part of the text.
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        return image::for_device(&bytes[..end], accepts);
    }
    image::for_device(bytes, accepts)
}

/// The kernels in what [`for_device`] yields, as far as they can be told without compiling it.
pub fn sketch(bytes: &[u8], info: &DeviceInfo) -> Option<Vec<FunctionInfo>> {
    let (major, minor) = info.compute_capability;
    super::sketch::kernels(&image::ptx_for(bytes, major * 10 + minor).ok()?)
}

/// The managed variables in an image's PTX, and their sizes. What cannot be read has none that we could place.
pub fn managed(bytes: &[u8], info: &DeviceInfo) -> Vec<(String, u64)> {
    let (major, minor) = info.compute_capability;
    let Ok(text) = image::ptx_for(bytes, major * 10 + minor) else { return Vec::new() };
    if !text.contains(".managed") {
        return Vec::new();
    }
    let Ok(module) = rgpu_softgpu::ptx::parse(&text) else { return Vec::new() };
    let managed = module.variables.into_iter().filter(|v| v.managed && v.size > 0);
    managed.map(|v| (v.name, v.size)).collect()
}

/// Whether memory starts with these bytes; reads no further than the first that differs.
///
/// # Safety
/// The memory must be readable up to there.
unsafe fn starts_with(at: *const u8, bytes: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    bytes.iter().enumerate().all(|(i, b)| unsafe { at.add(i).read() } == *b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_variables_are_found() {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
            .visible .global .attribute(.managed) .align 4 .u32 shared[6];\n.visible .global .u32 other;\n";
        let info = DeviceInfo { compute_capability: (8, 0), ..DeviceInfo::default() };
        assert_eq!(managed(text.as_bytes(), &info), [("shared".to_string(), 24)]);
        assert_eq!(managed(b".version 8.0\n.managed nonsense", &info), []);
        assert_eq!(managed(b"", &info), []);
    }

    #[test]
    fn images_are_measured() {
        let text = b".version 8.0\n\0garbage";
        // SAFETY: the text ends in NUL.
        let image = unsafe { Image::at(text.as_ptr()) }.unwrap();
        assert_eq!(image.bytes(), b".version 8.0\n");

        let mut container = [0u8; 24];
        container[..4].copy_from_slice(&0xBA55_ED50u32.to_le_bytes());
        container[4] = 1;
        container[6] = 16;
        container[8] = 8;
        let wrapper = Wrapper {
            magic: WRAPPER_MAGIC,
            version: 1,
            data: container.as_ptr(),
            prelinked: std::ptr::null(),
        };
        // SAFETY: the wrapper and the container are valid.
        let image = unsafe { Image::at((&raw const wrapper).cast()) }.unwrap();
        assert_eq!(image.bytes(), &container[..]);
        // SAFETY: null is refused before it is read.
        let null = unsafe { Image::at(std::ptr::null()) };
        assert_eq!(null.err().map(|e| e.code), Some(Code::InvalidValue));
    }
}
