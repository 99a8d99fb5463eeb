//! Device memory that applications' processes lend to others of their tenant.
//!
//! A process that is to lend a part of a memory file of its own hands the daemon the descriptor, which keeps it under a random
//! token. Another application's process that names the token gets a descriptor of the same file, if both are of one tenant (the
//! program's user, its server's token, or its lease's tenant: [`Tenant`]). For anybody else there is no such token. When the lender
//! has gone, so has what it lent; who has mapped it already keeps that.

use crate::store::Tenant;
use parking_lot::Mutex;
use rgpu_protocol::transport::pass::SEALS;
use rustix::fs::{fcntl_get_seals, fstat};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What lent memory is known by. It cannot be guessed.
pub type Token = [u8; 32];

/// So many parts one process lends at most.
const MOST_LENT: usize = 1 << 16;
/// Of so many files at most: it has one for each device.
const MOST_FILES: usize = 64;

/// A part of a memory file.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Where the part begins in it.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

#[derive(Debug)]
struct Lent {
    tenant: Tenant,
    lender: u64,
    piece: Piece,
}

/// What is lent at present.
#[derive(Debug, Default)]
pub struct Shelf {
    lent: Mutex<HashMap<Token, Lent>>,
    next: AtomicU64,
}

impl Shelf {
    /// A process of a tenant, which may lend and borrow.
    pub fn member(self: &Arc<Self>, tenant: Tenant) -> Member {
        let number = self.next.fetch_add(1, Relaxed);
        Member { shelf: self.clone(), tenant, number, files: HashMap::new(), lent: 0 }
    }
}

/// One process's way to the [`Shelf`]. What it lends is there as long as this.
#[derive(Debug)]
pub struct Member {
    shelf: Arc<Shelf>,
    tenant: Tenant,
    number: u64,
    /// Its files, each once.
    files: HashMap<u64, Arc<OwnedFd>>,
    lent: usize,
}

impl Member {
    /// Lends a part of a file. False where the file is none that others could be handed, or where it is too much.
    pub fn lend(&mut self, token: Token, file: OwnedFd, offset: u64, size: u64) -> bool {
        let Ok(about) = fstat(&file) else { return false };
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        let inside = offset.checked_add(size).is_some_and(|end| end <= about.st_size as u64);
        if !sealed || !inside || self.lent >= MOST_LENT {
            return false;
        }
        if !self.files.contains_key(&about.st_ino) && self.files.len() >= MOST_FILES {
            return false;
        }
        let mut shelf = self.shelf.lent.lock();
        if shelf.contains_key(&token) {
            return false;
        }
        let file = self.files.entry(about.st_ino).or_insert_with(|| Arc::new(file)).clone();
        let lent =
            Lent { tenant: self.tenant.clone(), lender: self.number, piece: Piece { file, offset, size } };
        shelf.insert(token, lent);
        self.lent += 1;
        true
    }

    /// What a process of the same tenant, but not this one, lends under a token.
    pub fn borrow(&self, token: &Token) -> Option<Piece> {
        let shelf = self.shelf.lent.lock();
        let lent = shelf.get(token)?;
        (lent.tenant == self.tenant && lent.lender != self.number).then(|| lent.piece.clone())
    }

    /// Lends something no longer.
    pub fn withdraw(&mut self, token: &Token) {
        let mut shelf = self.shelf.lent.lock();
        if shelf.get(token).is_some_and(|lent| lent.lender == self.number) {
            shelf.remove(token);
            self.lent -= 1;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.lent > 0 {
            self.shelf.lent.lock().retain(|_, lent| lent.lender != self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::sys::memory_file;
    use rgpu_protocol::transport::pass::sealed_memory_file;

    fn file() -> OwnedFd {
        sealed_memory_file(c"device", 1 << 20).unwrap()
    }

    #[test]
    fn only_others_of_the_same_tenant_borrow() {
        let shelf = Arc::new(Shelf::default());
        let mut lender = shelf.member(Tenant::of_user(7));
        let (friend, stranger) = (shelf.member(Tenant::of_user(7)), shelf.member(Tenant::of_user(8)));
        assert!(lender.lend([1; 32], file(), 4096, 8192));
        let piece = friend.borrow(&[1; 32]).unwrap();
        assert_eq!((piece.offset, piece.size), (4096, 8192));
        assert!(stranger.borrow(&[1; 32]).is_none(), "it is another tenant's");
        assert!(lender.borrow(&[1; 32]).is_none(), "it is its own");
        assert!(friend.borrow(&[2; 32]).is_none());
        // Only the lender takes it back.
        let mut friend = friend;
        friend.withdraw(&[1; 32]);
        assert!(friend.borrow(&[1; 32]).is_some());
        lender.withdraw(&[1; 32]);
        assert!(friend.borrow(&[1; 32]).is_none());
        assert!(lender.lend([3; 32], file(), 0, 4096));
        drop(lender);
        assert!(friend.borrow(&[3; 32]).is_none() && shelf.lent.lock().is_empty());
    }

    #[test]
    fn what_could_shrink_or_is_too_short_is_not_lent() {
        let shelf = Arc::new(Shelf::default());
        let mut lender = shelf.member(Tenant::of_user(7));
        assert!(!lender.lend([1; 32], memory_file(c"open").unwrap(), 0, 0));
        assert!(!lender.lend([1; 32], file(), 1 << 20, 4096) && !lender.lend([1; 32], file(), u64::MAX, 2));
        assert!(lender.lend([1; 32], file(), 0, 1 << 20) && !lender.lend([1; 32], file(), 0, 4096));
        // One file for each device, and no more.
        let files = (2..200).filter(|n| lender.lend([*n; 32], file(), 0, 4096)).count();
        assert_eq!(files, MOST_FILES - 1);
    }
}
