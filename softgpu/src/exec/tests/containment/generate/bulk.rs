//! Bulk copies, by maps of any bytes.

use super::*;

impl Body<'_> {
    /// A bulk copy, of a tensor or of bytes, or a change of what may be a map.
    pub(super) fn bulk(&mut self) {
        let (shared, global, r) = (self.address(".shared"), self.address(".global"), self.narrow());
        let (barrier, value) = (self.address(".shared"), self.wide());
        let map = global.trim_end_matches(']').to_owned();
        let told = "shared::cluster.global.mbarrier::complete_tx::bytes";
        let text = match self.random.below(7) {
            0 => format!("cp.async.bulk.{told} {shared}, {global}, {r}, {barrier};"),
            1 => format!("cp.async.bulk.global.shared::cta.bulk_group {global}, {shared}, {r};"),
            2 => {
                format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 {global}, {shared}, {r};")
            }
            3 => format!("tensormap.replace.tile.global_address.global.b1024.b64 {global}, {value};"),
            4 => format!("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 {shared}, 0, {value};"),
            5 => format!("cp.async.bulk.tensor.1d.{told} {shared}, {map}, {{{r}}}], {barrier};"),
            _ => {
                format!("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group {map}, {{{r}, 0}}], {shared};")
            }
        };
        if self.random.below(3) == 0 {
            for field in
                ["rank.global.b1024.b32", "swizzle_mode.global.b1024.b32", "elemtype.global.b1024.b32"]
            {
                self.line(&format!("tensormap.replace.tile.{field} {global}, 0;"));
            }
            for field in ["box_dim.global.b1024.b32", "element_stride.global.b1024.b32"] {
                let value = if field.starts_with("box") { 64 } else { 1 };
                self.line(&format!("tensormap.replace.tile.{field} {global}, 0, {value};"));
            }
        }
        self.line(&text);
    }
}
