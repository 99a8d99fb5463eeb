//! Who asks, and whether they may.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use rgpu_control::api::{ErrorCode, SeenToken};
use rgpu_control::token::{CLOCK_SKEW_S, PublicKey, Role, RoleClaims, TokenError};

use super::Shared;
use super::failure::Failure;
use super::input::drain;
use super::lasting::until_sent;
use super::operation::Access;
use crate::door::Place;
use crate::engine::{Caller, Engine};

/// How many tokens are remembered as checked.
const REMEMBERED: usize = 8192;

/// Checks role tokens. A signature is checked once: nodes come back with the same token every second.
pub(super) struct Tokens {
    key: PublicKey,
    known: Mutex<HashMap<[u8; 32], Known>>,
}

/// A token whose signature is good.
#[derive(Clone)]
struct Known {
    id: String,
    claims: RoleClaims,
    /// When it was last shown, in seconds since 1970.
    seen: u64,
}

/// Who asks by which token. The request is authorised, and may count as such as long as it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bearer {
    /// What the token is called.
    pub id: String,
    /// What it says.
    pub claims: RoleClaims,
}

impl Bearer {
    fn caller(&self) -> Caller {
        Caller { role: self.claims.role, name: self.claims.name.clone() }
    }

    /// Whether the token still counts.
    pub(super) fn counts(&self, engine: &Engine) -> bool {
        let now = rgpu_control::unix_time();
        now <= self.claims.expires.saturating_add(CLOCK_SKEW_S)
            && !engine.withdrawn().has(&self.id, &self.claims)
    }
}

impl Tokens {
    pub(super) fn new(key: PublicKey) -> Self {
        Self { key, known: Mutex::new(HashMap::new()) }
    }

    fn verify(&self, token: &str, now: u64) -> Result<Bearer, TokenError> {
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        if let Some(known) = self.known.lock().get_mut(&hash)
            && now <= known.claims.expires
            && now.saturating_add(CLOCK_SKEW_S) >= known.claims.not_before
        {
            known.seen = now;
            return Ok(Bearer { id: known.id.clone(), claims: known.claims.clone() });
        }
        let claims = self.key.verify_role(token, now)?;
        let id = rgpu_control::token::id(token);
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(hash, Known { id: id.clone(), claims: claims.clone(), seen: now });
        Ok(Bearer { id, claims })
    }

    /// The tokens that were shown and are remembered, by name.
    pub(super) fn seen(&self) -> Vec<SeenToken> {
        let seen = |known: &Known| SeenToken {
            id: known.id.clone(),
            role: known.claims.role,
            name: known.claims.name.clone(),
            issued: known.claims.not_before,
            expires: known.claims.expires,
            seen: known.seen,
        };
        let mut list: Vec<SeenToken> = self.known.lock().values().map(seen).collect();
        list.sort_by(|a, b| {
            (a.role.name(), &a.name, a.issued, &a.id).cmp(&(b.role.name(), &b.name, b.issued, &b.id))
        });
        list
    }

    /// Who a request is from, by its header.
    fn bearer(&self, headers: &HeaderMap, engine: &Engine) -> Result<Bearer, Failure> {
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
        let bearer = self.verify(token, rgpu_control::unix_time()).map_err(|e| refused(e.to_string()))?;
        if engine.withdrawn().has(&bearer.id, &bearer.claims) {
            return Err(refused(TokenError::Withdrawn(bearer.id).to_string()));
        }
        Ok(bearer)
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
    fn admit(&self, headers: &HeaderMap) -> Result<Option<Bearer>, Failure> {
        let roles: &[Role] = match self.access {
            Access::Open => return Ok(None),
            Access::Metrics if self.shared.0.open_metrics => return Ok(None),
            Access::Any | Access::Metrics => &[Role::Tenant, Role::Node, Role::Engine],
            Access::Roles(roles) => roles,
        };
        let bearer = self.shared.0.tokens.bearer(headers, &self.shared.0.engine)?;
        let role = bearer.claims.role;
        if role != Role::Admin && !roles.contains(&role) {
            let wanted: Vec<_> = roles.iter().map(|role| role.name()).chain([Role::Admin.name()]).collect();
            let (wanted, found) = (wanted.join(" or "), role.name());
            let why = format!("this needs a token of the role {wanted}; the token is of the role {found}");
            return Err(Failure::new(ErrorCode::Forbidden, why));
        }
        Ok(Some(bearer))
    }
}

/// Lets a request through if its token allows the operation, and notes who asks.
pub(super) async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let refused = |failure: Failure, request: Request| async move {
        // Whoever closes before all has arrived may have the answer lost on the way.
        drain(request.into_body()).await;
        failure.into_response()
    };
    let bearer = match guard.admit(request.headers()) {
        Ok(Some(bearer)) => bearer,
        Ok(None) => {
            hide_token(&mut request);
            return next.run(request).await;
        }
        Err(failure) => return refused(failure, request).await,
    };
    let under_way = match guard.shared.0.under_way.begin(&bearer.id) {
        Ok(under_way) => under_way,
        Err(most) => {
            let why = format!("the token has {most} requests under way, which is the most at a time");
            return refused(Failure::new(ErrorCode::Limit, why), request).await;
        }
    };
    let serving = request.extensions().get::<Arc<Place>>().map(Place::serve);
    hide_token(&mut request);
    request.extensions_mut().insert(bearer.caller());
    request.extensions_mut().insert(bearer);
    until_sent(next.run(request).await, (under_way, serving))
}

/// Nobody further in needs the secret.
fn hide_token(request: &mut Request) {
    if let Some(value) = request.headers_mut().get_mut(AUTHORIZATION) {
        *value = HeaderValue::from_static("-");
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
        let good = Ok(Bearer { id: rgpu_control::token::id(&token), claims });
        assert_eq!(tokens.verify(&token, 1500), good);
        assert_eq!(tokens.verify(&token, 1500), good);
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
