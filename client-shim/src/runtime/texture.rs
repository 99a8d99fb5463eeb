//! Texture and surface objects.

use std::ffi::c_int;

use super::entry::{api, enter};
use super::types::{ChannelDesc, ResourceDesc, TextureDesc};
use crate::abi::{In, Out};
use crate::core::array::{array, mipmapped};
use crate::core::error::invalid;
use crate::core::texture::{
    self, NO_TRILINEAR_OPTIMIZATION, NORMALIZED, Object, READ_AS_INTEGER, Resource, SEAMLESS, SRGB, ViewDesc,
};
use crate::core::{Code, Error, Result};

/// The numbers of `cudaResourceType`.
const ARRAY: c_int = 0;
const MIPMAPPED: c_int = 1;
const LINEAR: c_int = 2;
const PLANE: c_int = 3;

fn resource(given: In<ResourceDesc>) -> Result<Resource> {
    let given = given.get()?;
    let ResourceDesc { place, width, height, pitch, .. } = given;
    let no_format = || Error::new(Code::InvalidChannelDescriptor, "no such format");
    let format = || given.desc.format().ok_or_else(no_format);
    Ok(match given.kind {
        ARRAY => Resource::Array(array(place)?.raw),
        MIPMAPPED => Resource::Mipmapped(mipmapped(place)?.raw),
        LINEAR => Resource::Linear { addr: place as u64, format: format()?, bytes: width as u64 },
        PLANE => Resource::Plane { addr: place as u64, format: format()?, width, height, pitch },
        _ => return Err(invalid("no such kind of a resource")),
    })
}

fn shown(resource: &Resource) -> ResourceDesc {
    let empty = ResourceDesc::default();
    match *resource {
        Resource::Array(place) => ResourceDesc { place, ..empty },
        Resource::Mipmapped(place) => ResourceDesc { kind: MIPMAPPED, place, ..empty },
        Resource::Linear { addr, format, bytes } => {
            let desc = ChannelDesc::of(format);
            ResourceDesc { kind: LINEAR, place: addr as usize, desc, width: bytes as usize, ..empty }
        }
        Resource::Plane { addr, format, width, height, pitch } => {
            let (desc, place) = (ChannelDesc::of(format), addr as usize);
            ResourceDesc { kind: PLANE, place, desc, width, height, pitch }
        }
    }
}

impl From<TextureDesc> for texture::TextureDesc {
    fn from(given: TextureDesc) -> Self {
        let flags = [
            (given.read_mode == 0, READ_AS_INTEGER),
            (given.normalized != 0, NORMALIZED),
            (given.srgb != 0, SRGB),
            (given.no_trilinear_optimization != 0, NO_TRILINEAR_OPTIMIZATION),
            (given.seamless != 0, SEAMLESS),
        ];
        Self {
            address: given.address,
            filter: given.filter,
            flags: flags.iter().filter(|flag| flag.0).fold(0, |all, flag| all | flag.1),
            max_anisotropy: given.max_anisotropy,
            level_filter: given.level_filter,
            level_bias: given.level_bias,
            level_low: given.level_low,
            level_high: given.level_high,
            border: given.border,
            reserved: [0; 12],
        }
    }
}

impl From<texture::TextureDesc> for TextureDesc {
    fn from(known: texture::TextureDesc) -> Self {
        let flag = |flag: u32| c_int::from(known.flags & flag != 0);
        Self {
            address: known.address,
            filter: known.filter,
            read_mode: u32::from(known.flags & READ_AS_INTEGER == 0),
            srgb: flag(SRGB),
            border: known.border,
            normalized: flag(NORMALIZED),
            max_anisotropy: known.max_anisotropy,
            level_filter: known.level_filter,
            level_bias: known.level_bias,
            level_low: known.level_low,
            level_high: known.level_high,
            no_trilinear_optimization: flag(NO_TRILINEAR_OPTIMIZATION),
            seamless: flag(SEAMLESS),
        }
    }
}

api! {
    /// `cudaCreateTextureObject`
    fn create_texture as "cudaCreateTextureObject" (
        out: Out<u64>, given: In<ResourceDesc>, texture: In<TextureDesc>, view: In<ViewDesc>,
    ) {
        out.check()?;
        let (resource, texture) = (resource(given)?, texture.get()?);
        if texture.read_mode > 1 {
            return Err(invalid("no such read mode"));
        }
        let view = if view.is_null() { None } else { Some(view.get()?) };
        let (core, context) = enter()?;
        out.set(core.create_object(&context, Object { resource, texture: Some(texture.into()), view })?)
    }

    /// `cudaDestroyTextureObject`
    fn destroy_texture as "cudaDestroyTextureObject" (handle: u64) {
        let (core, _) = enter()?;
        core.destroy_object(handle, false)
    }

    /// `cudaGetTextureObjectResourceDesc`
    fn texture_resource as "cudaGetTextureObjectResourceDesc" (out: Out<ResourceDesc>, handle: u64) {
        out.set(shown(&texture::get(handle, false)?.resource))
    }

    /// `cudaGetTextureObjectTextureDesc`
    fn texture_desc as "cudaGetTextureObjectTextureDesc" (out: Out<TextureDesc>, handle: u64) {
        out.set(texture::get(handle, false)?.texture.unwrap_or_default().into())
    }

    /// `cudaGetTextureObjectResourceViewDesc`
    fn texture_view as "cudaGetTextureObjectResourceViewDesc" (out: Out<ViewDesc>, handle: u64) {
        let view = texture::get(handle, false)?.view;
        out.set(view.ok_or_else(|| invalid("the texture object was created without a view"))?)
    }

    /// `cudaCreateSurfaceObject`
    fn create_surface as "cudaCreateSurfaceObject" (out: Out<u64>, given: In<ResourceDesc>) {
        out.check()?;
        let object = Object { resource: resource(given)?, texture: None, view: None };
        let (core, context) = enter()?;
        out.set(core.create_object(&context, object)?)
    }

    /// `cudaDestroySurfaceObject`
    fn destroy_surface as "cudaDestroySurfaceObject" (handle: u64) {
        let (core, _) = enter()?;
        core.destroy_object(handle, true)
    }

    /// `cudaGetSurfaceObjectResourceDesc`
    fn surface_resource as "cudaGetSurfaceObjectResourceDesc" (out: Out<ResourceDesc>, handle: u64) {
        out.set(shown(&texture::get(handle, true)?.resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_come_back_as_they_were_given() {
        let given = TextureDesc {
            address: [0, 1, 3],
            filter: 1,
            read_mode: 1,
            normalized: 1,
            border: [1.0, 2.0, 3.0, 4.0],
            level_high: 5.0,
            ..TextureDesc::default()
        };
        let known = texture::TextureDesc::from(given);
        assert_eq!(known.flags, NORMALIZED, "reads yield numbers with a fraction");
        let again = texture::TextureDesc::from(TextureDesc::from(known));
        assert_eq!(again, known);
    }
}
