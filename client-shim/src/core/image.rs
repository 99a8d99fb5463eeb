//! Images of GPU code that a program points to: how long they are, and what of them a device gets.

use std::borrow::Cow;
use std::ffi::c_void;

use rgpu_device::{DeviceInfo, FunctionInfo};
use rgpu_image::{self as image, Accepts, ImageKind};

use super::error::{Code, Error, Result};

/// Magic number of the wrapper that nvcc puts round a fat binary.
const WRAPPER_MAGIC: u32 = 0x466243B1;

/// The wrapper, as nvcc's host code has it in its data.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    prelinked: *const c_void,
}

/// The wrapper's version where it names the parts that its image was linked from.
const WITH_PARTS: u32 = 2;

/// An image: the program's, at an address that stays valid, or a copy.
pub(super) struct Image {
    bytes: Bytes,
    /// What it was linked from (`nvcc -rdc=true`).
    parts: Vec<Bytes>,
}

enum Bytes {
    /// The program's own; the address of the data, and its length.
    Kept(usize, usize),
    /// A copy that the image owns.
    Copied(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            // SAFETY: `Image::at`'s caller keeps the memory valid, and its length was found there.
            Self::Kept(at, len) => unsafe { std::slice::from_raw_parts(*at as *const u8, *len) },
            Self::Copied(bytes) => bytes,
        }
    }
}

impl Image {
    /// The image at an address, following a wrapper.
    ///
    /// # Safety
    /// `at` must point to a wrapper, a container, a cubin, or PTX text ending in NUL; it must stay valid as long as the
    /// result.
    pub(super) unsafe fn at(at: *const u8) -> Result<Self> {
        if at.is_null() {
            return Err(Error::new(Code::InvalidValue, "The image is null"));
        }
        // SAFETY: every kind of image has at least four bytes, PTX text ending in NUL included once its first
        // characters are not NUL; an unaligned read is allowed for.
        if !unsafe { starts_with(at, &WRAPPER_MAGIC.to_le_bytes()) } {
            // SAFETY: the caller's promise.
            return Ok(Self { bytes: unsafe { measured(at) }?, parts: Vec::new() });
        }
        // SAFETY: it says that it is a wrapper.
        let wrapper = unsafe { at.cast::<Wrapper>().read_unaligned() };
        if wrapper.data.is_null() {
            return Err(not_an_image());
        }
        let mut parts = Vec::new();
        if wrapper.version == WITH_PARTS && !wrapper.prelinked.is_null() {
            let mut next = wrapper.prelinked.cast::<*const u8>();
            // SAFETY: a wrapper of this version names an array of pointers to containers, which ends in null.
            while let part = unsafe { next.read_unaligned() }
                && !part.is_null()
            {
                // SAFETY: as above.
                unsafe {
                    parts.push(measured(part)?);
                    next = next.add(1);
                }
            }
        }
        // SAFETY: the caller's promise.
        Ok(Self { bytes: unsafe { measured(wrapper.data) }?, parts })
    }

