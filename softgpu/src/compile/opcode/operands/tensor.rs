//! The operands of bulk copies, of what belongs to tensor maps, and of `wgmma`.

use super::rules::{bits, hinted};
use super::*;

/// `cp.async.bulk`, of bytes or of a tensor.
pub(super) fn bulk(form: &Form) -> Option<Demands> {
    let mut roles;
    if form.has("tensor") {
        let rank = (1..=5).find(|rank| form.has(&format!("{rank}d")))?;
        roles = vec![Tensor(rank)];
        if form.has("bulk_group") {
            roles.push(Address);
            return hinted(form, roles, 0);
        }
        if !form.has("prefetch") {
            roles = vec![Address, Tensor(rank), Address];
        }
        if form.has("im2col") {
            roles.push(WideFrom(16, rank.checked_sub(2)? as u32));
        }
    } else {
        roles = vec![Address, From(32)];
        if !form.has("prefetch") {
            roles.insert(0, Address);
            roles.resize(3 + usize::from(!form.has("bulk_group")), Address);
        }
    }
    if form.has("multicast::cluster") {
        roles.push(From(16));
    }
    hinted(form, roles, 0)
}

/// `fence`, which acquires a tensor map that it names.
pub(crate) fn fence(form: &Form, _: usize) -> Option<Demands> {
    let named = form.has("tensormap::generic") && form.has("acquire");
    Demands::exactly(if named { &[Address, Constant] } else { &[] })
}

/// `tensormap`
pub(crate) fn tensormap(form: &Form, _: usize) -> Option<Demands> {
    if form.has("cp_fenceproxy") {
        return Demands::exactly(&[Address, Address, Constant]);
    }
    let value = From(bits(form, 0)?);
    let several = ["box_dim", "global_dim", "global_stride", "element_stride"];
    if several.iter().any(|field| form.has(field)) {
        return Demands::exactly(&[Address, Constant, value]);
    }
    Demands::exactly(&[Address, value])
}

/// `wgmma`
pub(crate) fn wgmma(form: &Form, _: usize) -> Option<Demands> {
    if form.has("wait_group") {
        return Demands::exactly(&[Constant]);
    }
    if !form.has("mma_async") {
        return Demands::exactly(&[]);
    }
    let mut roles = vec![FragmentTo, FragmentFrom, From(64)];
    if form.has("sp") {
        // Which elements of the first matrix are there, and whose words say so.
        roles.extend([From(32), Constant]);
    }
    roles.push(From(1));
    // Signs of products of floating-point numbers, and which matrices in shared memory are transposed.
    let (signs, transposes) = match form.types.get(1)? {
        Type::F16 | Type::Bf16 => (2, 2),
        Type::S8 | Type::U8 => (0, 0),
        _ => (2, 0),
    };
    roles.resize(roles.len() + signs + transposes, Constant);
    Some(Demands { roles, optional: transposes / 2 })
}
