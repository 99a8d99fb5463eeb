//! Who asks, and whether they may.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use rgpu_control::api::ErrorCode;
use rgpu_control::token::{CLOCK_SKEW_S, PublicKey, Role, RoleClaims, TokenError};

use super::Shared;
use super::failure::Failure;
use super::operation::Access;
use crate::engine::Caller;

/// How many tokens are remembered as checked.
const REMEMBERED: usize = 8192;

/// Checks role tokens. A signature is checked once: nodes come back with the same token every second.
pub(super) struct Tokens {
    key: PublicKey,
    known: Mutex<HashMap<[u8; 32], RoleClaims>>,
}

impl Tokens {
    pub(super) fn new(key: PublicKey) -> Self {
        Self { key, known: Mutex::new(HashMap::new()) }
    }

    fn verify(&self, token: &str, now: u64) -> Result<RoleClaims, TokenError> {
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let known = self.known.lock().get(&hash).cloned();
        if let Some(claims) = known
            && now <= claims.expires
            && now.saturating_add(CLOCK_SKEW_S) >= claims.not_before
        {
            return Ok(claims);
        }
        let claims = self.key.verify_role(token, now)?;
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(hash, claims.clone());
        Ok(claims)
    }

    /// Who a request is from, by its header.
    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Failure> {
        let refused = |why: String| Failure::new(ErrorCode::Unauthorized, why);
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (None, _) => {
                let why = "a role token is needed: the header `Authorization: Bearer TOKEN` (rgpu: --broker-token-file)";
                return Err(refused(why.into()));
            }
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Err(refused("there are several Authorization headers".into())),
        };
        let token = value
            .to_str()
            .ok()
            .and_then(bearer)
            .ok_or_else(|| refused("the Authorization header is not `Bearer TOKEN`".into()))?;
        match self.verify(token, rgpu_control::unix_time()) {
            Ok(claims) => Ok(Caller { role: claims.role, name: claims.name }),
            Err(e) => Err(refused(e.to_string())),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// What [`check`] must know of an operation.
#[derive(Clone)]
pub(super) struct Guard {
    pub shared: Shared,
    pub access: Access,
}

impl Guard {
    fn admit(&self, headers: &HeaderMap) -> Result<Option<Caller>, Failure> {
        let roles: &[Role] = match self.access {
            Access::Open => return Ok(None),
            Access::Metrics if self.shared.0.open_metrics => return Ok(None),
            Access::Any | Access::Metrics => &[Role::Tenant, Role::Node],
            Access::Roles(roles) => roles,
        };
        let caller = self.shared.0.tokens.caller(headers)?;
        if caller.role != Role::Admin && !roles.contains(&caller.role) {
            let wanted: Vec<_> = roles.iter().map(|role| role.name()).chain([Role::Admin.name()]).collect();
            let (wanted, found) = (wanted.join(" or "), caller.role.name());
            let why = format!("this needs a token of the role {wanted}; the token is of the role {found}");
            return Err(Failure::new(ErrorCode::Forbidden, why));
        }
        Ok(Some(caller))
    }
}

/// Lets a request through if its token allows the operation, and notes who asks.
pub(super) async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    match guard.admit(request.headers()) {
        Ok(caller) => {
            // Nobody further in needs the secret.
            if let Some(value) = request.headers_mut().get_mut(AUTHORIZATION) {
                *value = HeaderValue::from_static("-");
            }
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

/// Who asks, of an operation that isn't open.
pub(super) struct From(pub Caller);

impl<S: Sync> FromRequestParts<S> for From {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let missing =
            || Failure::new(ErrorCode::Internal, "an operation was called without a check of the caller");
        parts.extensions.get::<Caller>().cloned().map(Self).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::token::{Claims, PrivateKey};

    #[test]
    fn remembered_tokens_expire_all_the_same() {
        let key = PrivateKey::generate();
        let claims = RoleClaims { role: Role::Tenant, name: "ann".into(), not_before: 1000, expires: 2000 };
        let token = key.sign(&Claims::Role(claims.clone()));
        let tokens = Tokens::new(key.public());
        assert!(matches!(tokens.verify(&token, 100), Err(TokenError::TooEarly { .. })));
        assert_eq!(tokens.verify(&token, 1500), Ok(claims.clone()));
        assert_eq!(tokens.verify(&token, 1500), Ok(claims));
        assert!(matches!(tokens.verify(&token, 2500), Err(TokenError::Expired { .. })));
        assert!(matches!(tokens.verify(&token, 100), Err(TokenError::TooEarly { .. })));
        let forged = PrivateKey::generate().sign(&Claims::Role(RoleClaims {
            role: Role::Admin,
            name: "eve".into(),
            not_before: 0,
            expires: 9999,
        }));
        assert_eq!(tokens.verify(&forged, 1500), Err(TokenError::Forged));
    }

    #[test]
    fn the_scheme_is_bearer() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for wrong in ["", "abc", "Basic abc", "Bearer"] {
            assert_eq!(bearer(wrong), None, "{wrong}");
        }
    }
}
