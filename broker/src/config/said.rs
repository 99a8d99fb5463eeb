//! Values, and where they were said.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use rgpu_control::token::{Role, TENANT_SEPARATOR};
use toml::Spanned;

use super::ConfigError;

/// A value, and where it was said.
pub(super) struct Said<T> {
    pub value: T,
    pub at: String,
}

impl<T> Said<T> {
    pub(super) fn wrong(&self, key: &str, shown: impl Display, why: impl Display) -> ConfigError {
        ConfigError::Value {
            key: key.into(),
            value: shown.to_string(),
            at: self.at.clone(),
            why: why.to_string(),
        }
    }
}

/// Where values of a file stand.
pub(super) struct Source<'a> {
    pub text: &'a str,
    pub path: &'a Path,
}

impl Source<'_> {
    pub(super) fn said<T>(&self, value: Spanned<T>) -> Said<T> {
        let line = self.text[..value.span().start.min(self.text.len())].matches('\n').count() + 1;
        Said { at: format!("{}, line {line}", self.path.display()), value: value.into_inner() }
    }

    /// What a flag or the environment says, else what the file says.
    pub(super) fn pick<T>(&self, flag: Option<T>, key: &str, file: Option<Spanned<T>>) -> Option<Said<T>> {
        let named = |value| Said {
            value,
            at: format!(
                "--{} or RGPU_BROKER_{}",
                key.replace(['.', '_'], "-"),
                key.replace('.', "_").to_uppercase()
            ),
        };
        flag.map(named).or_else(|| file.map(|value| self.said(value)))
    }
}

pub(super) fn ranged<T>(
    slot: &mut T,
    key: &str,
    said: Option<Said<T>>,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError>
where
    T: PartialOrd + Copy + Display,
{
    let Some(said) = said else { return Ok(()) };
    if !range.contains(&said.value) {
        let why = format!("it must be from {} to {}", range.start(), range.end());
        return Err(said.wrong(key, said.value, why));
    }
    *slot = said.value;
    Ok(())
}

/// Whether a text can be the name in a role token. A tenant's can be that of an engine's tenant, `ENGINE/NAME`.
pub fn token_name_problem(role: Role, name: &str) -> Option<&'static str> {
    match name.split_once(TENANT_SEPARATOR).filter(|_| role == Role::Tenant) {
        Some((engine, tenant)) => name_problem(engine).or_else(|| name_problem(tenant)),
        None => name_problem(name),
    }
}

/// Whether a text can be a name of a node, tenant, switch or profile.
pub fn name_problem(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | ':');
    if name.is_empty() || name.len() > 128 {
        Some("a name has 1 to 128 characters")
    } else if !name.chars().all(good) {
        Some("a name consists of letters, digits and any of - _ . @ :")
    } else {
        None
    }
}
