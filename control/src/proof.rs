//! What a program shows a server: its lease's token, and the proof that it was issued to this program.
//!
//! A token alone, seen by somebody on the network, is of no use to them: it names the public key of its holder, and each
//! connection signs its own session id, the server's node and the time with the private key. Servers remember session ids
//! for longer than the time would let them pass again. No round trip is spent on this.
//!
//! The time is the program's clock's, and clocks step. So a server has two: the system's, and one that began with the system's when
//! the server did and has gone steadily since. What is good by either is good: where the system's clock steps away from the
//! truth, the steady one is right, and where it was wrong at the start and is set right, the system's is. Since a step must not let
//! old proofs pass again, session ids are forgotten by steady time alone, after a day ([`REMEMBERED_S`]).
//!
//! ```text
//! TOKEN ~ base64(session u64 | time in ms u64 | Ed25519 signature)
//! signed: "rgpu proof\0" BLAKE3(TOKEN) session time node
//! with an encrypted connection: "rgpu bound proof\0" BLAKE3(TOKEN) session time binding node
//! ```
//!
//! The *binding* is the SHA-256 fingerprint of the certificate that the server has shown (as `tls-server-end-point`, RFC 5929).
//! Whoever gets between the two has another certificate, and what is signed for that is of no use with the server's.

use std::collections::{HashSet, VecDeque};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::token::{CLOCK_SKEW_S, Claims, LeaseClaims, PrivateKey, PublicKey, TokenError};

/// How far from the server's clock the proof's time may be.
pub const PROOF_WINDOW_S: u64 = 2 * CLOCK_SKEW_S;

/// For how many seconds of steady time a session id is remembered: a clock that steps back by less than that lets nothing pass again.
pub const REMEMBERED_S: u64 = 86_400;

/// The most session ids that are remembered; beyond that, the oldest go whose proofs' time has passed by both clocks.
const MOST: usize = 1 << 20;

/// A moment by a server's clocks, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Since 1970, by the system's clock, which may step.
    pub unix_ms: u64,
    /// Since some time in the past, by a clock that never steps.
    pub steady_ms: u64,
}

impl Moment {
    /// Now, with the steady time since `begun`.
    pub fn since(begun: Instant) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { unix_ms: unix.as_millis() as u64, steady_ms: begun.elapsed().as_millis() as u64 }
    }
}

/// What ties a proof to encrypted connections with one server.
pub type Binding = [u8; 32];

fn signed(token: &str, session: u64, time_ms: u64, node: &str, binding: Option<&Binding>) -> Vec<u8> {
    let mut bytes = match binding {
        None => b"rgpu proof\0".to_vec(),
        Some(_) => b"rgpu bound proof\0".to_vec(),
    };
    bytes.extend(blake3::hash(token.as_bytes()).as_bytes());
    bytes.extend(session.to_le_bytes());
    bytes.extend(time_ms.to_le_bytes());
    bytes.extend(binding.into_iter().flatten());
    bytes.extend(node.as_bytes());
    bytes
}

/// The hello's credential for a session with a node's server, over a connection that is not encrypted.
pub fn present(token: &str, key: &PrivateKey, session: u64, node: &str, time_ms: u64) -> Vec<u8> {
    present_bound(token, key, session, node, time_ms, None)
}

/// The hello's credential for a session with a node's server, over an encrypted connection with this binding.
pub fn present_bound(
    token: &str,
    key: &PrivateKey,
    session: u64,
    node: &str,
    time_ms: u64,
    binding: Option<&Binding>,
) -> Vec<u8> {
    let mut proof = Vec::with_capacity(80);
    proof.extend(session.to_le_bytes());
    proof.extend(time_ms.to_le_bytes());
    proof.extend(key.sign_bytes(&signed(token, session, time_ms, node, binding)));
    format!("{token}~{}", URL_SAFE_NO_PAD.encode(proof)).into_bytes()
}

/// What a server checks credentials against.
#[derive(Debug)]
pub struct Verifier {
    broker: PublicKey,
    node: String,
    /// Session ids that were presented.
    seen: HashSet<u64>,
    /// The same in the order in which they came: when that was, and the proof's time.
    order: VecDeque<(u64, u64, u64)>,
    /// Proofs from before may have been seen by an earlier process.
    begun: Moment,
}

/// A clock's time, and what it was when the verifier began.
#[derive(Clone, Copy)]
struct Clock {
    now_ms: u64,
    begun_ms: u64,
}

impl Clock {
    /// Whether a proof that was made then is neither too old nor from the future, and not from before the beginning.
    fn check(self, time_ms: u64) -> Result<(), TokenError> {
        let off = self.now_ms.abs_diff(time_ms);
        match off > PROOF_WINDOW_S * 1000 || time_ms < self.begun_ms {
            true => Err(TokenError::Stale { by_s: off / 1000 }),
            false => Ok(()),
        }
    }
}

impl Verifier {
    /// For a node's server, which begins at a moment.
    pub fn new(broker: PublicKey, node: impl Into<String>, begun: Moment) -> Self {
        Self { broker, node: node.into(), seen: HashSet::new(), order: VecDeque::new(), begun }
    }

