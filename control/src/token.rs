//! Keys, and what is signed with them.
//!
//! A token is text: `rgpu1.BODY.SIGNATURE`, both parts in base64 (URL alphabet, no padding). The body is JSON, one of
//! [`Claims`]; the signature is Ed25519 over `rgpu1.BODY`. Whoever has the broker's public key can check one without asking
//! anybody.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::LeaseId;

/// What every token begins with.
const PREFIX: &str = "rgpu1";
/// The longest token that is looked at.
pub const MAX_TOKEN: usize = 6 << 10;
/// By how many seconds clocks may differ.
pub const CLOCK_SKEW_S: u64 = 30;

/// Why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It isn't one.
    #[error("this is no token of rgpu's")]
    Malformed,
    /// Somebody else signed it, or changed it.
    #[error("the token's signature is not the broker's: it was forged, damaged, or issued by another broker")]
    Forged,
    /// Its time is over.
    #[error("the token expired {ago_s} s ago: ask for another one, and compare the clocks of both machines")]
    Expired {
        /// Seconds since then.
        ago_s: u64,
    },
    /// Its time has not come.
    #[error("the token is valid only in {in_s} s: compare the clocks of both machines")]
    TooEarly {
        /// Seconds until then.
        in_s: u64,
    },
    /// It is good for something else.
    #[error("the token is for {found}, and {wanted} is needed here")]
    Kind {
        /// What it is for.
        found: &'static str,
        /// What was needed.
        wanted: &'static str,
    },
    /// The proof that belongs to it is wrong or missing.
    #[error("the token comes without the proof that it was issued to whoever presents it")]
    Proof,
    /// The proof was made too long ago, or its maker's clock is wrong.
    #[error("the token's proof is {by_s} s off this machine's clock: compare the clocks of both machines")]
    Stale {
        /// Seconds by which it is off.
        by_s: u64,
    },
    /// The proof was presented before.
    #[error("the token's proof was presented before: somebody has replayed it")]
    Replayed,
    /// The lease gives nothing of this server.
    #[error("the lease gives no device of this server ({node})")]
    Elsewhere {
        /// The server's node.
        node: String,
    },
    /// The lease has ended.
    #[error("the lease {0} has ended")]
    Ended(LeaseId),
    /// It was withdrawn.
    #[error("the token {0} was withdrawn: ask the broker's administrator for another one")]
    Withdrawn(String),
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Ask for leases, and see one's own.
    Tenant,
    /// Offer devices.
    Node,
    /// Ask for leases on behalf of tenants whose names begin with its own and a slash, such as `slurm/physics` for the engine
    /// `slurm`, and see, renew and give back theirs.
    Engine,
}

impl Role {
    /// Its name, as tokens and configurations spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Tenant => "tenant",
            Self::Node => "node",
            Self::Engine => "engine",
        }
    }

    /// All of them.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Tenant, Self::Node, Self::Engine];

    /// Whether a caller of this role and name acts for a tenant: a tenant for itself; an engine for the tenant of its own name and
    /// those of which it begins the names. Only who does may use the tenant's leases.
    pub fn acts_for(self, name: &str, tenant: &str) -> bool {
        match self {
            Self::Admin | Self::Tenant => tenant == name,
            Self::Engine => {
                let rest = tenant.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(TENANT_SEPARATOR))
            }
            Self::Node => false,
        }
    }
}

/// What stands between the name of an engine and that of one of its tenants.
pub const TENANT_SEPARATOR: char = '/';

/// Who somebody is towards the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleClaims {
    /// What they may do.
    pub role: Role,
    /// The tenant's, node's, engine's or administrator's name.
    pub name: String,
    /// From when on the token counts, in seconds since 1970.
    pub not_before: u64,
    /// Until when the token counts, in seconds since 1970.
    pub expires: u64,
}

/// A part of a device, as a lease gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The node that has it.
    pub node: String,
    /// The device's number in its node.
    pub device: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Share of its time, in thousandths; 1000 is all of it.
    pub share_milli: u16,
}

