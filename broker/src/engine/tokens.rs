//! Role tokens: how they are issued and withdrawn.

use std::sync::Arc;

use rgpu_control::api::{ErrorCode, IssuedToken, Problem, TokenRequest, TokenWithdrawal, WithdrawnTokens};
use rgpu_control::token::{self, Claims, RoleClaims};

use super::core::Core;
use super::withdrawn::Withdrawn;
use super::{Caller, Engine, admin, problem};
use crate::config::token_name_problem;

/// The most entries. Who needs more had better make a new key.
const MOST: usize = 10_000;

impl Core {
    /// Withdraws what is asked for. `until` is when the last of such tokens has expired.
    fn withdraw(&mut self, asked: TokenWithdrawal, until: u64) -> Result<(), Problem> {
        let now = self.unix_ms() / 1000;
        let TokenWithdrawal { id, role, name } = asked;
        let mut list: Vec<WithdrawnTokens> =
            self.withdrawn.list().iter().filter(|one| one.until >= now).cloned().collect();
        // A later one of the same kind says all that an earlier one did.
        list.retain(|one| one.id != id || one.role != role || one.name != name);
        if list.len() >= MOST {
            let text = format!(
                "{MOST} withdrawals are in force already: make a new key (`rgpu broker init`) instead"
            );
            return Err(problem(ErrorCode::Limit, text));
        }
        let whose = match (&id, &role, &name) {
            (Some(id), ..) => format!("the token {id} was withdrawn"),
            (None, role, name) => format!(
                "the tokens of the {} {:?} were withdrawn",
                role.map_or("", |role| role.name()),
                name.as_deref().unwrap_or("")
            ),
        };
        list.push(WithdrawnTokens { id, role, name, when: now, until });
        self.put_withdrawn(Withdrawn::new(list))?;
        self.note("tokens_withdrawn", None, None, whose);
        Ok(())
    }
}

impl Engine {
    /// Issues a role token.
    pub fn issue_token(&self, caller: &Caller, request: &TokenRequest) -> Result<IssuedToken, Problem> {
        admin(caller)?;
        if let Some(why) = token_name_problem(request.role, &request.name) {
            return Err(problem(
                ErrorCode::BadRequest,
                format!("{:?} cannot be a name: {why}", request.name),
            ));
        }
        if !(1..=10 * 365 * 86_400).contains(&request.valid_s) {
            let text = format!("valid_s is {}: from a second to ten years", request.valid_s);
            return Err(problem(ErrorCode::BadRequest, text));
        }
        let now = self.0.core.lock().unix_ms() / 1000;
        // One that is issued in the second in which those before it were withdrawn is not meant.
        let not_before =
            self.withdrawn().latest(request.role, &request.name).map_or(now, |when| now.max(when + 1));
        let expires = now + request.valid_s;
        let claims = RoleClaims { role: request.role, name: request.name.clone(), not_before, expires };
        let token = self.0.key.sign(&Claims::Role(claims));
        Ok(IssuedToken { id: token::id(&token), token, expires })
    }

    /// The role tokens that count no more.
    pub fn withdrawn(&self) -> Arc<Withdrawn> {
        self.0.withdrawn.read().clone()
    }

    /// Withdraws a role token, or all of a name that were issued until now. It counts no more when this returns.
    pub async fn withdraw_tokens(
        &self,
        caller: &Caller,
        asked: TokenWithdrawal,
    ) -> Result<Vec<WithdrawnTokens>, Problem> {
        admin(caller)?;
        let is_id =
            |id: &String| id.len() == 16 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let good = match (&asked.id, &asked.role, &asked.name) {
            (Some(id), None, None) => is_id(id),
            (None, Some(role), Some(name)) => token_name_problem(*role, name).is_none(),
            _ => false,
        };
        if !good {
            let text = "say either id, 16 hexadecimal digits (`rgpu broker token list`), or role and name"
                .to_owned();
            return Err(problem(ErrorCode::BadRequest, text));
        }
        let until = self.0.core.lock().unix_ms() / 1000 + crate::setup::MAX_VALID_S;
        self.write(move |core| core.withdraw(asked, until)).await?;
        let core = self.0.core.lock();
        *self.0.withdrawn.write() = core.withdrawn.clone();
        Ok(core.withdrawn.list().to_vec())
    }
}
