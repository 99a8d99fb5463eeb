//! The options of the just-in-time compiler that say where its words go. All others tune a compiler that is not there.

use std::ffi::{c_char, c_uint, c_void};
use std::time::Instant;

use crate::abi::{In, Out};
use crate::core::Result;
use crate::core::error::invalid;

/// `CU_JIT_WALL_TIME`.
const WALL_TIME: c_uint = 2;
/// `CU_JIT_INFO_LOG_BUFFER` and the option with its size.
const INFO: (c_uint, c_uint) = (3, 4);
/// `CU_JIT_ERROR_LOG_BUFFER` and the option with its size.
const ERROR: (c_uint, c_uint) = (5, 6);

/// Whether this is `libcudadevrt.a`, by what a program calls it. What it holds is not looked at; only that it is an archive.
pub(crate) fn is_device_runtime(bytes: &[u8], name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    let file = file.strip_prefix("lib").unwrap_or(file);
    bytes.starts_with(b"!<arch>\n") && file.starts_with("cudadevrt")
}

/// An option's value: a number or a pointer, where results are stored as well.
type Value = Out<*mut c_void>;

/// A buffer for messages.
struct Buffer {
    text: Out<c_char>,
    room: usize,
    size: Value,
}

impl Buffer {
    /// Writes a message, cut off where it does not fit, and how long it has become.
    fn write(&self, message: &str) {
        if self.text.is_null() || self.room == 0 {
            self.size.set_if_wanted(std::ptr::null_mut());
            return;
        }
        // SAFETY: the program says that there is so much room. Neither is empty, so it cannot fail.
        let _ = unsafe { self.text.set_text(self.room, message) };
        self.size.set_if_wanted(message.len().min(self.room - 1) as *mut c_void);
    }
}

/// Where messages and times go.
pub(crate) struct JitLog {
    info: Option<Buffer>,
    error: Option<Buffer>,
    wall_time: Option<Value>,
    started: Instant,
}

// SAFETY: a linker's options must stay valid as long as the linker; by which threads it is used is the program's
// concern.
unsafe impl Send for JitLog {}
// SAFETY: as above.
unsafe impl Sync for JitLog {}

impl JitLog {
    /// Reads the options. They are an invalid value where they are counted, but not given.
    ///
    /// # Safety
    /// Both lists have `count` entries, if any, and each value is of the kind that its option says. Buffers and
    /// values are there as long as the result.
    pub(crate) unsafe fn new(count: c_uint, options: In<c_uint>, values: Value) -> Result<Self> {
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(invalid("options of the just-in-time compiler are counted, but not given"));
        }
        // SAFETY: the caller's promise.
        let numbers = unsafe { options.list(count as usize) }?;
        let find = |wanted: c_uint| {
            let index = numbers.iter().position(|number| *number == wanted)?;
            // SAFETY: there are as many values.
            Some(unsafe { values.at(index) })
        };
        let buffer = |(text, size): (c_uint, c_uint)| {
            let (text, size) = (find(text)?.get().ok()?, find(size)?);
            // The size is an unsigned int in the place of a pointer.
            let room = size.get().ok()? as usize as u32 as usize;
            // SAFETY: the option's value is a buffer.
            Some(Buffer { text: unsafe { Out::new(text.cast()) }, room, size })
        };
        let (info, error) = (buffer(INFO), buffer(ERROR));
        Ok(Self { info, error, wall_time: find(WALL_TIME), started: Instant::now() })
    }

    /// Tells the program how it went, and passes the result on.
    pub(crate) fn tell<T>(&self, result: Result<T>) -> Result<T> {
        if let Some(info) = &self.info {
            info.write("");
        }
        if let Some(error) = &self.error {
            error.write(result.as_ref().err().map_or("", |error| error.message.as_str()));
        }
        if let Some(value) = self.wall_time {
            let milliseconds = self.started.elapsed().as_secs_f32() * 1000.0;
            value.set_if_wanted(milliseconds.to_bits() as usize as *mut c_void);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Code, Error};

    /// The options' values, and the buffer, after an error with a text was told.
    fn after(message: &str, room: usize) -> ([*mut c_void; 3], [u8; 16]) {
        let mut buffer = [0xEE_u8; 16];
        let options = [ERROR.1, WALL_TIME, ERROR.0];
        let mut values = [room as *mut c_void, usize::MAX as *mut c_void, buffer.as_mut_ptr().cast()];
        // SAFETY: there are three of each, and both outlive the log.
        let log =
            unsafe { JitLog::new(3, In::new(options.as_ptr()), Out::new(values.as_mut_ptr())) }.unwrap();
        let told = log.tell::<()>(Err(Error::new(Code::InvalidPtx, message)));
        assert_eq!(told.unwrap_err().code, Code::InvalidPtx);
        (values, buffer)
    }

    #[test]
    fn messages_are_cut_off_and_counted() {
        let (values, buffer) = after("wrong", 16);
        assert_eq!((values[0] as usize, &buffer[..7]), (5, b"wrong\0\xEE".as_slice()));
        let time = f32::from_bits(values[1] as usize as u32);
        assert!((0.0..60_000.0).contains(&time), "{time}");
        let (values, buffer) = after("too long a message", 8);
        assert_eq!((values[0] as usize, &buffer[..9]), (7, b"too lon\0\xEE".as_slice()));
        let (values, buffer) = after("no room", 0);
        assert_eq!((values[0] as usize, buffer[0]), (0, 0xEE));
    }

    #[test]
    fn options_without_lists_are_refused() {
        // SAFETY: null is part of the promise.
        let made = unsafe { JitLog::new(1, In::null(), Out::unwanted()) };
        assert_eq!(made.err().unwrap().code, Code::InvalidValue);
        // SAFETY: there are none.
        assert!(unsafe { JitLog::new(0, In::null(), Out::unwanted()) }.unwrap().tell(Ok(())).is_ok());
    }
}