    /// An image of bytes that were read or made.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes: Bytes::Copied(bytes), parts: Vec::new() }
    }

    /// The image itself, without the parts that it was linked from.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get()
    }

    /// What of it is to be loaded on a device: the image, or, where that has nothing for the device, the PTX of the
    /// parts that it was linked from, linked anew. Second, what is wrong with a part that had to be left out: NVIDIA's
    /// library for launches by kernels is often linked and seldom used, so that many programs do without.
    pub(super) fn loadable(&self, info: &DeviceInfo) -> Result<(Cow<'_, [u8]>, Option<Error>)> {
        let bytes = self.bytes();
        if self.parts.is_empty() || !info.accepts_ptx || for_device(bytes, info).is_ok() {
            return Ok((Cow::Borrowed(bytes), None));
        }
        let text = |part: &Bytes| image::ptx_for(&for_device(part.get(), info)?, capability(info));
        let texts = self.parts.iter().map(text);
        let (texts, useless): (Vec<_>, Vec<_>) = texts.partition(Result::is_ok);
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        let left_out = useless.into_iter().find_map(Result::err);
        match left_out {
            Some(error) if texts.is_empty() => Err(error),
            _ => Ok((Cow::Owned(image::link(&texts)?.into_bytes()), left_out)),
        }
    }

    /// Whether it is an image at all. PTX text is read, so that what is wrong with it is said when it is given, and not
    /// when something in it is asked for.
    pub(super) fn check(&self, info: &DeviceInfo) -> Result<()> {
        match image::sniff(self.bytes()) {
            None => Err(not_an_image()),
            Some(ImageKind::Container | ImageKind::Cubin) => Ok(()),
            Some(ImageKind::Ptx) => check_ptx(self.bytes(), info).map(drop),
        }
    }

    /// An image that no longer depends on the program's memory.
    pub(super) fn into_copy(self) -> Self {
        let copy = |bytes: Bytes| Bytes::Copied(bytes.get().to_vec());
        Self { bytes: copy(self.bytes), parts: self.parts.into_iter().map(copy).collect() }
    }
}

fn not_an_image() -> Error {
    Error::new(Code::InvalidImage, "The image is no fat binary, cubin or PTX text")
}

/// PTX up to its terminating NUL, as text. It is read to its end, unless the device has a compiler of its own, which may
/// know more than we do.
pub(super) fn check_ptx<'t>(bytes: &'t [u8], info: &DeviceInfo) -> Result<&'t str> {
    let invalid = |message: String| Error::new(Code::InvalidPtx, message);
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    if image::sniff(text) != Some(ImageKind::Ptx) {
        return Err(invalid("This is no PTX: there is no .version".into()));
    }
    let text = std::str::from_utf8(text).map_err(|_| invalid("The PTX is not text".into()))?;
    if !info.accepts_cubin {
        image::ptx::parse(text).map_err(|error| invalid(error.to_string()))?;
    }
    Ok(text)
}

/// Finds out how long an image is.
///
/// # Safety
/// `data` must point to a container, a cubin, or PTX text ending in NUL; it must stay valid as long as the result.
unsafe fn measured(data: *const u8) -> Result<Bytes> {
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
    Ok(Bytes::Kept(data as usize, len.ok_or_else(not_an_image)?))
}

/// A device's compute capability as one number: 80 for 8.0.
fn capability(info: &DeviceInfo) -> u32 {
    let (major, minor) = info.compute_capability;
    major * 10 + minor
}

/// What a device can use of an image.
pub(super) fn for_device(bytes: &[u8], info: &DeviceInfo) -> Result<Vec<u8>> {
    let accepts =
        Accepts { ptx: info.accepts_ptx, cubin: info.accepts_cubin, capability: Some(capability(info)) };
    if image::sniff(bytes) == Some(ImageKind::Ptx) {
        // A terminating NUL is no part of the text.
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        return image::for_device(&bytes[..end], accepts);
    }
    image::for_device(bytes, accepts)
}

/// The kernels in what [`for_device`] yields, as far as they can be told without compiling it. Nothing where the device runs machine code
/// that was made of another source than the PTX.
pub(super) fn sketch(bytes: &[u8], info: &DeviceInfo) -> Option<Vec<FunctionInfo>> {
    let capability = capability(info);
    if info.accepts_cubin && !image::is_text_of_code(bytes, capability) {
        return None;
    }
    super::sketch::kernels(&image::ptx_for(bytes, capability).ok()?)
}

