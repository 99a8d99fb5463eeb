//! What a program shows a server: its lease's token, and the proof that it was issued to this program.
//!
//! A token alone, seen by somebody on the network, is of no use to them: it names the public key of its holder, and each
//! connection signs its own session id, the server's node and the time with the private key. Servers remember session ids
//! for as long as the time would let them pass again. No round trip is spent on this.
//!
//! ```text
//! TOKEN ~ base64(session u64 | time in ms u64 | Ed25519 signature)
//! signed: "rgpu proof\0" BLAKE3(TOKEN) session time node
//! with an encrypted connection: "rgpu bound proof\0" BLAKE3(TOKEN) session time binding node
//! ```
//!
//! The *binding* is the SHA-256 fingerprint of the certificate that the server has shown (as `tls-server-end-point`, RFC 5929).
//! Whoever gets between the two has another certificate, and what is signed for that is of no use with the server's.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::token::{CLOCK_SKEW_S, LeaseClaims, PrivateKey, PublicKey, TokenError};

/// How far from the server's clock the proof's time may be.
pub const PROOF_WINDOW_S: u64 = 2 * CLOCK_SKEW_S;

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
    /// Session ids that were presented, and until when (in ms) they would pass again.
    seen: HashMap<u64, u64>,
    /// Proofs from before (in ms) may have been seen by an earlier process.
    since_ms: u64,
}

impl Verifier {
    /// For a node's server, which begins at a time.
    pub fn new(broker: PublicKey, node: impl Into<String>, now_ms: u64) -> Self {
        Self { broker, node: node.into(), seen: HashMap::new(), since_ms: now_ms }
    }

    /// The broker's key.
    pub fn broker(&self) -> PublicKey {
        self.broker
    }

    /// Checks the credential of a session's hello. The same session is admitted once.
    ///
    /// Proofs from before the server began are refused as stale: an earlier process may have admitted them.
    pub fn admit(&mut self, credential: &[u8], session: u64, now_ms: u64) -> Result<LeaseClaims, TokenError> {
        self.admit_bound(credential, session, now_ms, None)
    }

    /// The same for a session over an encrypted connection that has this binding: a proof without one, or with another one, is
    /// refused, as is one with a binding over a connection that has none.
    pub fn admit_bound(
        &mut self,
        credential: &[u8],
        session: u64,
        now_ms: u64,
        binding: Option<&Binding>,
    ) -> Result<LeaseClaims, TokenError> {
        let text = std::str::from_utf8(credential).map_err(|_| TokenError::Malformed)?;
        let (token, proof) = text.split_once('~').unwrap_or((text, ""));
        let claims = self.broker.verify_lease(token, now_ms / 1000)?;
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
        let window_ms = PROOF_WINDOW_S * 1000;
        let by_s = now_ms.abs_diff(time_ms) / 1000;
        if now_ms.abs_diff(time_ms) > window_ms || time_ms < self.since_ms {
            return Err(TokenError::Stale { by_s });
        }
        self.seen.retain(|_, until| *until >= now_ms);
        if self.seen.insert(session, time_ms + window_ms).is_some() {
            return Err(TokenError::Replayed);
        }
        if !claims.grants.iter().any(|grant| grant.node == self.node) {
            return Err(TokenError::Elsewhere { node: self.node.clone() });
        }
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaseId;
    use crate::token::{Claims, Grant};

    const NOW: u64 = 1_500_000;

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
        let mut verifier = Verifier::new(broker.public(), "n0", NOW - 500_000);
        let good = present(&token, &holder, 5, "n0", NOW);
        assert_eq!(verifier.admit(&good, 5, NOW).unwrap().lease, LeaseId(1));
        assert_eq!(verifier.admit(&good, 5, NOW + 1), Err(TokenError::Replayed));
        assert_eq!(verifier.admit(&good, 6, NOW), Err(TokenError::Proof));
        assert_eq!(verifier.admit(token.as_bytes(), 7, NOW), Err(TokenError::Proof));
        assert_eq!(verifier.admit(&present(&token, &thief, 8, "n0", NOW), 8, NOW), Err(TokenError::Proof));
        let elsewhere = present(&token, &holder, 9, "n1", NOW);
        assert_eq!(verifier.admit(&elsewhere, 9, NOW), Err(TokenError::Proof));
        let late = NOW + PROOF_WINDOW_S * 1000 + 1;
        let again = verifier.admit(&good, 5, late);
        assert_eq!(again, Err(TokenError::Stale { by_s: PROOF_WINDOW_S }));
        assert_eq!(verifier.admit(b"\xff", 5, NOW), Err(TokenError::Malformed));
    }

    #[test]
    fn a_proof_that_is_bound_to_a_connection_is_good_for_that_one_alone() {
        let (broker, holder) = (PrivateKey::generate(), PrivateKey::generate());
        let token = token(&broker, &holder, "n0");
        let mut verifier = Verifier::new(broker.public(), "n0", NOW);
        let bound = |binding| present_bound(&token, &holder, 1, "n0", NOW, binding);
        for (shown, has) in [(Some(&[7; 32]), None), (Some(&[7; 32]), Some(&[8; 32])), (None, Some(&[7; 32]))]
        {
            assert_eq!(verifier.admit_bound(&bound(shown), 1, NOW, has), Err(TokenError::Proof));
        }
        assert!(verifier.admit_bound(&bound(Some(&[7; 32])), 1, NOW, Some(&[7; 32])).is_ok());
    }

    #[test]
    fn leases_of_other_nodes_and_proofs_from_before_are_refused() {
        let (broker, holder) = (PrivateKey::generate(), PrivateKey::generate());
        let mut verifier = Verifier::new(broker.public(), "n0", NOW);
        let other = token(&broker, &holder, "n1");
        let refused = verifier.admit(&present(&other, &holder, 1, "n0", NOW), 1, NOW);
        assert_eq!(refused, Err(TokenError::Elsewhere { node: "n0".into() }));
        let own = token(&broker, &holder, "n0");
        let early = present(&own, &holder, 2, "n0", NOW - 1);
        assert!(matches!(verifier.admit(&early, 2, NOW), Err(TokenError::Stale { .. })));
    }
}
