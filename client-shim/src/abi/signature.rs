//! What a function's type says about how it is called, to be compared with the public headers.

use std::ffi::{c_char, c_void};

use super::pointers::{CStrArg, In, KernelArguments, Out};

/// How C passes a value on a 64-bit machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No value.
    Void,
    /// An address.
    Pointer,
    /// An integer, an enumeration or a truth value of so many bytes.
    Integer(usize),
    /// A floating-point number of so many bytes.
    Float(usize),
    /// A structure of so many bytes, by value.
    Structure(usize),
}

/// What a function takes and yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    /// What it yields.
    pub(crate) result: Kind,
    /// What it takes, in order.
    pub(crate) arguments: &'static [Kind],
}

/// A type that an entry point takes or yields.
pub(crate) trait CValue {
    /// How it is passed.
    const KIND: Kind;
}

/// The type of a C function.
pub(crate) trait CFunction {
    /// How it is called.
    const SIGNATURE: Signature;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl CValue for $type {
            const KIND: Kind = Kind::Integer(size_of::<$type>());
        }
    )*};
}
integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

impl CValue for () {
    const KIND: Kind = Kind::Void;
}

impl CValue for f32 {
    const KIND: Kind = Kind::Float(4);
}

impl CValue for f64 {
    const KIND: Kind = Kind::Float(8);
}

impl<T> CValue for *const T {
    const KIND: Kind = Kind::Pointer;
}

impl<T> CValue for *mut T {
    const KIND: Kind = Kind::Pointer;
}

impl<T, E> CValue for Out<T, E> {
    const KIND: Kind = Kind::Pointer;
}

impl<T, E> CValue for In<T, E> {
    const KIND: Kind = Kind::Pointer;
}

impl<E> CValue for CStrArg<E> {
    const KIND: Kind = Kind::Pointer;
}

impl CValue for KernelArguments {
    const KIND: Kind = Kind::Pointer;
}

macro_rules! functions {
    ($(($($argument:ident)*))*) => {$(
        impl<R: CValue, $($argument: CValue),*> CFunction for extern "C" fn($($argument),*) -> R {
            const SIGNATURE: Signature = Signature { result: R::KIND, arguments: &[$($argument::KIND),*] };
        }

        impl<R, $($argument),*> CValue for Option<unsafe extern "C" fn($($argument),*) -> R> {
            const KIND: Kind = Kind::Pointer;
        }
    )*};
}
functions! {
    () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M)
    (A B C D E F G H I J K L M N)
    (A B C D E F G H I J K L M N O)
    (A B C D E F G H I J K L M N O P)
    (A B C D E F G H I J K L M N O P Q)
    (A B C D E F G H I J K L M N O P Q S)
    (A B C D E F G H I J K L M N O P Q S T)
    (A B C D E F G H I J K L M N O P Q S T U)
    (A B C D E F G H I J K L M N O P Q S T U V)
    (A B C D E F G H I J K L M N O P Q S T U V W)
    (A B C D E F G H I J K L M N O P Q S T U V W X)
    (A B C D E F G H I J K L M N O P Q S T U V W X Y)
    (A B C D E F G H I J K L M N O P Q S T U V W X Y Z)
    (A B C D E F G H I J K L M N O P Q S T U V W X Y Z A1 B1 C1 D1 E1)
}

/// Structures that are passed by value.
macro_rules! structures {
    ($($type:ty),*) => {$(
        impl $crate::abi::signature::CValue for $type {
            const KIND: $crate::abi::signature::Kind = $crate::abi::signature::Kind::Structure(size_of::<$type>());
        }
    )*};
}
pub(crate) use structures;

#[test]
fn signatures_are_those_of_the_types() {
    type F = extern "C" fn(Out<c_void>, u32, f32, *const c_char) -> i32;
    assert_eq!(
        F::SIGNATURE,
        Signature {
            result: Kind::Integer(4),
            arguments: &[Kind::Pointer, Kind::Integer(4), Kind::Float(4), Kind::Pointer],
        }
    );
    assert_eq!(<extern "C" fn()>::SIGNATURE.result, Kind::Void);
}
