//! Arrays, texture and surface objects.

use rgpu_device::texture::{ChannelKind, TexelFormat};

use super::types::*;
use super::*;
use crate::abi::{In, Out};
use crate::core::array::{Shape, array, mipmapped};
use crate::core::error::invalid;
use crate::core::registry::Raw;
use crate::core::texture::{self, Object, Resource, TextureDesc, ViewDesc};

/// The numbers of `CUarray_format`.
const FORMATS: [(u32, ChannelKind, u8); 8] = [
    (0x01, ChannelKind::Unsigned, 8),
    (0x02, ChannelKind::Unsigned, 16),
    (0x03, ChannelKind::Unsigned, 32),
    (0x08, ChannelKind::Signed, 8),
    (0x09, ChannelKind::Signed, 16),
    (0x0a, ChannelKind::Signed, 32),
    (0x10, ChannelKind::Float, 16),
    (0x20, ChannelKind::Float, 32),
];

/// The texels of an array with a format of this number and so many channels.
pub(super) fn format(number: u32, channels: u32) -> Result<TexelFormat> {
    let Some(&(_, kind, bits)) = FORMATS.iter().find(|known| known.0 == number) else {
        // Planes of video and compressed blocks.
        return Err(not_implemented(&format!("an array of format {number:#x}")));
    };
    let channels = u8::try_from(channels).ok();
    let format = channels.and_then(|channels| TexelFormat::new(kind, bits, channels));
    format.ok_or_else(|| invalid("a texel has 1, 2 or 4 channels"))
}

/// A format's number in `CUarray_format`, and how many channels it has.
pub(super) fn number(format: TexelFormat) -> (u32, u32) {
    let found = FORMATS.iter().find(|known| (known.1, known.2) == (format.kind, format.bits));
    (found.map_or(0, |known| known.0), format.channels.into())
}

fn shape(given: &Array3dDescriptor) -> Result<Shape> {
    let size = [given.width, given.height, given.depth];
    Ok(Shape { size, format: format(given.format, given.channels)?, flags: given.flags })
}

/// The numbers of `CUresourcetype`.
const ARRAY: u32 = 0;
const MIPMAPPED: u32 = 1;
const LINEAR: u32 = 2;
const PLANE: u32 = 3;

fn resource(given: In<ResourceDesc>) -> Result<Resource> {
    let given = given.get()?;
    if given.flags != 0 {
        return Err(invalid("a resource's flags are 0"));
    }
    let ResourceDesc { place, width, height, pitch, .. } = given;
    Ok(match given.kind {
        ARRAY => Resource::Array(array(place as Raw)?.raw),
        MIPMAPPED => Resource::Mipmapped(mipmapped(place as Raw)?.raw),
        LINEAR => {
            let format = format(given.format, given.channels)?;
            Resource::Linear { addr: place, format, bytes: width as u64 }
        }
        PLANE => {
            let format = format(given.format, given.channels)?;
            Resource::Plane { addr: place, format, width, height, pitch }
        }
        _ => return Err(invalid("no such kind of a resource")),
    })
}

fn shown(resource: &Resource) -> ResourceDesc {
    let empty = ResourceDesc {
        kind: ARRAY,
        place: 0,
        format: 0,
        channels: 0,
        width: 0,
        height: 0,
        pitch: 0,
        reserved: [0; 11],
        flags: 0,
    };
    match *resource {
        Resource::Array(raw) => ResourceDesc { place: raw as u64, ..empty },
        Resource::Mipmapped(raw) => ResourceDesc { kind: MIPMAPPED, place: raw as u64, ..empty },
        Resource::Linear { addr, format, bytes } => {
            let (format, channels) = number(format);
            ResourceDesc { kind: LINEAR, place: addr, format, channels, width: bytes as usize, ..empty }
        }
        Resource::Plane { addr, format, width, height, pitch } => {
            let (format, channels) = number(format);
            ResourceDesc { kind: PLANE, place: addr, format, channels, width, height, pitch, ..empty }
        }
    }
}

