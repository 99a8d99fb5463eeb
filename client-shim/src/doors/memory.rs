//! Memory in the order of a stream, and giving back memory: what both doors do besides asking the core.

use std::sync::Arc;

use super::pool;
use crate::abi::types::PoolRef;
use crate::core::{Context, Core, Result, Stream};
use crate::graph::{self, capture};

/// Frees memory of a device; null is none.
pub(crate) fn free(core: &Core, addr: u64) -> Result<()> {
    if addr != 0 && graph::take_back(core, addr)? {
        return Ok(());
    }
    core.free(addr)?;
    if addr != 0 {
        pool::forget(addr);
    }
    Ok(())
}

/// Allocates from the current pool of the stream's device.
pub(crate) fn alloc_async(core: &Core, context: &Arc<Context>, stream: &Stream, bytes: u64) -> Result<u64> {
    alloc(core, context, stream, None, bytes)
}

/// Allocates from a pool.
pub(crate) fn alloc_from_pool(
    core: &Core,
    context: Arc<Context>,
    stream: &Stream,
    pool: PoolRef,
    bytes: u64,
) -> Result<u64> {
    let ordinal = pool::ordinal_of(pool)?;
    let context = if ordinal == context.ordinal { context } else { core.primary_retain(ordinal)? };
    alloc(core, &context, stream, Some(pool), bytes)
}

fn alloc(
    core: &Core,
    context: &Arc<Context>,
    stream: &Stream,
    pool: Option<PoolRef>,
    bytes: u64,
) -> Result<u64> {
    let captured = capture::is_capturing(stream);
    let addr = core.alloc_async(context, stream, bytes)?;
    // What a capture allocates belongs to its graph.
    if !captured {
        pool::remember(pool, stream.ordinal, addr, bytes);
    }
    Ok(addr)
}

/// Frees memory once the stream has come so far.
pub(crate) fn free_async(core: &Core, stream: &Stream, addr: u64) -> Result<()> {
    let captured = capture::is_capturing(stream);
    if !captured && graph::take_back(core, addr)? {
        return Ok(());
    }
    core.free_async(stream, addr)?;
    if !captured {
        pool::forget(addr);
    }
    Ok(())
}
