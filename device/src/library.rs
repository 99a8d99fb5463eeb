//! Operations of mathematical libraries: products of matrices, transforms, random numbers.

use crate::Handle;

/// One operation of a mathematical library, to be carried out in stream order. It is to a device what a launch of a kernel is: a
/// number that says what is to be done, and a block of arguments in a layout of the operation's own, in which addresses
/// are the device's. Who forwards it need not understand it.
#[derive(Debug, Clone, Copy)]
pub struct LibraryCall<'a> {
    /// The stream.
    pub stream: Handle,
    /// Which operation (the crate `rgpu-libraries` numbers them).
    pub operation: u32,
    /// Its arguments.
    pub params: &'a [u8],
}
