//! Texture and surface objects: what a program says of one, and the header that the software GPU finds in memory
//! ([`rgpu_device::texture`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rgpu_device::attribute;
use rgpu_device::texture::{
    AddressMode, ChannelKind, Level, TexelFormat, TextureFlags, TextureHeader, TextureKind,
};

use super::array;
use super::error::{Code, Error, Result, invalid, not_implemented};
use super::registry::Raw;

/// What an object is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// An array.
    Array(Raw),
    /// One with mipmap levels.
    Mipmapped(Raw),
    /// Linear memory: so many bytes.
    Linear { addr: u64, format: TexelFormat, bytes: u64 },
    /// A plane in linear memory, in texels, and the bytes from one row to the next.
    Plane { addr: u64, format: TexelFormat, width: usize, height: usize, pitch: usize },
}

/// How a texture is read, as the driver's header has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TextureDesc {
    /// `CUaddress_mode` in each direction.
    pub(crate) address: [u32; 3],
    /// `CUfilter_mode`: 0 the nearest texel, 1 linear.
    pub(crate) filter: u32,
    /// [`READ_AS_INTEGER`] and its like.
    pub(crate) flags: u32,
    /// At most so many samples along a gradient; one is taken.
    pub(crate) max_anisotropy: u32,
    /// The filter between levels.
    pub(crate) level_filter: u32,
    /// Added to levels.
    pub(crate) level_bias: f32,
    /// The lowest level.
    pub(crate) level_low: f32,
    /// The highest level.
    pub(crate) level_high: f32,
    /// What is outside in the mode for borders.
    pub(crate) border: [f32; 4],
    /// Nothing.
    pub(crate) reserved: [i32; 12],
}

/// `CU_TRSF_READ_AS_INTEGER`
pub(crate) const READ_AS_INTEGER: u32 = 0x01;
/// `CU_TRSF_NORMALIZED_COORDINATES`
pub(crate) const NORMALIZED: u32 = 0x02;
/// `CU_TRSF_SRGB`
pub(crate) const SRGB: u32 = 0x10;
/// `CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION`
pub(crate) const NO_TRILINEAR_OPTIMIZATION: u32 = 0x20;
/// `CU_TRSF_SEAMLESS_CUBEMAP`
pub(crate) const SEAMLESS: u32 = 0x40;

/// A part of an array, or its texels as others, as both headers have it; there may be words behind it that are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ViewDesc {
    /// `CUresourceViewFormat`
    pub(crate) format: u32,
    /// In texels.
    pub(crate) width: usize,
    /// In texels.
    pub(crate) height: usize,
    /// In texels.
    pub(crate) depth: usize,
    /// The first level.
    pub(crate) first_level: u32,
    /// The last one.
    pub(crate) last_level: u32,
    /// The first layer.
    pub(crate) first_layer: u32,
    /// The last one.
    pub(crate) last_layer: u32,
}

/// A living object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Object {
    /// What it is made of.
    pub(crate) resource: Resource,
    /// How it is read; a surface has none.
    pub(crate) texture: Option<TextureDesc>,
    /// What it shows of an array.
    pub(crate) view: Option<ViewDesc>,
}

/// The living objects, by their handles.
static OBJECTS: LazyLock<Mutex<HashMap<u64, Arc<Object>>>> = LazyLock::new(Mutex::default);

/// The handles of objects that have been destroyed, of either kind.
static DESTROYED: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Keeps what a program said of the object with this handle.
pub(super) fn insert(handle: u64, object: Object) {
    OBJECTS.lock().insert(handle, Arc::new(object));
}

/// Takes an object out; it has to be a surface, or a texture. False for one that has been destroyed before: devices say nothing to that, and programs
/// whose objects are copied and destroyed with each copy (COLMAP's SiftGPU) count on it.
pub(super) fn remove(handle: u64, surface: bool) -> Result<bool> {
    let found = get(handle, surface);
    if found.is_err() && !OBJECTS.lock().contains_key(&handle) && DESTROYED.lock().contains(&handle) {
        return Ok(false);
    }
    found?;
    OBJECTS.lock().remove(&handle);
    DESTROYED.lock().insert(handle);
    Ok(true)
}