    /// The broker's key.
    pub fn broker(&self) -> PublicKey {
        self.broker
    }

    /// The system's clock, and the one that has gone steadily since the beginning.
    fn clocks(&self, now: Moment) -> [Clock; 2] {
        let elapsed = now.steady_ms.saturating_sub(self.begun.steady_ms);
        // By a clock that was set since, the beginning was at another time.
        [now.unix_ms, self.begun.unix_ms.saturating_add(elapsed)]
            .map(|now_ms| Clock { now_ms, begun_ms: now_ms.saturating_sub(elapsed) })
    }

    /// Checks the credential of a session's hello. The same session is admitted once.
    ///
    /// Proofs from before the server began are refused as stale: an earlier process may have admitted them.
    pub fn admit(&mut self, credential: &[u8], session: u64, now: Moment) -> Result<LeaseClaims, TokenError> {
        self.admit_bound(credential, session, now, None)
    }

    /// The same for a session over an encrypted connection that has this binding: a proof without one, or with another one, is
    /// refused, as is one with a binding over a connection that has none.
    pub fn admit_bound(
        &mut self,
        credential: &[u8],
        session: u64,
        now: Moment,
        binding: Option<&Binding>,
    ) -> Result<LeaseClaims, TokenError> {
        let text = std::str::from_utf8(credential).map_err(|_| TokenError::Malformed)?;
        let (token, proof) = text.split_once('~').unwrap_or((text, ""));
        let clocks = self.clocks(now);
        let said = self.broker.verify_signature(token)?;
        either(clocks.map(|clock| said.check_times(clock.now_ms / 1000)))?;
        let claims = match said {
            Claims::Lease(claims) => claims,
            other => return Err(TokenError::Kind { found: other.kind(), wanted: "a lease" }),
        };
        let proof = URL_SAFE_NO_PAD.decode(proof).map_err(|_| TokenError::Proof)?;
        let proof: [u8; 80] = proof.try_into().map_err(|_| TokenError::Proof)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| proof[at + i]));
        let (proved, time_ms) = (number(0), number(8));
        let signature: [u8; 64] = std::array::from_fn(|i| proof[16 + i]);
        let holder = PublicKey::parse(&claims.holder).ok_or(TokenError::Malformed)?;
        let good = holder.verify_bytes(&signed(token, proved, time_ms, &self.node, binding), &signature);
        if !good || proved != session {
            return Err(TokenError::Proof);
        }
        // One clock says yes to both, or neither counts.
        let by = |clock: Clock| {
            Claims::Lease(claims.clone()).check_times(clock.now_ms / 1000)?;
            clock.check(time_ms)
        };
        either(clocks.map(by))?;
        self.forget(now, &clocks);
        if !self.seen.insert(session) {
            return Err(TokenError::Replayed);
        }
        self.order.push_back((session, now.steady_ms, time_ms));
        if !claims.grants.iter().any(|grant| grant.node == self.node) {
            return Err(TokenError::Elsewhere { node: self.node.clone() });
        }
        Ok(claims)
    }

    /// Forgets sessions that were presented long ago.
    fn forget(&mut self, now: Moment, clocks: &[Clock; 2]) {
        while let Some((session, at, time_ms)) = self.order.front().copied() {
            let old = now.steady_ms.saturating_sub(at) > REMEMBERED_S * 1000;
            let crowded =
                self.order.len() >= MOST && clocks.iter().all(|clock| clock.check(time_ms).is_err());
            if !old && !crowded {
                return;
            }
            self.order.pop_front();
            self.seen.remove(&session);
        }
    }
}

