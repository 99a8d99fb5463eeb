//! Kubernetes' quantities: `250m`, `4Gi`, `1e3`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of a quantity, rounded up; `None` where it is none, is negative, or too large.
pub fn milli(quantity: &Quantity) -> Option<u128> {
    let text = quantity.0.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{part}").parse().ok()?;
    let (factor, divisor): (u128, u128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        exponent => match exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            power @ 0..=18 => (10u128.pow(power.unsigned_abs()), 1),
            power @ -18..0 => (1, 10u128.pow(power.unsigned_abs())),
            _ => return None,
        },
    };
    let scale = 10u128.checked_pow(u32::try_from(part.len()).ok()?)?.checked_mul(divisor)?;
    Some(digits.checked_mul(factor)?.checked_mul(1000)?.div_ceil(scale))
}

/// A whole number.
pub fn whole(number: u64) -> Quantity {
    Quantity(number.to_string())
}

/// Thousandths, as Kubernetes writes them: `250m`, `2`.
pub fn thousandths(number: u64) -> Quantity {
    if number.is_multiple_of(1000) { whole(number / 1000) } else { Quantity(format!("{number}m")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        let of = |text: &str| milli(&Quantity(text.into()));
        assert_eq!(
            (of("250m"), of("1"), of("0.25"), of("1.5k")),
            (Some(250), Some(1000), Some(250), Some(1_500_000))
        );
        assert_eq!((of("4Gi"), of("1e3"), of("5E-1")), (Some(4000 << 30), Some(1_000_000), Some(500)));
        assert_eq!(of("1u"), Some(1), "rounded up");
        for bad in ["", "-1", "x", "1.2.3", ".", "1Xi", "1e99", "99999999999999999999999999999999999999999Gi"]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!((thousandths(250).0, thousandths(8000).0), ("250m".to_owned(), "8".to_owned()));
    }
}