/// What a program may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseClaims {
    /// The lease that the token speaks of.
    pub lease: LeaseId,
    /// How often it has been changed: of two tokens of a lease the one with the higher version counts.
    pub version: u64,
    /// The version of the broker's [orders](crate::api::Orders) from which on they name the lease. Orders of an earlier version
    /// say nothing about it; later ones that lack it have ended it.
    pub orders: u64,
    /// Whose it is.
    pub tenant: String,
    /// From when on the token counts, in seconds since 1970.
    pub not_before: u64,
    /// Until when the token counts, in seconds since 1970.
    pub expires: u64,
    /// The public key (base64) of whoever it was issued to; see [`crate::proof`].
    pub holder: String,
    /// Which transport is to be used: `auto`, `shm`, `tcp` or `rdma`.
    pub transport: String,
    /// Whether servers take it only over connections that are encrypted, or don't leave the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypt: bool,
    /// What it gives, in the order of the program's device ordinals.
    pub grants: Vec<Grant>,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claims {
    /// Who somebody is.
    Role(RoleClaims),
    /// What a program may use.
    Lease(LeaseClaims),
}

impl Claims {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Role(claims) => match claims.role {
                Role::Admin => "an administrator",
                Role::Tenant => "a tenant",
                Role::Node => "a node",
                Role::Engine => "an engine",
            },
            Self::Lease(_) => "a lease",
        }
    }

    /// Whether `now`, in seconds since 1970, is between the claims' times, with a tolerance of [`CLOCK_SKEW_S`].
    pub fn check_times(&self, now: u64) -> Result<(), TokenError> {
        let (not_before, expires) = self.times();
        if now > expires.saturating_add(CLOCK_SKEW_S) {
            return Err(TokenError::Expired { ago_s: now - expires });
        }
        if now.saturating_add(CLOCK_SKEW_S) < not_before {
            return Err(TokenError::TooEarly { in_s: not_before - now });
        }
        Ok(())
    }

    fn times(&self) -> (u64, u64) {
        match self {
            Self::Role(claims) => (claims.not_before, claims.expires),
            Self::Lease(claims) => (claims.not_before, claims.expires),
        }
    }
}

/// What a token says, whoever signed it: for its bearer, who cannot check it and need not. Nobody else may trust that.
pub fn peek(token: &str) -> Result<Claims, TokenError> {
    let mut parts = token.trim().split('.');
    let (Some(PREFIX), Some(body), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Malformed);
    };
    if body.len() > MAX_TOKEN {
        return Err(TokenError::Malformed);
    }
    let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&body).map_err(|_| TokenError::Malformed)
}

/// For how long a lease's token is good that was just issued, a second at least. That is by the broker's clock alone: this machine's may
/// be wrong.
pub fn lifetime(token: &str) -> Duration {
    let seconds = match peek(token) {
        Ok(Claims::Lease(claims)) => claims.expires.saturating_sub(claims.not_before),
        _ => 0,
    };
    Duration::from_secs(seconds.max(1))
}

/// Whether a token says that it is an engine's, whoever signed it: for its bearer, who then says on behalf of whom it asks.
pub fn is_engines(token: &str) -> bool {
    matches!(peek(token), Ok(Claims::Role(RoleClaims { role: Role::Engine, .. })))
}

/// What a token is called where it is listed or withdrawn: 16 hexadecimal digits, which are made of what it says. They do not
/// tell the token.
pub fn id(token: &str) -> String {
    let token = token.trim();
    let said = token.rsplit_once('.').map_or(token, |(said, _)| said);
    blake3::hash(said.as_bytes()).to_hex()[..16].to_owned()
}

/// Random bytes, fit for keys.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's source doesn't fail once it works; there is nothing that could be done without it.
    getrandom::fill(&mut bytes).expect("the system has no source of random numbers");
    bytes
}

/// A private key.
#[derive(Clone)]
pub struct PrivateKey(SigningKey);

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivateKey(of {})", self.public().to_text())
    }
}

impl PrivateKey {
    /// A new one.
    pub fn generate() -> Self {
        Self(SigningKey::from_bytes(&random_bytes()))
    }