/// A living texture or surface.
pub(crate) fn get(handle: u64, surface: bool) -> Result<Arc<Object>> {
    let found = OBJECTS.lock().get(&handle).cloned();
    found.filter(|object| object.texture.is_none() == surface).ok_or_else(|| {
        let what = if surface { "surface" } else { "texture" };
        invalid(format!("{handle:#x} is no living {what} object"))
    })
}

/// The texels that a view's format names.
fn viewed(format: u32) -> Result<TexelFormat> {
    let kinds = [
        (ChannelKind::Unsigned, 8),
        (ChannelKind::Signed, 8),
        (ChannelKind::Unsigned, 16),
        (ChannelKind::Signed, 16),
        (ChannelKind::Unsigned, 32),
        (ChannelKind::Signed, 32),
        (ChannelKind::Float, 16),
        (ChannelKind::Float, 32),
    ];
    let number = format.wrapping_sub(1) as usize;
    let Some(&(kind, bits)) = kinds.get(number / 3) else {
        return Err(not_implemented("a view of block-compressed texels"));
    };
    TexelFormat::new(kind, bits, [1, 2, 4][number % 3]).ok_or_else(|| invalid("no such format of a view"))
}

/// Shows a part of an array.
fn show(header: &mut TextureHeader, view: &ViewDesc) -> Result<()> {
    if view.format != 0 {
        let format = viewed(view.format)?;
        if format.bytes() != header.format.bytes() {
            return Err(invalid("a view's texels have another size than the array's"));
        }
        header.format = format;
    }
    let layers = header.kind.has_layers();
    let given = [view.width, view.height, view.depth];
    let differs = |d: usize| given[d] != 0 && given[d] != header.size[d] as usize;
    if differs(0) || differs(1) || !layers && differs(2) {
        return Err(invalid("a view has another size than its array"));
    }
    if view.first_level > view.last_level || view.last_level >= header.levels {
        return Err(invalid("a view's mipmap levels are not the array's"));
    }
    if layers && (view.first_layer, view.last_layer) != (0, 0) {
        if view.first_layer > view.last_layer || view.last_layer >= header.size[2] {
            return Err(invalid("a view's layers are not the array's"));
        }
        let count = view.last_layer - view.first_layer + 1;
        if header.levels > 1 && count != header.size[2] {
            return Err(not_implemented("a view of some layers of an array with mipmap levels"));
        }
        if matches!(header.kind, TextureKind::Cube | TextureKind::Cubes) && !count.is_multiple_of(6) {
            return Err(invalid("a view of a cube has all its faces"));
        }
        header.base += u64::from(view.first_layer) * header.slice_pitch;
        header.size[2] = count;
    }
    let first = header.level(view.first_level).ok_or_else(|| invalid("no such mipmap level"))?;
    header.base += first.offset;
    (header.row_pitch, header.slice_pitch, header.size) = (first.row_pitch, first.slice_pitch, first.size);
    header.levels = view.last_level - view.first_level + 1;
    Ok(())
}

