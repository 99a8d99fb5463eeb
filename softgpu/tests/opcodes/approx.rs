//! Approximations, within the bounds that PTX gives.

use super::case::{Case, Class, Want};
use super::float::{BF16, F16, Kind};
use super::oracle::Format;
use super::values::Domain;

const F: Format = Format::F32;
const MIN_NORMAL: f64 = 1.175_494_350_822_287_5e-38;

/// How far from the true value a result may be: relative, and absolute.
#[derive(Clone, Copy)]
struct Bound(f64, f64);

/// A function of one `f32`. Where the true result is not finite (or zero) it is exact.
fn unary(
    opcode: &str,
    flush: bool,
    domain: Domain,
    bound: impl Fn(f64) -> Bound + Send + Sync + 'static,
    function: impl Fn(f64) -> f64 + Send + Sync + 'static,
) -> Case {
    Case::simple(opcode, &[(Class::F32, domain)], Class::F32, move |a| {
        let a = if flush { F.flush(a[0]) } else { a[0] };
        let x = F.to_f64(a);
        near(function(x), bound(x), flush)
    })
}

/// Whatever is within the bound of the true value, as `f32`.
fn near(exact: f64, Bound(relative, absolute): Bound, flush: bool) -> Want {
    if exact.is_nan() {
        return Want::NanF32;
    }
    if exact.is_infinite() {
        return Want::F32(exact, exact);
    }
    if exact == 0.0 && absolute == 0.0 {
        return Want::Bits(u64::from((exact as f32).to_bits()));
    }
    let error = (exact.abs() * relative).max(absolute);
    // Half a subnormal unit comes on top, and what the reference itself may be wrong. A result too large for
    // the format is infinite.
    let spacing = exact.abs() * 2f64.powi(-50) + 2f64.powi(-150);
    let (mut low, mut high) = (exact - error - spacing, exact + error + spacing);
    let largest = f64::from(f32::MAX);
    if high > largest {
        high = f64::INFINITY;
    }
    if low < -largest {
        low = f64::NEG_INFINITY;
    }
    if flush && exact.abs() < MIN_NORMAL * (1.0 - 1e-6) {
        return Want::F32(0.0, 0.0);
    } else if flush && exact.abs() < MIN_NORMAL * (1.0 + 1e-6) {
        (low, high) = (low.min(0.0), high.max(0.0));
    }
    Want::F32(low, high)
}

fn relative(bits: f64) -> impl Fn(f64) -> Bound + Send + Sync {
    move |_| Bound(2f64.powf(-bits), 0.0)
}

const PI: f32 = std::f32::consts::PI;

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (ftz, flush) in [("", false), ("ftz.", true)] {
        all.push(unary(&format!("ex2.approx.{ftz}f32"), flush, Domain::F32, relative(22.0), f64::exp2));
        all.push(unary(&format!("rcp.approx.{ftz}f32"), flush, Domain::F32, relative(23.0), |x| 1.0 / x));
        all.push(unary(&format!("sqrt.approx.{ftz}f32"), flush, Domain::F32, relative(23.0), f64::sqrt));
        all.push(unary(&format!("rsqrt.approx.{ftz}f32"), flush, Domain::F32, relative(22.9), |x| {
            if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() }
        }));
        let log_bound = |x: f64| {
            if x > 0.5 && x < 2.0 { Bound(0.0, 2f64.powf(-22.6)) } else { Bound(2f64.powi(-22), 0.0) }
        };
        all.push(unary(&format!("lg2.approx.{ftz}f32"), flush, Domain::F32, log_bound, f64::log2));
        let wave = |x: f64| {
            let bits = if x.abs() <= f64::from(2.0 * PI) { 20.5 } else { 14.7 };
            Bound(0.0, 2f64.powf(-bits))
        };
        let within = Domain::F32Within((100.0 * PI).to_bits());
        all.push(unary(&format!("sin.approx.{ftz}f32"), flush, within, wave, f64::sin));
        all.push(unary(&format!("cos.approx.{ftz}f32"), flush, within, wave, f64::cos));
        for (name, limit) in [("div.approx", 126), ("div.full", 128)] {
            let opcode = format!("{name}.{ftz}f32");
            all.push(Case::simple(&opcode, &[(Class::F32, Domain::F32); 2], Class::F32, move |a| {
                let [a, b] = [a[0], a[1]].map(|v| F.to_f64(if flush { F.flush(v) } else { v }));
                if limit == 126 && b.abs() > 2f64.powi(126) && b.is_finite() {
                    // The reciprocal is flushed to zero: zero, or NaN for infinity.
                    return if a.is_infinite() {
                        Want::OneOf(vec![Want::NanF32, near(a / b, Bound(0.0, 0.0), flush)])
                    } else {
                        let exact = a / b;
                        Want::OneOf(vec![Want::F32(0.0, 0.0), near(exact, Bound(2f64.powi(-22), 0.0), flush)])
                    };
                }
                if b != 0.0 && b.abs() < 2f64.powi(-126) {
                    // Below the specified range: the reciprocal may overflow.
                    return Want::Any;
                }
                near(a / b, Bound(2f64.powi(-22), 2f64.powi(-148)), flush)
            }));
        }
    }
    all.push(unary("tanh.approx.f32", false, Domain::F32, relative(10.987), f64::tanh));
    all.extend(doubles());
    for kind in [F16, BF16] {
        all.extend(half_tangents(kind));
    }
    all
}