    /// The key that follows from a secret for one purpose: whoever has the secret derives the same one, and from the key nothing
    /// can be told about the secret or the keys of other purposes. The secret must be hard to guess (32 random bytes, or a token).
    pub fn derive(secret: &[u8], purpose: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("rgpu holder key of an engine's lease, version 1");
        hasher.update(&(secret.len() as u64).to_le_bytes()).update(secret).update(purpose.as_bytes());
        Self(SigningKey::from_bytes(hasher.finalize().as_bytes()))
    }

    /// The key as text, to be kept secret.
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.to_bytes())
    }

    /// The key that [`PrivateKey::to_text`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(text.trim()).ok()?.try_into().ok()?;
        Some(Self(SigningKey::from_bytes(&bytes)))
    }

    /// What others check signatures with.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs claims: the token.
    pub fn sign(&self, claims: &Claims) -> String {
        // Maps with text keys, numbers and text always have a JSON form.
        let body = serde_json::to_vec(claims).expect("claims are JSON");
        let mut token = format!("{PREFIX}.{}", URL_SAFE_NO_PAD.encode(body));
        let signature = self.sign_bytes(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    pub(crate) fn sign_bytes(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }
}

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.to_text())
    }
}

impl PublicKey {
    /// The key as text.
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.as_bytes())
    }

    /// The key that [`PublicKey::to_text`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(text.trim()).ok()?.try_into().ok()?;
        VerifyingKey::from_bytes(&bytes).ok().map(Self)
    }

    /// Checks a token's signature and, against `now`, its times.
    pub fn verify(&self, token: &str, now: u64) -> Result<Claims, TokenError> {
        let claims = self.verify_signature(token)?;
        claims.check_times(now)?;
        Ok(claims)
    }

    /// Checks a token's signature, whatever its times are. No other key than the one that signed a token passes, also none that
    /// was made for that.
    pub fn verify_signature(&self, token: &str) -> Result<Claims, TokenError> {
        if token.len() > MAX_TOKEN {
            return Err(TokenError::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (prefix, body) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if prefix != PREFIX {
            return Err(TokenError::Malformed);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        let signature: [u8; 64] = signature.try_into().map_err(|_| TokenError::Malformed)?;
        if !self.verify_bytes(signed.as_bytes(), &signature) {
            return Err(TokenError::Forged);
        }
        let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Malformed)?;
        serde_json::from_slice(&body).map_err(|_| TokenError::Malformed)
    }

    /// [`PublicKey::verify`] of a token that says who somebody is.
    pub fn verify_role(&self, token: &str, now: u64) -> Result<RoleClaims, TokenError> {
        match self.verify(token, now)? {
            Claims::Role(claims) => Ok(claims),
            other => Err(TokenError::Kind { found: other.kind(), wanted: "an API token" }),
        }
    }

    /// [`PublicKey::verify`] of a token that says what a program may use.
    pub fn verify_lease(&self, token: &str, now: u64) -> Result<LeaseClaims, TokenError> {
        match self.verify(token, now)? {
            Claims::Lease(claims) => Ok(claims),
            other => Err(TokenError::Kind { found: other.kind(), wanted: "a lease" }),
        }
    }

    pub(crate) fn verify_bytes(&self, bytes: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(bytes, &Signature::from_bytes(signature)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lease(holder: &PublicKey) -> Claims {
        let grant = Grant { node: "n0".into(), device: 1, memory: 1 << 30, share_milli: 250 };
        Claims::Lease(LeaseClaims {
            lease: LeaseId(7),
            version: 1,
            orders: 1,
            tenant: "ann".into(),
            not_before: 1000,
            expires: 2000,
            holder: holder.to_text(),
            transport: "auto".into(),
            encrypt: false,
            grants: vec![grant],
        })
    }

    #[test]
    fn a_token_tells_how_long_it_is_good_whenever_its_lease_began() {
        let key = PrivateKey::generate();
        let claims = LeaseClaims {
            lease: LeaseId(1),
            version: 1,
            orders: 1,
            tenant: "slurm".into(),
            not_before: 5000,
            expires: 5060,
            holder: key.public().to_text(),
            transport: "auto".into(),
            encrypt: false,
            grants: Vec::new(),
        };
        assert_eq!(lifetime(&key.sign(&Claims::Lease(claims))), Duration::from_secs(60));
        assert_eq!(lifetime("rubbish"), Duration::from_secs(1));
    }

    #[test]
    fn derived_keys_follow_from_secret_and_purpose_alone() {
        let key = |secret: &str, purpose: &str| PrivateKey::derive(secret.as_bytes(), purpose).to_text();
        assert_eq!(key("secret", "job 7"), key("secret", "job 7"));
        assert_ne!(key("secret", "job 7"), key("secret", "job 8"));
        assert_ne!(key("secret", "job 7"), key("secretj", "ob 7"));
    }

    #[test]
    fn only_the_brokers_tokens_are_good_and_only_in_their_time() {
        let (broker, other) = (PrivateKey::generate(), PrivateKey::generate());
        let claims = lease(&other.public());
        let token = broker.sign(&claims);
        let key = broker.public();
        assert_eq!(key.verify(&token, 1500), Ok(claims.clone()));
        assert_eq!(peek(&token), Ok(claims.clone()));
        assert_eq!(key.verify(&token, 2000 + CLOCK_SKEW_S), Ok(claims));
        assert_eq!(key.verify(&token, 2031), Err(TokenError::Expired { ago_s: 31 }));
        assert_eq!(key.verify(&token, 969), Err(TokenError::TooEarly { in_s: 31 }));
        assert_eq!(other.public().verify(&token, 1500), Err(TokenError::Forged));
        assert!(matches!(key.verify_role(&token, 1500), Err(TokenError::Kind { .. })));
    }

    #[test]
    fn an_engine_acts_for_tenants_of_its_own_and_for_no_others() {
        let engine = |tenant| Role::Engine.acts_for("slurm", tenant);
        assert!(engine("slurm") && engine("slurm/physics"));
        for other in ["", "slur", "slurmy", "slurm-b/physics", "ann", "kubernetes/physics", "x/slurm/physics"]
        {
            assert!(!engine(other), "{other}");
        }
        assert!(Role::Tenant.acts_for("slurm", "slurm") && !Role::Tenant.acts_for("slurm", "slurm/physics"));
        assert!(!Role::Node.acts_for("ann", "ann"));
    }

    #[test]
    fn who_holds_an_engines_token_can_tell() {
        let key = PrivateKey::generate();
        let of =
            |role| key.sign(&Claims::Role(RoleClaims { role, name: "a".into(), not_before: 0, expires: 9 }));
        assert!(is_engines(&of(Role::Engine)) && !is_engines(&of(Role::Tenant)) && !is_engines("rubbish"));
    }

    #[test]
    fn sixteen_grants_fit() {
        let key = PrivateKey::generate();
        let Claims::Lease(mut claims) = lease(&key.public()) else { unreachable!() };
        claims.grants =
            vec![Grant { node: "a-long-host-name.example.org".into(), ..claims.grants[0].clone() }; 16];
        let token = key.sign(&Claims::Lease(claims));
        assert!(token.len() < MAX_TOKEN, "{}", token.len());
        assert!(key.public().verify_lease(&token, 1500).is_ok());
    }

    #[test]
    fn keys_are_read_back() {
        let key = PrivateKey::generate();
        assert_eq!(PrivateKey::parse(&key.to_text()).unwrap().public(), key.public());
        assert_eq!(PublicKey::parse(&key.public().to_text()), Some(key.public()));
        assert!(PrivateKey::parse("short").is_none() && PublicKey::parse("").is_none());
        assert!(!format!("{key:?}").contains(&key.to_text()));
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(at in 0usize..400, bit in 0u8..7) {
            let key = PrivateKey::generate();
            let token = key.sign(&lease(&key.public()));
            let mut bytes = token.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(changed) = String::from_utf8(bytes) {
                prop_assert!(key.public().verify(&changed, 1500).is_err());
            }
        }

        #[test]
        fn any_text_is_refused(text in ".{0,200}") {
            prop_assert!(PrivateKey::generate().public().verify(&text, 1500).is_err());
            prop_assert!(peek(&text).is_err());
        }
    }
}