/// The header of an object, if such a one can be made on a device with these attributes.
pub(super) fn header(object: &Object, of_device: &dyn Fn(u32) -> i32) -> Result<TextureHeader> {
    let array_header = |array: &array::Array, levels: usize| {
        let (kind, format) = (array.shape.kind(), array.shape.format);
        let Level { size, row_pitch, slice_pitch, .. } = array.level;
        let first = TextureHeader::plain(kind, format, array.addr, size, [row_pitch, slice_pitch]);
        TextureHeader { levels: levels as u32, ..first }
    };
    let within = |value: u64, number: u32| {
        let most = of_device(number).max(0) as u64;
        most == 0 || value <= most
    };
    let aligned = |value: u64, number: u32| value.is_multiple_of(of_device(number).max(1) as u64);
    let plain = |addr: u64, format: TexelFormat, kind: TextureKind, size: [u32; 3], pitch: u64| {
        let pitches = [pitch, pitch.saturating_mul(u64::from(size[1]))];
        TextureHeader::plain(kind, format, addr, size, pitches)
    };
    let mut header = match object.resource {
        Resource::Array(raw) => array_header(&*array::array(raw)?, 1),
        Resource::Mipmapped(raw) => {
            let all = array::mipmapped(raw)?;
            let first = all.levels.first().ok_or_else(|| invalid("an array without levels"))?;
            array_header(first, all.levels.len())
        }
        Resource::Linear { addr, format, bytes } => {
            if addr == 0 || !aligned(addr, attribute::TEXTURE_ALIGNMENT) {
                return Err(invalid("a texture's memory does not begin where the device wants it"));
            }
            let texels = bytes / u64::from(format.bytes());
            if texels == 0 || !within(texels, attribute::MAXIMUM_TEXTURE1D_LINEAR_WIDTH) {
                return Err(invalid("linear memory is too small or too large for a texture"));
            }
            plain(addr, format, TextureKind::Linear, [texels as u32, 0, 0], bytes)
        }
        Resource::Plane { addr, format, width, height, pitch } => {
            if addr == 0
                || !aligned(addr, attribute::TEXTURE_ALIGNMENT)
                || !aligned(pitch as u64, attribute::TEXTURE_PITCH_ALIGNMENT)
            {
                return Err(invalid("a texture's memory or pitch is not aligned as the device wants it"));
            }
            let row = (width as u64).saturating_mul(format.bytes().into());
            if width == 0
                || height == 0
                || (pitch as u64) < row
                || !within(width as u64, attribute::MAXIMUM_TEXTURE2D_LINEAR_WIDTH)
                || !within(height as u64, attribute::MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)
                || !within(pitch as u64, attribute::MAXIMUM_TEXTURE2D_LINEAR_PITCH)
            {
                return Err(invalid("a texture's plane is too small or too large, or its rows overlap"));
            }
            plain(addr, format, TextureKind::Plane, [width as u32, height as u32, 0], pitch as u64)
        }
    };
    let Some(texture) = &object.texture else {
        // Whether it was created for surfaces is asked of references only: programs for NVIDIA GPUs make objects of any array.
        if !matches!(object.resource, Resource::Array(_)) {
            return Err(invalid("a surface is made of an array"));
        }
        header.flags.surface = true;
        return Ok(header);
    };
    if let Some(view) = &object.view {
        if matches!(object.resource, Resource::Linear { .. } | Resource::Plane { .. }) {
            return Err(invalid("only of an array there can be a view"));
        }
        show(&mut header, view)?;
    }
    read_as(&mut header, texture)?;
    Ok(header)
}

