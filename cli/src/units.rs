//! Numbers as people write them.

/// A number of bytes, with K, M, G or T (also KiB, MiB, …) for powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let problem = || format!("{text:?} is no number of bytes, such as 512M or 2GiB");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(problem()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| problem())
        .and_then(|n| (!digits.starts_with('+')).then_some(n).ok_or_else(problem))?;
    number.checked_mul(1 << shift).ok_or_else(problem)
}

/// A share of a device, such as `25%` or `0.25`, in thousandths.
pub fn parse_share(text: &str) -> Result<u16, String> {
    let problem = || format!("{text:?} is no share of a GPU: give 0.1% to 100%, or 0.001 to 1");
    let part: f64 = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| problem())? / 100.0,
        None => text.parse().map_err(|_| problem())?,
    };
    let milli = (part * 1000.0).round();
    if !(1.0..=1000.0).contains(&milli) {
        return Err(problem());
    }
    Ok(milli as u16)
}

/// A time, such as `90`, `90s`, `1.5h` or `200ms`, in seconds.
pub fn parse_duration(text: &str) -> Result<f64, String> {
    let problem = || format!("{text:?} is no time, such as 90s, 5m or 1.5h");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(problem()),
    };
    let number: f64 = digits.parse().map_err(|_| problem())?;
    if !number.is_finite() || number < 0.0 {
        return Err(problem());
    }
    Ok(number * factor)
}

/// A rate, such as `200`, `200Mbit` or `1.5Gbit`, in Mbit/s.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let problem = || format!("{text:?} is no rate, such as 200Mbit or 10Gbit");
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix("/s").unwrap_or(&lower);
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &lower[digits.len()..] {
        "" | "mbit" | "mbps" => 1.0,
        "kbit" | "kbps" => 0.001,
        "gbit" | "gbps" => 1000.0,
        _ => return Err(problem()),
    };
    let rate = digits.parse::<f64>().map_err(|_| problem())? * factor;
    if !(0.0..=1e9).contains(&rate) {
        return Err(problem());
    }
    Ok(rate.round() as u64)
}

/// A compute capability, such as `8.0`.
pub fn parse_capability(text: &str) -> Result<(u32, u32), String> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| format!("{text:?} is no compute capability, such as 8.0"))
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

/// How long ago a time was.
pub fn age(then: u64) -> String {
    seconds(rgpu_control::unix_time().saturating_sub(then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("512m"), Ok(512 << 20));
        for bad in ["", "G", "-1", "+1", "1.5G", "1 G", "4GB", "99999999999T", "ü", "1ü"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_parsed() {
        assert_eq!(parse_share("25%"), Ok(250));
        assert_eq!(parse_share("0.25"), Ok(250));
        assert_eq!(parse_share("12.5%"), Ok(125));
        assert_eq!(parse_share("100%"), Ok(1000));
        assert_eq!(parse_share("1"), Ok(1000));
        assert_eq!(parse_share("0.1%"), Ok(1));
        for bad in ["", "%", "0", "0%", "25", "101%", "-5%", "NaN", "inf%", "x"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_parsed() {
        assert_eq!(parse_duration("90"), Ok(90.0));
        assert_eq!(parse_duration("1.5h"), Ok(5400.0));
        assert_eq!(parse_duration("200ms"), Ok(0.2));
        assert_eq!(parse_duration("2m"), Ok(120.0));
        for bad in ["", "s", "-1s", "1y", "inf", "NaN", "1 s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_parsed() {
        assert_eq!(parse_rate("200"), Ok(200));
        assert_eq!(parse_rate("1.5Gbit"), Ok(1500));
        assert_eq!(parse_rate("10gbit/s"), Ok(10_000));
        for bad in ["", "x", "-1", "1Tbit", "1e30"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
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
    fn capabilities_are_parsed() {
        assert_eq!(parse_capability("9.0"), Ok((9, 0)));
        for bad in ["", "9", "9.x", "90"] {
            assert!(parse_capability(bad).is_err(), "{bad}");
        }
    }
}
