//! The messages of [`crate::core::logs`] as both doors hand them out.

use std::ffi::{OsStr, c_char, c_uint, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::abi::{CStrArg, Out};
use crate::core::error::invalid;
use crate::core::logs::{self, Callback};
use crate::core::{Code, Error, Result};

/// `CUlogsCallbackHandle`.
pub(crate) type ListenerRef = usize;

/// `cuLogsRegisterCallback`
pub(crate) fn register(
    function: Option<Callback>,
    data: *mut c_void,
    handle: Out<ListenerRef>,
) -> Result<()> {
    let function = function.ok_or_else(|| invalid("the function for messages is null"))?;
    handle.set_if_wanted(logs::register(function, data));
    Ok(())
}

/// `cuLogsCurrent`
pub(crate) fn current(iterator: Out<u32>, flags: c_uint) -> Result<()> {
    check(flags)?;
    iterator.set(logs::current())
}

/// `cuLogsDumpToFile`: messages are appended.
pub(crate) fn dump_to_file(iterator: Out<u32>, path: &CStrArg, flags: c_uint) -> Result<()> {
    check(flags)?;
    let path = path.c_str()?;
    let (text, next) = logs::all(start(iterator)?);
    let file = std::fs::OpenOptions::new().create(true).append(true).open(OsStr::from_bytes(path.to_bytes()));
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Error::new(Code::InvalidValue, format!("{}: {error}", path.to_string_lossy())))?;
    iterator.set_if_wanted(next);
    Ok(())
}

/// `cuLogsDumpToMemory`
pub(crate) fn dump_to_memory(
    iterator: Out<u32>,
    buffer: Out<c_char>,
    size: Out<usize>,
    flags: c_uint,
) -> Result<()> {
    check(flags)?;
    let bytes = size.get()?;
    buffer.check()?;
    size.set(0)?;
    // One byte is for the NUL.
    let room = bytes.checked_sub(1).ok_or_else(|| invalid("the buffer is empty"))?;
    let (text, next) = logs::newest(start(iterator)?, room)?;
    // SAFETY: the program says that so many bytes are there.
    unsafe { buffer.set_text(bytes, &text) }?;
    iterator.set_if_wanted(next);
    size.set(text.len())
}

/// The message at which a program's iterator is; none means all.
fn start(iterator: Out<u32>) -> Result<Option<u32>> {
    if iterator.is_null() { Ok(None) } else { iterator.get().map(Some) }
}

fn check(flags: c_uint) -> Result<()> {
    if flags == 0 { Ok(()) } else { Err(invalid("flags must be 0")) }
}
