//! The numbers that the peer sends: how much it has written, and how much it has read. They are believed within the ring's
//! bounds only.

use super::RING;
use super::endpoint::DEPTH;

/// How many bytes have arrived in all, after the peer says that `more` have, of which `read` were read. `None` where it claims
/// to have written more than there is room for.
pub(in crate::transport) fn arrived(arrived: u64, read: u64, more: u32) -> Option<u64> {
    let arrived = arrived.checked_add(more.into())?;
    (arrived.checked_sub(read)? <= RING as u64).then_some(arrived)
}

/// What the peer's ring has room for, after it says to have read `read` of the `written` bytes and to have heard `heard` of
/// the `messages`. `None` where it claims to have read or heard what was never sent.
pub(in crate::transport) fn room(written: u64, read: u64, messages: u64, heard: u64) -> Option<usize> {
    let (used, unheard) = (written.checked_sub(read)?, messages.checked_sub(heard)?);
    if used > RING as u64 || unheard >= u64::from(DEPTH) {
        return Some(0);
    }
    Some(RING - used as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_number_leads_out_of_the_ring(before: u64, read: u64, more: u32, written: u64, messages: u64, heard: u64) {
            if let Some(now) = arrived(before, read, more) {
                prop_assert!(now - read <= RING as u64 && now >= before);
            }
            prop_assert!(room(written, read, messages, heard).is_none_or(|room| room <= RING));
            prop_assert_eq!(room(written, written, messages, messages), Some(RING));
            prop_assert_eq!(room(written, written.saturating_add(1), messages, messages), (written == u64::MAX).then_some(RING));
        }
    }

    #[test]
    fn a_peer_that_writes_too_much_is_found_out() {
        assert_eq!(arrived(10, 10, RING as u32), Some(10 + RING as u64));
        assert_eq!(arrived(10, 10, RING as u32 + 1), None);
        assert_eq!(arrived(u64::MAX, u64::MAX, 1), None);
        assert_eq!(room(5, 6, 0, 0), None);
        assert_eq!(room(6, 5, 3, 4), None);
        assert_eq!(room(u64::MAX, 0, 0, 0), Some(0));
    }
}
