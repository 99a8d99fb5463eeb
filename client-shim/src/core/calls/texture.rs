//! Arrays, and texture and surface objects.

use std::sync::Arc;

use rgpu_device::texture::TEXTURE_HEADER_BYTES;
use rgpu_device::{Ordinal, Region, Target};

use crate::core::array::{self, Shape};
use crate::core::context::Context;
use crate::core::error::{Result, not_implemented, say_once};
use crate::core::module::Module;
use crate::core::process::Core;
use crate::core::reference::Reference;
use crate::core::registry::Raw;
use crate::core::texture::{self, Object, Resource};
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

    /// Binds something to a texture or surface reference.
    pub(crate) fn bind_reference(&self, reference: &Reference, resource: Resource) -> Result<()> {
        let info = self.devices.info(reference.ordinal)?;
        reference.bind(resource, &|number| info.attribute(number))
    }

    /// Writes what a program has said of a module's references, before a kernel of the module is launched.
    ///
    /// Kernels that were launched before read what was bound then. The legacy stream, on which headers are written, waits for those of
    /// all streams but the non-blocking ones; where there may be any of these, the device is waited for.
    #[cold]
    pub(in crate::core) fn settle_references(&self, module: &Module) -> Result<()> {
        let info = self.devices.info(module.ordinal)?;
        let context = self.context(module.context)?;
        module.references.settle(&|number| info.attribute(number), |due| {
            if let Some(why) = &due.why_not {
                say_once(&format!("What is bound to {} cannot be accessed: {why}", due.name));
            }
            if due.again && self.streams.any_non_blocking() {
                self.devices.wait(module.ordinal, Target::Device(module.ordinal))?;
            }
            let bytes = due.bytes.len() as u64;
            let (to, from) =
                (Region::linear(due.addr, bytes), Region::linear(due.bytes.as_ptr() as u64, bytes));
            self.transfer(&context.legacy, to, from, Direction::HostToDevice, Wait::Sync)
        })
    }

    /// Destroys a texture or surface object.
    pub(crate) fn destroy_object(&self, handle: u64, surface: bool) -> Result<()> {
        if texture::remove(handle, surface)? { self.free(handle) } else { Ok(()) }
    }
}
