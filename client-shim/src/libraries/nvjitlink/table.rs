//! Every function of nvJitLink, in the [form of all doors](crate::doors::table).
//!
//! The library exports each of them, but for the version, once more for each of its versions, `__nvJitLinkCreate_12_9`, and
//! that is what a program calls that was compiled with its header. All versions of a function are the same.

use super::{input, options, output};
use crate::doors::table::entry_points;

entry_points! {
    /// The functions, ascending by name.
    static TABLE refusing by super::refuse;
    nvJitLinkAddData 12000 [input::nvJitLinkAddData];
    nvJitLinkAddFile 12000 [input::nvJitLinkAddFile];
    nvJitLinkComplete 12000 [output::nvJitLinkComplete];
    nvJitLinkCreate 12000 [options::nvJitLinkCreate];
    nvJitLinkDestroy 12000 [options::nvJitLinkDestroy];
    nvJitLinkGetErrorLog 12000 [output::nvJitLinkGetErrorLog];
    nvJitLinkGetErrorLogSize 12000 [output::nvJitLinkGetErrorLogSize];
    nvJitLinkGetInfoLog 12000 [output::nvJitLinkGetInfoLog];
    nvJitLinkGetInfoLogSize 12000 [output::nvJitLinkGetInfoLogSize];
    nvJitLinkGetLinkedCubin 12000 [output::nvJitLinkGetLinkedCubin];
    nvJitLinkGetLinkedCubinSize 12000 [output::nvJitLinkGetLinkedCubinSize];
    nvJitLinkGetLinkedLTOIR 13000 [unsupported];
    nvJitLinkGetLinkedLTOIRSize 13000 [unsupported];
    nvJitLinkGetLinkedPtx 12000 [output::nvJitLinkGetLinkedPtx];
    nvJitLinkGetLinkedPtxSize 12000 [output::nvJitLinkGetLinkedPtxSize];
    nvJitLinkVersion 12000 [output::nvJitLinkVersion];
}

/// The name of a row without what tells the versions of the library apart.
pub(super) fn row_name(function: &str) -> &str {
    let Some(rest) = function.strip_prefix("__") else { return function };
    let mut parts = rest.rsplitn(3, '_');
    let (minor, major) = (parts.next(), parts.next());
    let number = |part: Option<&str>| part.is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit()));
    match parts.next() {
        Some(name) if number(minor) && number(major) => name,
        _ => function,
    }
}

/// Exports functions for versions of the library: each a jump to the function itself.
macro_rules! versions {
    ([$($body:path as $name:literal),* $(,)?] $versions:tt) => {
        $(versions!(@one $body, $name, $versions);)*
    };
    (@one $body:path, $name:literal, [$($version:literal)*]) => {
        $(const _: () = {
            let _ = crate::doors::table::jump!(concat!("__", $name, $version), $body);
        };)*
    };
}

versions! {
    [
        input::nvJitLinkAddData as "nvJitLinkAddData",
        input::nvJitLinkAddFile as "nvJitLinkAddFile",
        output::nvJitLinkComplete as "nvJitLinkComplete",
        options::nvJitLinkCreate as "nvJitLinkCreate",
        options::nvJitLinkDestroy as "nvJitLinkDestroy",
        output::nvJitLinkGetErrorLog as "nvJitLinkGetErrorLog",
        output::nvJitLinkGetErrorLogSize as "nvJitLinkGetErrorLogSize",
        output::nvJitLinkGetInfoLog as "nvJitLinkGetInfoLog",
        output::nvJitLinkGetInfoLogSize as "nvJitLinkGetInfoLogSize",
        output::nvJitLinkGetLinkedCubin as "nvJitLinkGetLinkedCubin",
        output::nvJitLinkGetLinkedCubinSize as "nvJitLinkGetLinkedCubinSize",
        output::nvJitLinkGetLinkedPtx as "nvJitLinkGetLinkedPtx",
        output::nvJitLinkGetLinkedPtxSize as "nvJitLinkGetLinkedPtxSize",
    ]
    [
        "_12_0" "_12_1" "_12_2" "_12_3" "_12_4" "_12_5" "_12_6" "_12_7" "_12_8" "_12_9"
        "_13_0" "_13_1" "_13_2" "_13_3" "_13_4" "_13_5" "_13_6" "_13_7" "_13_8" "_13_9"
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_function_are_one_row() {
        for name in ["__nvJitLinkCreate_12_0", "__nvJitLinkCreate_13_12", "nvJitLinkCreate"] {
            assert_eq!(row_name(name), "nvJitLinkCreate");
        }
        for name in ["__nvJitLinkAPI", "__nvJitLink_Create_x", "nvJitLink_12_0", "__", ""] {
            assert_eq!(row_name(name), name);
        }
        assert!(TABLE.windows(2).all(|w| w[0].name < w[1].name));
    }
}
