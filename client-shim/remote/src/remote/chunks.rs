//! Cutting a copy into parts that each fit one frame.

use rgpu_device::Region;
use rgpu_protocol::frame::MAX_BULK;

/// Cuts a copy between two regions of equal width, height and depth into smaller ones, in order. With
/// `linear_host` each part's host side is one contiguous run.
pub(super) fn chunks(device: Region, host: Region, linear_host: bool) -> Vec<(Region, Region)> {
    let max = MAX_BULK as u64;
    let Some(bytes) = device.bytes().filter(|b| *b > 0) else { return Vec::new() };
    let (mut device, mut host) = (device, host);
    if device.is_contiguous() && host.is_contiguous() {
        device = Region::linear(device.addr, bytes);
        host = Region::linear(host.addr, bytes);
    }
    let host_rows_touch = host.row_pitch == host.width;
    let group = if linear_host && !host_rows_touch { 1 } else { (max / device.width).max(1) };
    let mut parts = Vec::new();
    for z in 0..device.depth {
        let mut y = 0;
        while y < device.height {
            let height = group.min(device.height - y);
            let mut x = 0;
            while x < device.width {
                let width = max.min(device.width - x);
                let part = |r: &Region| Region {
                    addr: r
                        .addr
                        .wrapping_add(z.wrapping_mul(r.slice_pitch))
                        .wrapping_add(y.wrapping_mul(r.row_pitch))
                        .wrapping_add(x),
                    row_pitch: r.row_pitch,
                    slice_pitch: r.slice_pitch,
                    width,
                    height,
                    depth: 1,
                };
                parts.push((part(&device), part(&host)));
                x += width;
            }
            y += height;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole_and_fit() {
        let max = MAX_BULK as u64;
        let device = Region {
            addr: 0x1000,
            row_pitch: max * 3,
            slice_pitch: max * 9,
            width: max * 2 + 7,
            height: 3,
            depth: 2,
        };
        let host = Region { addr: 0x9000_0000, row_pitch: max * 2 + 7, slice_pitch: max * 6 + 21, ..device };
        let parts = chunks(device, host, false);
        assert_eq!(parts.len(), 2 * 3 * 3);
        assert!(parts.iter().all(|(d, h)| d.bytes() == h.bytes() && d.bytes().unwrap() <= max));
        let sum: u64 = parts.iter().map(|(d, _)| d.bytes().unwrap()).sum();
        assert_eq!(Some(sum), device.bytes());
        assert_eq!(parts[4].1.addr, host.addr + host.row_pitch + max);
    }

    #[test]
    fn narrow_rows_share_a_part() {
        let host = Region { addr: 0, row_pitch: 64, slice_pitch: 640, width: 4, height: 10, depth: 1 };
        let device = Region { row_pitch: 4, slice_pitch: 40, ..host };
        assert_eq!(chunks(device, host, false).len(), 1);
        assert_eq!(chunks(device, host, true).len(), 10);
        let flat = Region::linear(0, 3 * MAX_BULK as u64 + 1);
        assert_eq!(chunks(flat, flat, true).len(), 4);
        assert!(chunks(Region::linear(0, 0), Region::linear(0, 0), false).is_empty());
    }
}