/// Sets how a texture is read.
fn read_as(header: &mut TextureHeader, texture: &TextureDesc) -> Result<()> {
    let known = READ_AS_INTEGER | NORMALIZED | SRGB | NO_TRILINEAR_OPTIMIZATION | SEAMLESS;
    if texture.flags & !known != 0 || texture.filter > 1 || texture.level_filter > 1 {
        return Err(invalid("a texture's flags or filters do not exist"));
    }
    if texture.flags & SEAMLESS != 0 {
        return Err(not_implemented("a seamless cubemap"));
    }
    for (mode, &number) in header.address.iter_mut().zip(&texture.address) {
        let found = u8::try_from(number).ok().and_then(AddressMode::from_number);
        *mode = found.ok_or_else(|| invalid("no such address mode"))?;
    }
    let integer = header.format.kind != ChannelKind::Float;
    header.flags = TextureFlags {
        surface: false,
        normalized: texture.flags & NORMALIZED != 0,
        // Integers of 32 bits stay what they are.
        as_float: integer && header.format.bits < 32 && texture.flags & READ_AS_INTEGER == 0,
        linear: texture.filter == 1,
        linear_levels: texture.level_filter == 1,
        srgb: texture.flags & SRGB != 0,
    };
    // Linear memory is fetched as it is, whatever the filter.
    let mixes = header.flags.linear && header.kind != TextureKind::Linear
        || header.flags.linear_levels && header.levels > 1;
    if integer && !header.flags.as_float && mixes {
        return Err(Error::new(
            Code::InvalidFilterSetting,
            "texels that are read as integers cannot be mixed",
        ));
    }
    header.border = texture.border.map(f32::to_bits);
    header.level_bias = texture.level_bias;
    header.level_low = texture.level_low;
    header.level_high = texture.level_high;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(number: u32) -> i32 {
        match number {
            attribute::TEXTURE_ALIGNMENT => 512,
            attribute::TEXTURE_PITCH_ALIGNMENT => 32,
            attribute::MAXIMUM_TEXTURE1D_LINEAR_WIDTH => 1000,
            _ => 0,
        }
    }

    fn bytes(kind: ChannelKind, bits: u8) -> TexelFormat {
        TexelFormat::new(kind, bits, 1).unwrap()
    }

    #[test]
    fn memory_has_to_be_as_the_device_wants_it() {
        let texture = Some(TextureDesc { flags: READ_AS_INTEGER, ..TextureDesc::default() });
        let made = |resource| header(&Object { resource, texture, view: None }, &device);
        let format = bytes(ChannelKind::Unsigned, 16);
        let linear = |addr, bytes| made(Resource::Linear { addr, format, bytes });
        assert_eq!(linear(1024, 99).unwrap().size, [49, 0, 0]);
        assert_eq!(linear(1040, 99).unwrap_err().code, Code::InvalidValue);
        assert!(linear(0, 99).is_err() && linear(512, 1).is_err() && linear(512, 2002).is_err());
        let plane = |width, pitch| made(Resource::Plane { addr: 512, format, width, height: 3, pitch });
        assert_eq!(plane(16, 32).unwrap().kind, TextureKind::Plane);
        assert!(plane(17, 32).is_err(), "rows overlap");
        assert!(plane(16, 48).is_err(), "rows are not aligned");
        let surface =
            Object { resource: Resource::Linear { addr: 512, format, bytes: 64 }, texture: None, view: None };
        assert!(header(&surface, &device).is_err(), "no surface without an array");
    }

    #[test]
    fn only_numbers_with_a_fraction_are_mixed() {
        let made = |format, flags| {
            let texture = Some(TextureDesc { flags, filter: 1, ..TextureDesc::default() });
            let resource = Resource::Plane { addr: 512, format, width: 16, height: 3, pitch: 64 };
            header(&Object { resource, texture, view: None }, &device)
        };
        let (byte, word) = (bytes(ChannelKind::Signed, 8), bytes(ChannelKind::Unsigned, 32));
        assert!(made(byte, NORMALIZED).unwrap().flags.as_float);
        assert_eq!(made(byte, READ_AS_INTEGER).unwrap_err().code, Code::InvalidFilterSetting);
        assert_eq!(made(word, 0).unwrap_err().code, Code::InvalidFilterSetting);
        assert!(!made(bytes(ChannelKind::Float, 32), READ_AS_INTEGER).unwrap().flags.as_float);
        assert_eq!(made(byte, SEAMLESS).unwrap_err().code, Code::NotSupported);
        assert_eq!(made(byte, 0x1000).unwrap_err().code, Code::InvalidValue);
    }

    #[test]
    fn views_show_parts() {
        let format = bytes(ChannelKind::Float, 32);
        let array = TextureHeader::plain(TextureKind::Planes, format, 4096, [16, 8, 4], [64, 512]);
        let mut header = array;
        let view = ViewDesc {
            format: 13,
            width: 16,
            height: 8,
            first_layer: 1,
            last_layer: 2,
            ..ViewDesc::default()
        };
        show(&mut header, &view).unwrap();
        assert_eq!(
            (header.base, header.size, header.format),
            (4608, [16, 8, 2], bytes(ChannelKind::Unsigned, 32))
        );
        let mut header = TextureHeader { levels: 3, kind: TextureKind::Volume, ..array };
        show(&mut header, &ViewDesc { first_level: 1, last_level: 2, ..ViewDesc::default() }).unwrap();
        assert_eq!((header.base, header.size, header.levels), (4096 + 2048, [8, 4, 2], 2));
        for view in [
            ViewDesc { format: 1, ..view },
            ViewDesc { width: 8, ..view },
            ViewDesc { last_layer: 4, ..view },
            ViewDesc { last_level: 1, ..view },
            ViewDesc { format: 25, ..view },
        ] {
            assert!(show(&mut { array }, &view).is_err(), "{view:?}");
        }
    }
}