/// The managed variables in an image's PTX, and their sizes. What cannot be read has none that we could place.
pub(super) fn managed(bytes: &[u8], info: &DeviceInfo) -> Vec<(String, u64)> {
    let Ok(text) = image::ptx_for(bytes, capability(info)) else { return Vec::new() };
    if !text.contains(".managed") {
        return Vec::new();
    }
    let Ok(module) = rgpu_image::ptx::parse(&text) else { return Vec::new() };
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

    /// A container with one PTX text.
    fn container(text: &str) -> Vec<u8> {
        let mut entry = vec![0u8; 64];
        entry[..2].copy_from_slice(&1u16.to_le_bytes());
        entry[4..8].copy_from_slice(&64u32.to_le_bytes());
        entry[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
        entry[26..28].copy_from_slice(&8u16.to_le_bytes());
        entry[28..32].copy_from_slice(&70u32.to_le_bytes());
        entry.extend(text.bytes());
        let mut all = 0xBA55_ED50u32.to_le_bytes().to_vec();
        all.extend(1u16.to_le_bytes());
        all.extend(16u16.to_le_bytes());
        all.extend((entry.len() as u64).to_le_bytes());
        all.extend(entry);
        all
    }

    #[test]
    fn an_image_with_nothing_usable_is_linked_anew_from_its_parts() {
        let head = ".version 8.0\n.target sm_70\n.address_size 64\n";
        let mut parts = [
            container(&format!("{head}.extern .func f ();\n.visible .entry k () {{ call f; ret; }}\n")),
            container(&format!("{head}.visible .func f () {{ ret; }}\n")),
        ];
        let empty = {
            let mut empty = 0xBA55_ED50u32.to_le_bytes().to_vec();
            empty.extend([1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            empty
        };
        let pointers = [parts[0].as_ptr(), parts[1].as_ptr(), std::ptr::null()];
        let mut wrapper = Wrapper {
            magic: WRAPPER_MAGIC,
            version: WITH_PARTS,
            data: empty.as_ptr(),
            prelinked: pointers.as_ptr().cast(),
        };
        let info = DeviceInfo { compute_capability: (8, 0), accepts_ptx: true, ..DeviceInfo::default() };
        // SAFETY: the wrapper and what it points to are valid.
        let image = || unsafe { Image::at((&raw const wrapper).cast()) }.unwrap();
        for image in [image(), image().into_copy()] {
            let (linked, left_out) = image.loadable(&info).unwrap();
            let module = rgpu_image::ptx::parse(std::str::from_utf8(&linked).unwrap()).unwrap();
            assert!(module.functions.iter().all(|f| !f.is_declaration) && module.functions.len() == 2);
            assert!(left_out.is_none());
        }
        // Parts for newer devices alone: a software GPU tries them; for another one, what is missing is said.
        let old = DeviceInfo { compute_capability: (6, 0), accepts_ptx: true, ..DeviceInfo::default() };
        assert!(image().loadable(&old).is_ok());
        let old = DeviceInfo { accepts_cubin: true, ..old };
        let info = DeviceInfo { accepts_cubin: true, ..info };
        let error = image().loadable(&old).unwrap_err();
        assert!(error.code == Code::NoBinaryForGpu && error.message.contains("sm_70"), "{}", error.message);
        // One part for newer devices: the other may be all that is needed.
        parts[1][16 + 28] = 90;
        let (first, left_out) =
            (image().loadable(&info).unwrap().0.into_owned(), image().loadable(&info).unwrap().1);
        assert!(String::from_utf8(first).unwrap().contains(".entry k"));
        assert!(left_out.is_some_and(|error| error.message.contains("sm_90")));
        parts[1][16 + 28] = 70;
        // A usable image needs no parts; an older wrapper has none.
        wrapper.data = parts[1].as_ptr();
        // SAFETY: as above.
        let whole = unsafe { Image::at((&raw const wrapper).cast()) }.unwrap();
        assert_eq!(&*whole.loadable(&info).unwrap().0, &parts[1][..]);
        wrapper.version = 1;
        // SAFETY: as above.
        assert!(unsafe { Image::at((&raw const wrapper).cast()) }.unwrap().parts.is_empty());
    }
}
