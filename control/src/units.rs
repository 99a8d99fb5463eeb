//! Sizes, times, rates and shares as people write them: the same in options, in configurations and in environment variables.
//!
//! | what | examples | meaning |
//! | --- | --- | --- |
//! | size | `4096`, `512M`, `2GiB`, `1 g` | bytes; K, M, G, T and KiB, MiB, GiB, TiB in either case are powers of 1024 |
//! | time | `90`, `90s`, `1.5h`, `200ms` | seconds, unless `us`, `ms`, `s`, `m` or `min`, `h` or `d` follows |
//! | rate | `200`, `200Mbit`, `1.5 Gbit/s` | Mbit/s (10^6 bits), unless `Kbit`, `Mbit` or `Gbit` (or `Kbps`, …) follows, in either case |
//! | part | `25%`, `0.25` | of a whole, from 0 to 1 |
//!
//! Space around a number, or between it and its unit, does not matter. A size is a whole number, so that nobody has to wonder how it is
//! rounded; `KB`, `MB` and `GB` are refused, since they are powers of 1000 to some and of 1024 to others.
//!
//! The functions that begin with `parse_` fit Clap's `value_parser`. The others write numbers for people.

use std::time::Duration;

/// Why a text is no number of its kind. Each says what would be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is no size.
    #[error("{0:?} is no number of bytes, such as 512M or 2GiB")]
    Bytes(String),
    /// It is no time.
    #[error("{0:?} is no time, such as 90s, 5m, 1.5h or 30d")]
    Duration(String),
    /// It is no rate.
    #[error("{0:?} is no rate, such as 200Mbit or 10Gbit")]
    Rate(String),
    /// It is no part of a whole.
    #[error("{0:?} is no part of a whole, such as 10% or 0.1")]
    Part(String),
    /// It is no share of a device.
    #[error("{0:?} is no share of a GPU: give 0.1% to 100%, or 0.001 to 1")]
    Share(String),
    /// It is no compute capability.
    #[error("{0:?} is no compute capability, such as 8.0")]
    Capability(String),
}

/// A number and what follows it, without space around either.
fn split(text: &str, is_number: impl Fn(char) -> bool) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
    (text[..end].trim_end(), text[end..].trim_start())
}

/// A number that may have a fraction, and its unit.
fn split_decimal(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let value: f64 = number.trim_end().parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value, &text[number.len()..]))
}

/// A size, in bytes.
///
/// # Errors
/// [`UnitError::Bytes`] where it is none, or is more than a `u64` holds.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError::Bytes(text.to_owned());
    let (number, unit) = split(text, |c| c.is_ascii_digit());
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// A time.
///
/// # Errors
/// [`UnitError::Duration`] where it is none, or longer than a [`Duration`].
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let wrong = || UnitError::Duration(text.to_owned());
    let (number, unit) = split_decimal(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// A time in whole seconds, rounded.
///
/// # Errors
/// As [`parse_duration`].
pub fn parse_seconds(text: &str) -> Result<u64, UnitError> {
    Ok(parse_duration(text)?.as_secs_f64().round() as u64)
}

/// A rate, in Mbit/s.
///
/// # Errors
/// [`UnitError::Rate`] where it is none, or is above 10^9 Mbit/s.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    let wrong = || UnitError::Rate(text.to_owned());
    let lower = text.trim().to_ascii_lowercase();
    let (number, unit) = split_decimal(lower.strip_suffix("/s").unwrap_or(&lower)).ok_or_else(wrong)?;
    let mbps = match unit {
        "kbit" | "kbps" => 1e-3,
        "" | "mbit" | "mbps" => 1.0,
        "gbit" | "gbps" => 1e3,
        _ => return Err(wrong()),
    };
    Some(number * mbps).filter(|rate| *rate <= 1e9).ok_or_else(wrong)
}

/// A rate in whole Mbit/s, rounded.
///
/// # Errors
/// As [`parse_rate`].
pub fn parse_mbps(text: &str) -> Result<u64, UnitError> {
    Ok(parse_rate(text)?.round() as u64)
}

/// A part of a whole: 0 to 1.
///
/// # Errors
/// [`UnitError::Part`] where it is none.
pub fn parse_part(text: &str) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let (number, unit) = trimmed.strip_suffix('%').map_or((trimmed, 1.0), |number| (number, 0.01));
    let part = number.trim().parse::<f64>().ok().map(|number| number * unit);
    part.filter(|part| (0.0..=1.0).contains(part)).ok_or_else(|| UnitError::Part(text.to_owned()))
}

/// A share of a device, in thousandths: 1 to 1000.
///
/// # Errors
/// [`UnitError::Share`] where it is none.
pub fn parse_share(text: &str) -> Result<u16, UnitError> {
    let milli = parse_part(text).map_or(0.0, |part| (part * 1000.0).round());
    if milli < 1.0 {
        return Err(UnitError::Share(text.to_owned()));
    }
    Ok(milli as u16)
}

/// A compute capability, such as `8.0`: major and minor.
///
/// # Errors
/// [`UnitError::Capability`] where it is none.
pub fn parse_capability(text: &str) -> Result<(u32, u32), UnitError> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| UnitError::Capability(text.to_owned()))
}

/// Bytes, for people.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes.div_ceil(1024)),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

/// Thousandths as percent, for people.
pub fn percent(milli: u64) -> String {
    match milli % 10 {
        0 => format!("{}%", milli / 10),
        rest => format!("{}.{rest}%", milli / 10),
    }
}

