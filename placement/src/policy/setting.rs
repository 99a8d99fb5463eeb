//! What can be set of a policy: a name, a meaning, a type, a default and limits for each setting, once.
//!
//! A policy's file declares the settings that it reads, as statics of the types [`Flag`] and [`Number`], and reads them
//! once, when it is built, into a structure of its own. Its row in the [table](super::table) lists them. Everything else
//! (command lines, the broker's configuration and API, the documentation) knows settings by that list alone.

use std::fmt;
use std::ops::RangeInclusive;

use crate::error::Error;

/// A setting that is on or off.
#[derive(Debug)]
pub struct Flag {
    /// Its name, in `snake_case`: unique among all settings.
    pub name: &'static str,
    /// What it means where it is on: one line, without a full stop.
    pub about: &'static str,
    /// What it is where nobody says anything.
    pub default: bool,
    /// What it is in a broker where nobody says anything: what suits people who share a cluster may be something else than what a
    /// published experiment did.
    pub default_in_broker: bool,
    /// What reports append to the policy's name where the flag is not at its default, to tell the two apart.
    pub otherwise: &'static str,
    /// Whether a broker's administrator can set it. The others are for experiments in the simulator.
    pub in_broker: bool,
}

/// A setting that is a number.
#[derive(Debug)]
pub struct Number {
    /// Its name, in `snake_case`: unique among all settings.
    pub name: &'static str,
    /// What it means, with its unit: one line, without a full stop.
    pub about: &'static str,
    /// What it is where nobody says anything.
    pub default: f64,
    /// What it can be.
    pub range: RangeInclusive<f64>,
    /// Whether it can also be infinite, which means that there is no limit. A broker takes only what is in the range.
    pub or_infinite: bool,
    /// Whether a broker's administrator can set it. The others are for experiments in the simulator.
    pub in_broker: bool,
}

/// A setting of either type.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// On or off.
    Flag(&'static Flag),
    /// A number.
    Number(&'static Number),
}

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of a [`Flag`].
    Flag(bool),
    /// Of a [`Number`].
    Number(f64),
}

impl Setting {
    /// The setting's name.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Flag(flag) => flag.name,
            Setting::Number(number) => number.name,
        }
    }

    /// What the setting means.
    pub fn about(self) -> &'static str {
        match self {
            Setting::Flag(flag) => flag.about,
            Setting::Number(number) => number.about,
        }
    }

    /// What it is where nobody says anything.
    pub fn default(self) -> Value {
        match self {
            Setting::Flag(flag) => Value::Flag(flag.default),
            Setting::Number(number) => Value::Number(number.default),
        }
    }

    /// What it is in a broker where nobody says anything.
    pub fn default_in_broker(self) -> Value {
        match self {
            Setting::Flag(flag) => Value::Flag(flag.default_in_broker),
            Setting::Number(number) => Value::Number(number.default),
        }
    }

    /// Whether a broker's administrator can set it.
    pub fn in_broker(self) -> bool {
        match self {
            Setting::Flag(flag) => flag.in_broker,
            Setting::Number(number) => number.in_broker,
        }
    }

    /// What it can be, in words: `true or false`, or `from 1 to 1000`.
    pub fn limits(self) -> String {
        match self {
            Setting::Flag(_) => "true or false".into(),
            Setting::Number(Number { range, or_infinite, .. }) => {
                let range = format!("from {} to {}", range.start(), range.end());
                if *or_infinite { range + ", or infinite" } else { range }
            }
        }
    }

    /// Checks a value's type and limits.
    pub fn check(self, value: Value) -> Result<(), Error> {
        let good = match (self, value) {
            (Setting::Flag(_), Value::Flag(_)) => true,
            (Setting::Number(number), Value::Number(value)) => {
                number.range.contains(&value) || (number.or_infinite && value == f64::INFINITY)
            }
            _ => false,
        };
        match good {
            true => Ok(()),
            false => {
                Err(Error::Setting { name: self.name(), value: value.to_string(), limits: self.limits() })
            }
        }
    }

    /// The same, and an infinite number is out of limits whatever the setting: what JSON can carry.
    pub fn check_finite(self, value: Value) -> Result<(), Error> {
        match (self, value) {
            (Setting::Number(number), Value::Number(f64::INFINITY)) => Err(Error::Setting {
                name: number.name,
                value: value.to_string(),
                limits: format!("from {} to {}", number.range.start(), number.range.end()),
            }),
            _ => self.check(value),
        }
    }

    /// Reads a value as it is written: `true`, `false`, or a number. Its limits are checked, too.
    pub fn parse(self, text: &str) -> Result<Value, Error> {
        let wrong = || Error::Setting { name: self.name(), value: text.into(), limits: self.limits() };
        let value = match self {
            Setting::Flag(_) => Value::Flag(text.parse().map_err(|_| wrong())?),
            Setting::Number(_) => Value::Number(text.parse().map_err(|_| wrong())?),
        };
        self.check(value)?;
        Ok(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(value) => value.fmt(f),
            Value::Number(value) => value.fmt(f),
        }
    }
}

/// A declared setting whose type of values the compiler knows: [`Flag`] and [`Number`].
pub trait Key {
    /// The Rust type of its values.
    type Value: Copy;

    /// This setting among settings of all types.
    fn setting(&'static self) -> Setting;

    /// The value for storing.
    fn store(value: Self::Value) -> Value;

    /// The stored value, if it is of this type; else the default.
    fn read(&self, stored: Option<Value>) -> Self::Value;
}

impl Key for Flag {
    type Value = bool;

    fn setting(&'static self) -> Setting {
        Setting::Flag(self)
    }

    fn store(value: bool) -> Value {
        Value::Flag(value)
    }

    fn read(&self, stored: Option<Value>) -> bool {
        match stored {
            Some(Value::Flag(value)) => value,
            _ => self.default,
        }
    }
}

impl Key for Number {
    type Value = f64;

    fn setting(&'static self) -> Setting {
        Setting::Number(self)
    }

    fn store(value: f64) -> Value {
        Value::Number(value)
    }

    fn read(&self, stored: Option<Value>) -> f64 {
        match stored {
            Some(Value::Number(value)) => value,
            _ => self.default,
        }
    }
}
