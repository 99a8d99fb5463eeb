//! Arrays, and texture and surface objects.

use std::sync::Arc;

use rgpu_device::texture::TEXTURE_HEADER_BYTES;
use rgpu_device::{Ordinal, Region};

use crate::core::array::{self, Shape};
use crate::core::context::Context;
use crate::core::error::{Result, not_implemented};
use crate::core::process::Core;
use crate::core::registry::Raw;
use crate::core::texture::{self, Object};
use crate::core::transfer::{Direction, Wait};

impl Core {
    /// Memory for an array, with zeros in it: what it holds at first is undefined, and other memory starts so here.
    fn array_memory(&self, context: &Arc<Context>, bytes: u64) -> Result<u64> {
        let addr = self.alloc(context, bytes)?;
        let stream = self.stream(context, 0, false)?;
        self.fill(&stream, Region::linear(addr, bytes), 0, 1, Wait::Async)?;
        Ok(addr)
    }

    fn check_shape(&self, ordinal: Ordinal, shape: &Shape) -> Result<()> {
        let info = self.devices.info(ordinal)?;
        shape.check(&|number| info.attribute(number))
    }

    /// Creates an array.
    pub(crate) fn create_array(&self, context: &Arc<Context>, shape: Shape) -> Result<Raw> {
        self.check_shape(context.ordinal, &shape)?;
        let (levels, bytes) = shape.levels(1)?;
        let addr = self.array_memory(context, bytes)?;
        Ok(array::insert(shape, levels[0], addr, false).raw)
    }

    /// Creates an array with so many mipmap levels, or as many as it can have.
    pub(crate) fn create_mipmapped(&self, context: &Arc<Context>, shape: Shape, levels: u32) -> Result<Raw> {
        self.check_shape(context.ordinal, &shape)?;
        let (levels, bytes) = shape.levels(levels.clamp(1, shape.most_levels()))?;
        let addr = self.array_memory(context, bytes)?;
        let level = |&level| array::insert(shape, level, addr, true);
        Ok(array::insert_mipmapped(levels.iter().map(level).collect()))
    }

    /// Frees an array.
    pub(crate) fn free_array(&self, raw: Raw) -> Result<()> {
        self.free(array::remove(raw)?)
    }

    /// Frees an array with mipmap levels.
    pub(crate) fn free_mipmapped(&self, raw: Raw) -> Result<()> {
        self.free(array::remove_mipmapped(raw)?)
    }

    /// Creates a texture or surface object, whose handle is where its header lies.
    pub(crate) fn create_object(&self, context: &Arc<Context>, object: Object) -> Result<u64> {
        let info = self.devices.info(context.ordinal)?;
        // A device that runs NVIDIA's machine code has textures of its own, which nobody forwards.
        if info.accepts_cubin {
            return Err(not_implemented("a texture or surface object on an NVIDIA GPU"));
        }
        let header = texture::header(&object, &|number| info.attribute(number))?.to_bytes();
        let handle = self.alloc(context, TEXTURE_HEADER_BYTES as u64)?;
        let stream = self.stream(context, 0, false)?;
        let bytes = header.len() as u64;
        let source = header.as_ptr() as u64;
        if let Err(error) = self.copy(&stream, handle, source, bytes, Direction::HostToDevice, Wait::Sync) {
            self.free(handle)?;
            return Err(error);
        }
        texture::insert(handle, object);
        Ok(handle)
    }

    /// Destroys a texture or surface object.
    pub(crate) fn destroy_object(&self, handle: u64, surface: bool) -> Result<()> {
        texture::remove(handle, surface)?;
        self.free(handle)
    }
}
