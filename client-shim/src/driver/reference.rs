//! Texture and surface references, as CUDA had them before there were objects.

use std::sync::Arc;

use rgpu_device::attribute;

use super::texture::{format, number};
use super::types::{ArrayDescriptor, DevicePtr, Opaque};
use super::*;
use crate::abi::{CStrArg, In, Out};
use crate::core::array::{array, mipmapped};
use crate::core::error::invalid;
use crate::core::reference::{Reference, State};
use crate::core::registry::Raw;
use crate::core::texture::{NO_TRILINEAR_OPTIMIZATION, NORMALIZED, READ_AS_INTEGER, Resource, SRGB};

/// `CU_TRSA_OVERRIDE_FORMAT`: the texels are those of the array.
const OVERRIDE_FORMAT: u32 = 1;

/// The texture reference behind a handle.
fn texture(core: &Core, raw: Opaque) -> Result<Arc<Reference>> {
    core.driver_context()?;
    core.reference(raw as Raw, false)
}

/// What was said of a texture reference.
fn state(core: &Core, raw: Opaque) -> Result<State> {
    Ok(texture(core, raw)?.state())
}

/// Changes how a texture reference is read.
fn change(core: &Core, raw: Opaque, change: impl FnOnce(&mut State)) -> Result<()> {
    texture(core, raw)?.change(|state| {
        change(state);
        Ok(())
    })
}

/// One of the three directions.
fn direction(number: i32) -> Result<usize> {
    usize::try_from(number)
        .ok()
        .filter(|&n| n < 3)
        .ok_or_else(|| invalid("a texture has three directions at most"))
}

/// A filter's number, if there is such a one.
fn filter(number: u32) -> Result<u32> {
    if number > 1 { Err(invalid("no such filter mode")) } else { Ok(number) }
}

/// `cuModuleGetTexRef`, or `cuModuleGetSurfRef`
fn of_module(core: &Core, out: Out<Opaque>, module: Opaque, name: CStrArg, surface: bool) -> Result<()> {
    out.check()?;
    core.driver_context()?;
    let module = core.module(module as Raw)?;
    out.set(core.module_reference(&module, name.text()?, surface)?.raw as Opaque)
}

/// The flags with which an array is bound to a texture reference.
fn check_array_flags(flags: u32) -> Result<()> {
    if flags == OVERRIDE_FORMAT { Ok(()) } else { Err(invalid("the flags are CU_TRSA_OVERRIDE_FORMAT")) }
}

/// `cuTexRefSetAddress2D`
fn set_plane(
    core: &Core,
    raw: Opaque,
    given: In<ArrayDescriptor>,
    addr: DevicePtr,
    pitch: usize,
) -> Result<()> {
    let ArrayDescriptor { width, height, format: texel, channels } = given.get()?;
    let format = format(texel, channels)?;
    core.bind_reference(&*texture(core, raw)?, Resource::Plane { addr, format, width, height, pitch })
}

