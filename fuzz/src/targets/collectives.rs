//! What ranks that look for each other say, and what those say that have found each other.

use rgpu_collectives::{Entry, Header, Join, Process, UniqueId};

use crate::input::Material;

pub(super) fn said(bytes: &[u8]) -> Result<bool, String> {
    let mut good = false;
    if let Some(id) = UniqueId::parse(bytes) {
        good = true;
        if id.to_bytes() != bytes {
            return Err(format!("{id:?} does not come back"));
        }
    }
    if let Some(join) = Join::parse(bytes) {
        good = true;
        if join.to_bytes() != bytes {
            return Err(format!("{join:?} does not come back"));
        }
        if join.rank >= join.ranks {
            return Err(format!("There is no such rank: {join:?}"));
        }
    }
    if let Some(header) = Header::parse(bytes) {
        good = true;
        if header.to_bytes() != bytes {
            return Err(format!("{header:?} does not come back"));
        }
    }
    Ok(good)
}

pub(super) fn examples() -> Material {
    let (near, far) = (([10, 0, 0, 1], 7070).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into());
    let entry = Entry { address: far, process: Process::this(), device: 3 };
    let header = Header {
        operation: 1,
        element: 7,
        operator: 0,
        step: 1,
        root: 0,
        total: 100,
        sequence: 3,
        bytes: 50,
    };
    let examples = vec![
        UniqueId { address: near, secret: [5; 32], fixed: false }.to_bytes().to_vec(),
        UniqueId { address: far, secret: [6; 32], fixed: true }.to_bytes().to_vec(),
        Join { rank: 1, ranks: 2, entry }.to_bytes().to_vec(),
        header.to_bytes().to_vec(),
    ];
    Material { examples, words: Vec::new() }
}