door! {
    fn cuArrayCreate_v2(out: Out<Raw>, given: In<ArrayDescriptor>) |core| {
        out.check()?;
        let ArrayDescriptor { width, height, format, channels } = given.get()?;
        let given = Array3dDescriptor { width, height, depth: 0, format, channels, flags: 0 };
        out.set(core.create_array(&core.driver_context()?, shape(&given)?)?)
    }
    fn cuArray3DCreate_v2(out: Out<Raw>, given: In<Array3dDescriptor>) |core| {
        out.check()?;
        out.set(core.create_array(&core.driver_context()?, shape(&given.get()?)?)?)
    }
    fn cuArrayGetDescriptor_v2(out: Out<ArrayDescriptor>, raw: Raw) |core| {
        let shape = array(raw)?.shape;
        let ([width, height, _], (format, channels)) = (shape.size, number(shape.format));
        out.set(ArrayDescriptor { width, height, format, channels })
    }
    fn cuArray3DGetDescriptor_v2(out: Out<Array3dDescriptor>, raw: Raw) |core| {
        let shape = array(raw)?.shape;
        let ([width, height, depth], (format, channels)) = (shape.size, number(shape.format));
        out.set(Array3dDescriptor { width, height, depth, format, channels, flags: shape.flags })
    }
    fn cuArrayDestroy(raw: Raw) |core| {
        core.free_array(raw)
    }
    fn cuMipmappedArrayCreate(out: Out<Raw>, given: In<Array3dDescriptor>, levels: u32) |core| {
        out.check()?;
        out.set(core.create_mipmapped(&core.driver_context()?, shape(&given.get()?)?, levels)?)
    }
    fn cuMipmappedArrayGetLevel(out: Out<Raw>, raw: Raw, level: u32) |core| {
        out.check()?;
        let array = mipmapped(raw)?;
        let found = array.levels.get(level as usize).ok_or_else(|| invalid("no such mipmap level"))?;
        out.set(found.raw)
    }
    fn cuMipmappedArrayDestroy(raw: Raw) |core| {
        core.free_mipmapped(raw)
    }
    fn cuTexObjectCreate(
        out: Out<u64>, given: In<ResourceDesc>, texture: In<TextureDesc>, view: In<ViewDesc>,
    ) |core| {
        out.check()?;
        let (resource, texture) = (resource(given)?, Some(texture.get()?));
        let view = if view.is_null() { None } else { Some(view.get()?) };
        out.set(core.create_object(&core.driver_context()?, Object { resource, texture, view })?)
    }
    fn cuTexObjectDestroy(handle: u64) |core| {
        core.destroy_object(handle, false)
    }
    fn cuTexObjectGetResourceDesc(out: Out<ResourceDesc>, handle: u64) |core| {
        out.set(shown(&texture::get(handle, false)?.resource))
    }
    fn cuTexObjectGetTextureDesc(out: Out<TextureDesc>, handle: u64) |core| {
        out.set(texture::get(handle, false)?.texture.unwrap_or_default())
    }
    fn cuTexObjectGetResourceViewDesc(out: Out<ViewDesc>, handle: u64) |core| {
        let view = texture::get(handle, false)?.view;
        out.set(view.ok_or_else(|| invalid("the texture object was created without a view"))?)
    }
    fn cuSurfObjectCreate(out: Out<u64>, given: In<ResourceDesc>) |core| {
        out.check()?;
        let object = Object { resource: resource(given)?, texture: None, view: None };
        out.set(core.create_object(&core.driver_context()?, object)?)
    }
    fn cuSurfObjectDestroy(handle: u64) |core| {
        core.destroy_object(handle, true)
    }
    fn cuSurfObjectGetResourceDesc(out: Out<ResourceDesc>, handle: u64) |core| {
        out.set(shown(&texture::get(handle, true)?.resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_numbers_of_the_header() {
        for (known, kind, bits) in FORMATS {
            for channels in [1, 2, 4] {
                let format = format(known, channels).unwrap();
                assert_eq!((format.kind, format.bits), (kind, bits));
                assert_eq!(number(format), (known, channels));
            }
            assert_eq!(format(known, 3).unwrap_err().code, Code::InvalidValue);
        }
        assert_eq!(format(0xb0, 1).unwrap_err().code, Code::NotSupported);
    }
}