/// Good if one is; else what the first says, which is the system's clock.
fn either([system, steady]: [Result<(), TokenError>; 2]) -> Result<(), TokenError> {
    if steady.is_ok() { Ok(()) } else { system }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaseId;
    use crate::token::{Claims, Grant};

    const NOW: u64 = 1_500_000;

    /// A moment without steps of the clock.
    fn at(unix_ms: u64) -> Moment {
        Moment { unix_ms, steady_ms: unix_ms }
    }

    fn token(broker: &PrivateKey, holder: &PrivateKey, node: &str) -> String {
        let grant = Grant { node: node.into(), device: 0, memory: 1, share_milli: 1000 };
        broker.sign(&Claims::Lease(LeaseClaims {
            lease: LeaseId(1),
            version: 1,
            orders: 1,
            tenant: "t".into(),
            not_before: 1000,
            expires: 2000,
            holder: holder.public().to_text(),
            transport: "auto".into(),
            encrypt: false,
            grants: vec![grant],
        }))
    }

    #[test]
    fn a_session_is_admitted_once_and_only_its_holder() {
        let (broker, holder, thief) =
            (PrivateKey::generate(), PrivateKey::generate(), PrivateKey::generate());
        let token = token(&broker, &holder, "n0");
        let mut verifier = Verifier::new(broker.public(), "n0", at(NOW - 500_000));
        let good = present(&token, &holder, 5, "n0", NOW);
        assert_eq!(verifier.admit(&good, 5, at(NOW)).unwrap().lease, LeaseId(1));
        assert_eq!(verifier.admit(&good, 5, at(NOW + 1)), Err(TokenError::Replayed));
        assert_eq!(verifier.admit(&good, 6, at(NOW)), Err(TokenError::Proof));
        assert_eq!(verifier.admit(token.as_bytes(), 7, at(NOW)), Err(TokenError::Proof));
        assert_eq!(
            verifier.admit(&present(&token, &thief, 8, "n0", NOW), 8, at(NOW)),
            Err(TokenError::Proof)
        );
        let elsewhere = present(&token, &holder, 9, "n1", NOW);
        assert_eq!(verifier.admit(&elsewhere, 9, at(NOW)), Err(TokenError::Proof));
        let late = NOW + PROOF_WINDOW_S * 1000 + 1;
        let again = verifier.admit(&good, 5, at(late));
        assert_eq!(again, Err(TokenError::Stale { by_s: PROOF_WINDOW_S }));
        assert_eq!(verifier.admit(b"\xff", 5, at(NOW)), Err(TokenError::Malformed));
    }

    #[test]
    fn a_proof_that_is_bound_to_a_connection_is_good_for_that_one_alone() {
        let (broker, holder) = (PrivateKey::generate(), PrivateKey::generate());
        let token = token(&broker, &holder, "n0");
        let mut verifier = Verifier::new(broker.public(), "n0", at(NOW));
        let bound = |binding| present_bound(&token, &holder, 1, "n0", NOW, binding);
        for (shown, has) in [(Some(&[7; 32]), None), (Some(&[7; 32]), Some(&[8; 32])), (None, Some(&[7; 32]))]
        {
            assert_eq!(verifier.admit_bound(&bound(shown), 1, at(NOW), has), Err(TokenError::Proof));
        }
        assert!(verifier.admit_bound(&bound(Some(&[7; 32])), 1, at(NOW), Some(&[7; 32])).is_ok());
    }

    #[test]
    fn leases_of_other_nodes_and_proofs_from_before_are_refused() {
        let (broker, holder) = (PrivateKey::generate(), PrivateKey::generate());
        let mut verifier = Verifier::new(broker.public(), "n0", at(NOW));
        let other = token(&broker, &holder, "n1");
        let refused = verifier.admit(&present(&other, &holder, 1, "n0", NOW), 1, at(NOW));
        assert_eq!(refused, Err(TokenError::Elsewhere { node: "n0".into() }));
        let own = token(&broker, &holder, "n0");
        let early = present(&own, &holder, 2, "n0", NOW - 1);
        assert!(matches!(verifier.admit(&early, 2, at(NOW)), Err(TokenError::Stale { .. })));
    }

    #[test]
    fn a_clock_that_steps_shuts_nobody_out_and_lets_nothing_pass_twice() {
        let (broker, holder) = (PrivateKey::generate(), PrivateKey::generate());
        let token = token(&broker, &holder, "n0");
        let mut verifier = Verifier::new(broker.public(), "n0", at(NOW));
        let mut session = 0;
        let mut present_at = |time_ms: u64| {
            session += 1;
            (present(&token, &holder, session, "n0", time_ms), session)
        };
        let moment = |steady_ms: u64, step_ms: i64| Moment {
            unix_ms: (NOW + steady_ms).saturating_add_signed(step_ms),
            steady_ms: NOW + steady_ms,
        };
        let hour = 3_600_000;
        // The server's clock steps back, and forward: programs, whose clocks are right, are served.
        for (steady_ms, step_ms) in [(1000, -hour), (2000, hour), (3000, 0), (4000, -10_000)] {
            let (good, session) = present_at(NOW + steady_ms);
            verifier.admit(&good, session, moment(steady_ms, step_ms)).unwrap();
        }
        // It was wrong when the server began, and is set right.
        for wrong in [-hour, hour] {
            let mut verifier = Verifier::new(broker.public(), "n0", moment(0, wrong));
            let (good, session) = present_at(NOW + 1000);
            verifier.admit(&good, session, moment(1000, 0)).unwrap();
            // What an earlier process has seen stays refused.
            let (early, session) = present_at(NOW - 1);
            assert!(matches!(
                verifier.admit(&early, session, moment(1000, 0)),
                Err(TokenError::Stale { .. })
            ));
        }
        // Forward, so that everything seems long ago, and back.
        let (good, session) = present_at(NOW + 5000);
        verifier.admit(&good, session, moment(5000, 0)).unwrap();
        let (other, next) = present_at(NOW + 6000);
        verifier.admit(&other, next, moment(6000, 10 * hour)).unwrap();
        assert_eq!(verifier.admit(&good, session, moment(7000, 0)), Err(TokenError::Replayed));
        // Much later the token is over; a clock that steps back to when it was not finds the session remembered.
        let later = 5 * 3_600_000;
        let back = -(later as i64);
        assert_eq!(verifier.admit(&good, session, moment(later + 5000, back)), Err(TokenError::Replayed));
    }
}
