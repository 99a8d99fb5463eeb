//! Redirects the files of NVIDIA's libraries that a [door](crate::libraries) stands in for: a program has opened one by its
//! path, or was linked with it where this library was not found under its name.

use super::link_map::LinkMap;
use super::object_file::Mapping;
use super::redirect::{Outcome, overwrite_functions};
use crate::libraries::{self, nvrtc, real};

/// Redirects what the object exports, if it is such a file.
///
/// One that has been there for longer than this library is left alone: the program may have used it.
pub(super) fn inspect(map: &LinkMap, may_redirect: bool) -> Outcome {
    let Some(name) = map.soname() else { return Outcome::Nothing };
    let (door, is_nvrtc) = (libraries::door_of(name), libraries::is_nvrtc(name));
    if door.is_none() && !is_nvrtc {
        return Outcome::Nothing;
    }
    if !may_redirect || !super::machine::CAN_REDIRECT || real::is_copy(map.name()) {
        return Outcome::Nothing;
    }
    let Some(mapping) = Mapping::open(map.name()) else { return Outcome::Nothing };
    let Some(file) = mapping.parse() else { return Outcome::Nothing };
    let Some(symbols) = file.symbols(true) else { return Outcome::Nothing };
    let done = match door {
        Some((door, version)) => {
            let target = |name: &[u8]| Some(door.target(std::str::from_utf8(name).ok()?, version)?.0);
            overwrite_functions(map, &file, &symbols, target)
        }
        None => {
            let target = |name: &[u8]| {
                let instead = nvrtc::instead_of(name)?;
                let function = symbols.functions().find(|function| function.name == instead)?;
                let address = map.bias().checked_add(usize::try_from(function.address).ok()?)?;
                Some(address as *const ())
            };
            overwrite_functions(map, &file, &symbols, target)
        }
    };
    match done {
        Ok(()) => Outcome::Redirected,
        Err(obstacle) => Outcome::Obstacle(obstacle),
    }
}
