//! Role tokens that were withdrawn.
//!
//! A role token is checked by its signature and its times, without asking anybody; so to withdraw one means to remember it until
//! it would have expired. The list is part of the broker's state. Servers need not have it: what they check are the tokens of leases,
//! which live no longer than a minute or so, and a tenant or node whose role token was withdrawn gets no new ones.

use rgpu_control::api::{ErrorCode, Problem, WithdrawnTokens};
use rgpu_control::token::{Role, RoleClaims};

use super::{StartError, problem};

/// The role tokens that count no more.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Withdrawn(Vec<WithdrawnTokens>);

impl Withdrawn {
    /// These, the oldest first.
    pub(super) fn new(list: Vec<WithdrawnTokens>) -> Self {
        Self(list)
    }

    /// What was stored; nothing where nothing was.
    pub(super) fn restore(text: Option<&str>) -> Result<Self, StartError> {
        text.map_or(Ok(Self::default()), |text| {
            serde_json::from_str(text).map(Self).map_err(StartError::Withdrawn)
        })
    }

    /// To be stored.
    pub(super) fn to_text(&self) -> Result<String, Problem> {
        serde_json::to_string(&self.0).map_err(|e| problem(ErrorCode::Internal, e.to_string()))
    }

    /// Whether a token with this id, which says this, was withdrawn.
    pub fn has(&self, id: &str, claims: &RoleClaims) -> bool {
        self.0.iter().any(|one| match &one.id {
            Some(withdrawn) => withdrawn == id,
            None => {
                one.role == Some(claims.role)
                    && one.name.as_deref() == Some(&claims.name)
                    && claims.not_before <= one.when
            }
        })
    }

    /// When the tokens of a name were withdrawn the last time, in seconds since 1970.
    pub(super) fn latest(&self, role: Role, name: &str) -> Option<u64> {
        let of = |one: &&WithdrawnTokens| one.role == Some(role) && one.name.as_deref() == Some(name);
        self.0.iter().filter(of).map(|one| one.when).max()
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> &[WithdrawnTokens] {
        &self.0
    }
}
