//! The operands of opcodes on textures and surfaces.

use super::rules::bits;
use super::*;

/// How many coordinates a texture or surface is accessed with, the layer included.
fn texel(form: &Form) -> Option<Role<u32>> {
    let counts = [("1d", 1), ("2d", 2), ("3d", 3), ("a1d", 2), ("a2d", 3), ("cube", 3), ("acube", 4)];
    counts.iter().find(|(name, _)| form.has(name)).map(|&(_, count)| Texel(count))
}

/// `tex`
pub(crate) fn tex(form: &Form, _: usize) -> Option<Demands> {
    let mut roles = vec![WideWithPredicate(32, 4), texel(form)?];
    if form.has("level") {
        roles.push(From(32));
    } else if form.has("grad") {
        let parts = match texel(form)? {
            Texel(1) => 1,
            Texel(2) if form.has("a1d") => 1,
            Texel(2 | 3) if !form.has("3d") => 2,
            _ => 4,
        };
        roles.resize(4, WideFrom(32, parts));
    }
    Some(Demands { roles, optional: 0 })
}

/// `tld4`
pub(crate) fn tld4(form: &Form, _: usize) -> Option<Demands> {
    Demands::exactly(&[WideWithPredicate(32, 4), texel(form)?])
}

/// `txq`, `suq`
pub(crate) fn texture_query(form: &Form, _: usize) -> Option<Demands> {
    let roles = [To(32), Object, From(32)];
    Demands::exactly(&roles[..2 + usize::from(form.has("level"))])
}

/// `suld`
pub(crate) fn suld(form: &Form, _: usize) -> Option<Demands> {
    Demands::exactly(&[WideTo(bits(form, 0)?, form.vector), texel(form)?])
}

/// `sust`
pub(crate) fn sust(form: &Form, _: usize) -> Option<Demands> {
    Demands::exactly(&[texel(form)?, WideFrom(bits(form, 0)?, form.vector)])
}

/// `sured`
pub(crate) fn sured(form: &Form, _: usize) -> Option<Demands> {
    Demands::exactly(&[texel(form)?, From(bits(form, 0)?)])
}