door! {
    fn cuModuleGetTexRef(out: Out<Opaque>, module: Opaque, name: CStrArg) |core| {
        of_module(core, out, module, name, false)
    }
    fn cuModuleGetSurfRef(out: Out<Opaque>, module: Opaque, name: CStrArg) |core| {
        of_module(core, out, module, name, true)
    }
    fn cuTexRefCreate(out: Out<Opaque>) |core| {
        out.check()?;
        out.set(core.create_reference(&*core.driver_context()?)?.raw as Opaque)
    }
    fn cuTexRefDestroy(raw: Opaque) |core| {
        core.driver_context()?;
        core.destroy_reference(raw as Raw)
    }

    fn cuTexRefSetArray(raw: Opaque, given: Opaque, flags: u32) |core| {
        let reference = texture(core, raw)?;
        check_array_flags(flags)?;
        core.bind_reference(&reference, Resource::Array(array(given as Raw)?.raw))
    }
    fn cuTexRefSetMipmappedArray(raw: Opaque, given: Opaque, flags: u32) |core| {
        let reference = texture(core, raw)?;
        check_array_flags(flags)?;
        core.bind_reference(&reference, Resource::Mipmapped(mipmapped(given as Raw)?.raw))
    }
    fn cuTexRefSetAddress_v2(offset: Out<usize>, raw: Opaque, addr: DevicePtr, bytes: usize) |core| {
        let reference = texture(core, raw)?;
        let alignment = core.device_info(reference.ordinal)?.attribute(attribute::TEXTURE_ALIGNMENT).max(1) as u64;
        let beyond = addr % alignment;
        if beyond != 0 && offset.is_null() {
            return Err(invalid("a texture's memory does not begin where the device wants it, and nobody asks how far it is"));
        }
        let (addr, format) = (addr - beyond, reference.state().format);
        let bytes = (bytes as u64).checked_add(beyond).ok_or_else(|| invalid("memory beyond all addresses"))?;
        core.bind_reference(&reference, Resource::Linear { addr, format, bytes })?;
        offset.set_if_wanted(beyond as usize);
        Ok(())
    }
    fn cuTexRefSetAddress2D_v2(raw: Opaque, given: In<ArrayDescriptor>, addr: DevicePtr, pitch: usize) |core| {
        set_plane(core, raw, given, addr, pitch)
    }
    fn cuTexRefSetAddress2D_v3(raw: Opaque, given: In<ArrayDescriptor>, addr: DevicePtr, pitch: usize) |core| {
        set_plane(core, raw, given, addr, pitch)
    }
    fn cuTexRefSetFormat(raw: Opaque, texel: u32, channels: i32) |core| {
        let format = format(texel, u32::try_from(channels).unwrap_or(0))?;
        texture(core, raw)?.change(|state| {
            if !matches!(state.bound, None | Some(Resource::Linear { .. })) && state.format != format {
                return Err(invalid("the texels of what is bound are others"));
            }
            state.format = format;
            Ok(())
        })
    }
    fn cuTexRefSetAddressMode(raw: Opaque, dimension: i32, mode: u32) |core| {
        let dimension = direction(dimension)?;
        if mode > 3 {
            return Err(invalid("no such address mode"));
        }
        change(core, raw, |state| state.texture.address[dimension] = mode)
    }
    fn cuTexRefSetFilterMode(raw: Opaque, mode: u32) |core| {
        let mode = filter(mode)?;
        change(core, raw, |state| state.texture.filter = mode)
    }
    fn cuTexRefSetMipmapFilterMode(raw: Opaque, mode: u32) |core| {
        let mode = filter(mode)?;
        change(core, raw, |state| state.texture.level_filter = mode)
    }
    fn cuTexRefSetMipmapLevelBias(raw: Opaque, bias: f32) |core| {
        change(core, raw, |state| state.texture.level_bias = bias)
    }
    fn cuTexRefSetMipmapLevelClamp(raw: Opaque, low: f32, high: f32) |core| {
        change(core, raw, |state| (state.texture.level_low, state.texture.level_high) = (low, high))
    }
    fn cuTexRefSetMaxAnisotropy(raw: Opaque, most: u32) |core| {
        change(core, raw, |state| state.texture.max_anisotropy = most)
    }
    fn cuTexRefSetBorderColor(raw: Opaque, colour: In<f32>) |core| {
        let mut border = [0.0; 4];
        for (index, channel) in border.iter_mut().enumerate() {
            // SAFETY: the program says that there are four.
            *channel = unsafe { colour.at(index) }.get()?;
        }
        change(core, raw, |state| state.texture.border = border)
    }
    fn cuTexRefSetFlags(raw: Opaque, flags: u32) |core| {
        if flags & !(READ_AS_INTEGER | NORMALIZED | SRGB | NO_TRILINEAR_OPTIMIZATION) != 0 {
            return Err(invalid("there are no such flags of a texture reference"));
        }
        change(core, raw, |state| state.texture.flags = flags)
    }

    fn cuTexRefGetAddress_v2(out: Out<DevicePtr>, raw: Opaque) |core| {
        match state(core, raw)?.bound {
            Some(Resource::Linear { addr, .. } | Resource::Plane { addr, .. }) => out.set(addr),
            _ => Err(invalid("no memory is bound to the texture reference")),
        }
    }
    fn cuTexRefGetArray(out: Out<Opaque>, raw: Opaque) |core| {
        match state(core, raw)?.bound {
            Some(Resource::Array(array)) => out.set(array as Opaque),
            _ => Err(invalid("no array is bound to the texture reference")),
        }
    }
    fn cuTexRefGetMipmappedArray(out: Out<Opaque>, raw: Opaque) |core| {
        match state(core, raw)?.bound {
            Some(Resource::Mipmapped(array)) => out.set(array as Opaque),
            _ => Err(invalid("no array with mipmap levels is bound to the texture reference")),
        }
    }
    fn cuTexRefGetAddressMode(out: Out<u32>, raw: Opaque, dimension: i32) |core| {
        let dimension = direction(dimension)?;
        out.set(state(core, raw)?.texture.address[dimension])
    }
    fn cuTexRefGetFilterMode(out: Out<u32>, raw: Opaque) |core| {
        out.set(state(core, raw)?.texture.filter)
    }
    fn cuTexRefGetFormat(texel: Out<u32>, channels: Out<i32>, raw: Opaque) |core| {
        let (format, count) = number(state(core, raw)?.format);
        texel.set_if_wanted(format);
        channels.set_if_wanted(count as i32);
        Ok(())
    }
    fn cuTexRefGetMipmapFilterMode(out: Out<u32>, raw: Opaque) |core| {
        out.set(state(core, raw)?.texture.level_filter)
    }
    fn cuTexRefGetMipmapLevelBias(out: Out<f32>, raw: Opaque) |core| {
        out.set(state(core, raw)?.texture.level_bias)
    }
    fn cuTexRefGetMipmapLevelClamp(low: Out<f32>, high: Out<f32>, raw: Opaque) |core| {
        low.check()?;
        high.check()?;
        let texture = state(core, raw)?.texture;
        low.set(texture.level_low)?;
        high.set(texture.level_high)
    }
    fn cuTexRefGetMaxAnisotropy(out: Out<i32>, raw: Opaque) |core| {
        out.set(state(core, raw)?.texture.max_anisotropy as i32)
    }
    fn cuTexRefGetBorderColor(out: Out<f32>, raw: Opaque) |core| {
        for (index, channel) in state(core, raw)?.texture.border.into_iter().enumerate() {
            // SAFETY: the program says that there is room for four.
            unsafe { out.at(index) }.set(channel)?;
        }
        Ok(())
    }
    fn cuTexRefGetFlags(out: Out<u32>, raw: Opaque) |core| {
        out.set(state(core, raw)?.texture.flags)
    }

    fn cuSurfRefSetArray(raw: Opaque, given: Opaque, flags: u32) |core| {
        core.driver_context()?;
        let reference = core.reference(raw as Raw, true)?;
        if flags != 0 {
            return Err(invalid("the flags of a surface reference are 0"));
        }
        core.bind_reference(&reference, Resource::Array(array(given as Raw)?.raw))
    }
    fn cuSurfRefGetArray(out: Out<Opaque>, raw: Opaque) |core| {
        core.driver_context()?;
        match core.reference(raw as Raw, true)?.state().bound {
            Some(Resource::Array(array)) => out.set(array as Opaque),
            _ => Err(invalid("no array is bound to the surface reference")),
        }
    }
}
