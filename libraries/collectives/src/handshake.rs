//! How both ends of a new connection prove that they know the secret, without saying it.
//!
//! ```text
//! listener → caller   a random number
//! caller → listener   what it comes for, a random number, and the hash of all of that with the secret
//! listener → caller   the hash of all of that with the secret, as the listener's
//! ```
//!
//! Who does not know the secret learns one random number, and nothing of the listener's memory grows.

use crate::socket::Socket;
use crate::wait::Patience;
use crate::{Failure, Result};

const NONCE: usize = 32;
const CALL: usize = 1 + NONCE + blake3::OUT_LEN;

/// What somebody connects for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To join at the rendezvous.
    Join = 1,
    /// To be a rank's connection to another.
    Peer = 2,
}

fn proof(secret: &[u8; 32], side: &[u8], purpose: u8, listener: &[u8], caller: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(b"rgpu nccl ").update(side).update(&[purpose]).update(listener).update(caller);
    hasher.finalize()
}

fn nonce() -> Result<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|e| Failure::System(format!("There are no random numbers: {e}")))?;
    Ok(nonce)
}

/// The caller's side.
pub(crate) fn call(
    socket: &Socket,
    secret: &[u8; 32],
    purpose: Purpose,
    patience: Patience<'_>,
) -> Result<()> {
    let mut theirs = [0; NONCE];
    patience.read(socket, &mut theirs)?;
    let mine = nonce()?;
    let mut message = [0; CALL];
    message[0] = purpose as u8;
    message[1..=NONCE].copy_from_slice(&mine);
    message[1 + NONCE..].copy_from_slice(proof(secret, b"caller", purpose as u8, &theirs, &mine).as_bytes());
    patience.write(socket, &message)?;
    let mut answer = [0; blake3::OUT_LEN];
    patience.read(socket, &mut answer)?;
    if proof(secret, b"listener", purpose as u8, &theirs, &mine) == answer {
        return Ok(());
    }
    Err(Failure::Refused("Who listens there does not know the secret of this communicator".into()))
}

/// The listener's side. Yields what the caller comes for, once it has proved that it may.
pub(crate) fn answer(socket: &Socket, secret: &[u8; 32], patience: Patience<'_>) -> Result<Purpose> {
    let mine = nonce()?;
    patience.write(socket, &mine)?;
    let mut message = [0; CALL];
    patience.read(socket, &mut message)?;
    let theirs = &message[1..=NONCE];
    let stated: [u8; blake3::OUT_LEN] = std::array::from_fn(|i| message[1 + NONCE + i]);
    if proof(secret, b"caller", message[0], &mine, theirs) != stated {
        return Err(Failure::Refused("A caller does not know the secret of this communicator".into()));
    }
    let purpose = match message[0] {
        1 => Purpose::Join,
        2 => Purpose::Peer,
        other => {
            return Err(Failure::Refused(format!("A caller comes for {other}, which is not known here")));
        }
    };
    patience.write(socket, proof(secret, b"listener", message[0], &mine, theirs).as_bytes())?;
    Ok(purpose)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Stop, socket};

    fn meet(caller: [u8; 32], listener: [u8; 32]) -> (Result<()>, Result<Purpose>) {
        let (a, b) = socket::pair().unwrap();
        let stop = Stop::new().unwrap();
        let patience = Patience { stop: &stop, until: None }.at_most(Duration::from_secs(60));
        std::thread::scope(|threads| {
            let answered = threads.spawn(move || answer(&b, &listener, patience));
            (call(&a, &caller, Purpose::Peer, patience), answered.join().unwrap())
        })
    }

    #[test]
    fn only_who_knows_the_secret_comes_in() {
        assert_eq!(meet([1; 32], [1; 32]), (Ok(()), Ok(Purpose::Peer)));
        let (called, answered) = meet([1; 32], [2; 32]);
        assert!(matches!(called, Err(Failure::Lost(_))), "{called:?}");
        assert!(matches!(answered, Err(Failure::Refused(_))), "{answered:?}");
    }
}