/// `tanh.approx` of halves: the nearest number or one of its neighbours.
fn half_tangents(kind: Kind) -> Vec<Case> {
    let (f, ty) = (kind.format, kind.ty);
    let target = if f == Format::Bf16 { "sm_90" } else { "sm_80" };
    let want = move |a: u64| {
        let a = a & 0xFFFF;
        if f.is_nan(a) {
            return f.want(a);
        }
        let nearest = Format::F64.convert(f.to_f64(a).tanh().to_bits(), f, "rn");
        Want::OneOf([nearest.wrapping_sub(1) & 0xFFFF, nearest, nearest + 1].map(Want::Bits).to_vec())
    };
    let one =
        Case::simple(&format!("tanh.approx.{ty}"), &[(kind.class, kind.domain)], kind.class, move |a| {
            want(a[0])
        });
    let packed = [(Class::B32, if f == Format::Bf16 { Domain::Bf16x2 } else { Domain::F16x2 })];
    let two = Case::simple(&format!("tanh.approx.{ty}x2"), &packed, Class::B32, move |a| {
        Want::Halves(Box::new(want(a[0])), Box::new(want(a[0] >> 16)))
    });
    vec![one.target(target), two.target(target)]
}

/// Gross approximations of doubles: 20 bits of fraction.
fn doubles() -> Vec<Case> {
    let mut all = Vec::new();
    let gross = |exact: f64, relative: f64| {
        if exact.is_nan() {
            return Want::NanF64;
        }
        if exact.is_infinite() || exact == 0.0 {
            return Want::Bits(exact.to_bits());
        }
        if exact.abs() < f64::MIN_POSITIVE {
            // Flushed.
            return Want::OneOf(vec![
                Want::Bits(exact.to_bits() & 1 << 63),
                Want::F64(exact - exact.abs() * relative, exact + exact.abs() * relative),
            ]);
        }
        Want::F64(exact - exact.abs() * relative, exact + exact.abs() * relative)
    };
    // Only the upper half of the operand is looked at.
    let flush = |a: u64| f64::from_bits(Format::F64.flush(a & !0xFFFF_FFFF));
    let ins = [(Class::F64, Domain::F64)];
    let bound = 2f64.powi(-19);
    all.push(Case::simple("rcp.approx.ftz.f64", &ins, Class::F64, move |a| gross(1.0 / flush(a[0]), bound)));
    all.push(Case::simple("rsqrt.approx.ftz.f64", &ins, Class::F64, move |a| {
        let x = flush(a[0]);
        gross(if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() }, bound)
    }));
    all.push(Case::simple("rsqrt.approx.f64", &ins, Class::F64, move |a| {
        let x = f64::from_bits(a[0]);
        gross(if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() }, bound)
    }));
    all
}
