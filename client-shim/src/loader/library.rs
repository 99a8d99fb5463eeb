//! Redirects the files of NVIDIA's libraries that a [door](crate::libraries) stands in for: a program has opened one by its
//! path, or was linked with it where this library was not found under its name.

use super::link_map::LinkMap;
use super::object_file::Mapping;
use super::redirect::{Outcome, overwrite_functions};
use crate::libraries;

/// Redirects what the object exports, if it is such a file.
///
/// One that has been there for longer than this library is left alone: the program may have used it.
pub(super) fn inspect(map: &LinkMap, may_redirect: bool) -> Outcome {
    let Some((door, version)) = map.soname().and_then(libraries::door_of) else { return Outcome::Nothing };
    if !may_redirect || !super::machine::CAN_REDIRECT || libraries::real::is_copy(map.name()) {
        return Outcome::Nothing;
    }
    let Some(mapping) = Mapping::open(map.name()) else { return Outcome::Nothing };
    let Some(file) = mapping.parse() else { return Outcome::Nothing };
    let Some(symbols) = file.symbols(true) else { return Outcome::Nothing };
    let target = |name: &[u8]| Some(door.target(std::str::from_utf8(name).ok()?, version).0);
    match overwrite_functions(map, &file, &symbols, target) {
        Ok(()) => Outcome::Redirected,
        Err(obstacle) => Outcome::Obstacle(obstacle),
    }
}