/// Mbit/s, for people.
pub fn rate(mbps: f64) -> String {
    match mbps {
        0.0..1000.0 => format!("{mbps:.0} Mbit/s"),
        _ => format!("{:.1} Gbit/s", mbps / 1000.0),
    }
}

/// A number of seconds, for people.
pub fn seconds(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago a time was, in seconds since 1970; for people.
pub fn age(then: u64) -> String {
    seconds(crate::unix_time().saturating_sub(then))
}

/// A text that came from somebody else, fit for a terminal or a log: what would move the cursor, turn the direction of writing or be
/// invisible is written as `\u{…}`.
pub fn printable(text: &str) -> String {
    let shown = |c: char| !c.is_control() && !is_format(c);
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if shown(c) {
            out.push(c)
        } else {
            out.extend(c.escape_unicode())
        }
        out
    })
}

/// Characters that show nothing of their own, and change how others are shown (Unicode's category Cf, and separators of lines).
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("7b", 7),
            ("1 kib", 1 << 10),
            ("4K", 4 << 10),
            ("512m", 512 << 20),
            ("512MiB", 512 << 20),
            (" 2 G ", 2 << 30),
            ("4GiB", 4 << 30),
            ("1t", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        let bad = ["", "G", "-1", "+1", "1.5G", "4GB", "4 GB", "1 1", "99999999999T", "ü", "1ü", "many"];
        for text in bad {
            assert_eq!(parse_bytes(text), Err(UnitError::Bytes(text.into())));
        }
        let error = parse_bytes("4GB").unwrap_err().to_string();
        assert!(error.contains("\"4GB\"") && error.contains("2GiB"), "{error}");
    }

    #[test]
    fn times_are_parsed() {
        let good = [
            ("90", 90.0),
            ("7", 7.0),
            ("90s", 90.0),
            ("1.5h", 5400.0),
            ("1.5d", 129_600.0),
            ("30d", 2_592_000.0),
            ("200ms", 0.2),
            ("250 us", 0.000_25),
            ("2m", 120.0),
            ("2min", 120.0),
        ];
        for (text, seconds) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        assert_eq!(parse_seconds("1.5h"), Ok(5400));
        for text in ["", "s", "d", "-1", "-1ms", "1x", "1w", "1M", "NaN", "inf", "infs", "99999999999999999d"]
        {
            assert_eq!(parse_duration(text), Err(UnitError::Duration(text.into())));
        }
    }

    #[test]
    fn rates_are_parsed() {
        let good = [("200", 200.0), ("200Mbit", 200.0), ("1.5Gbit/s", 1500.0), ("500 kbps", 0.5), ("0", 0.0)];
        for (text, mbps) in good {
            assert_eq!(parse_rate(text), Ok(mbps), "{text}");
        }
        assert_eq!(parse_mbps("1.5Gbit"), Ok(1500));
        for text in ["", "Gbit", "-1", "1GB", "1bit", "NaN", "9999999Gbit"] {
            assert_eq!(parse_rate(text), Err(UnitError::Rate(text.into())));
        }
    }

    #[test]
    fn parts_and_shares_are_parsed() {
        assert_eq!((parse_part("10%"), parse_part("0.25"), parse_part("0")), (Ok(0.1), Ok(0.25), Ok(0.0)));
        for text in ["", "%", "101%", "-1%", "nan", "2"] {
            assert_eq!(parse_part(text), Err(UnitError::Part(text.into())));
        }
        let good = [
            ("25%", 250),
            ("0.25", 250),
            ("12.5%", 125),
            ("100%", 1000),
            ("1", 1000),
            ("0.1%", 1),
            (" 50 % ", 500),
        ];
        for (text, milli) in good {
            assert_eq!(parse_share(text), Ok(milli), "{text}");
        }
        for text in ["", "%", "0", "0%", "25", "101%", "-5%", "NaN", "inf%", "x"] {
            assert_eq!(parse_share(text), Err(UnitError::Share(text.into())));
        }
    }

    #[test]
    fn capabilities_are_parsed() {
        assert_eq!(parse_capability("9.0"), Ok((9, 0)));
        for text in ["", "9", "9.x", "90"] {
            assert_eq!(parse_capability(text), Err(UnitError::Capability(text.into())));
        }
    }

    #[test]
    fn what_was_written_can_be_read() {
        for size in [512 << 20, 3 << 20, 700 << 10] {
            assert_eq!(parse_bytes(&bytes(size)), Ok(size));
        }
        assert_eq!(parse_rate(&rate(120.0)), Ok(120.0));
        assert_eq!(parse_share(&percent(125)), Ok(125));
        assert_eq!(parse_seconds(&seconds(7200)), Ok(7200));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(0), "0 KiB");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!((percent(250), percent(125)), ("25%".to_owned(), "12.5%".to_owned()));
        assert_eq!((rate(12.3), rate(1500.0)), ("12 Mbit/s".to_owned(), "1.5 Gbit/s".to_owned()));
        assert_eq!((seconds(5), seconds(600)), ("5s".to_owned(), "10m".to_owned()));
    }

    #[test]
    fn what_is_printed_cannot_fool_whoever_reads_it() {
        assert_eq!(printable("a\u{202e}b\u{1b}[2J\u{2066}\n"), "a\\u{202e}b\\u{1b}[2J\\u{2066}\\u{a}");
        assert_eq!(printable("Grüße, 世界 ✓"), "Grüße, 世界 ✓");
    }
}
