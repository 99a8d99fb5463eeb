//! Functions with C's calling convention, and what their types say about it.

/// Defines entry points: functions that C programs call, with one body for the two variants that differ in what
/// stream 0 means (`<const PT>`: the calling thread's own). For the tests, a type of the same name tells the
/// signature, so that it is written once.
macro_rules! c_functions {
    ($(
        $(#[$meta:meta])*
        fn $name:ident $(<const $pt:ident>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        pub(crate) extern "C" fn $name $(<const $pt: bool>)? ($($arg: $type),*) $(-> $result)? $body

        #[cfg(test)]
        #[allow(non_camel_case_types)]
        pub(crate) type $name = extern "C" fn($($type),*) $(-> $result)?;
        // Of a function that stands in for several, the table asks for the type of one.
        #[cfg(test)]
        const _: Option<$name> = None;
    )*};
}
pub(crate) use c_functions;
