//! Rotations that are made of two numbers. They are computed here, where the numbers are the program's own.

use super::status::{Out, unsupported};

/// The modified rotation that leaves nothing of `y`, by d1, d2, x and y (Lawson, Hanson, Kincaid and Krogh, *Basic linear algebra
/// subprograms for Fortran usage*, 1979): flag and matrix, as BLAS's `param` has them, and d1, d2 and x after it.
fn modified([mut d1, mut d2, mut x, y]: [f64; 4]) -> ([f64; 5], [f64; 3]) {
    const LARGE: f64 = 4096.0;
    let zeros = ([-1.0, 0.0, 0.0, 0.0, 0.0], [0.0; 3]);
    if d1 < 0.0 {
        return zeros;
    }
    let p2 = d2 * y;
    if p2 == 0.0 {
        return ([-2.0, 0.0, 0.0, 0.0, 0.0], [d1, d2, x]);
    }
    let p1 = d1 * x;
    let (q1, q2) = (p1 * x, p2 * y);
    // Flag, and the matrix's elements h11, h21, h12, h22.
    let (mut flag, mut h);
    if q1.abs() > q2.abs() {
        h = [1.0, -y / x, p2 / p1, 1.0];
        let u = 1.0 - h[2] * h[1];
        if u <= 0.0 {
            return zeros;
        }
        flag = 0.0;
        d1 /= u;
        d2 /= u;
        x *= u;
    } else {
        if q2 < 0.0 {
            return zeros;
        }
        flag = 1.0;
        h = [p1 / p2, -1.0, 1.0, x / y];
        let u = 1.0 + h[0] * h[3];
        (d1, d2) = (d2 / u, d1 / u);
        x = y * u;
    }
    // Numbers that are very small or very large are scaled, and then all of the matrix is written.
    while d1 != 0.0 && (d1 <= LARGE.powi(-2) || d1 >= LARGE.powi(2)) {
        flag = -1.0;
        let by = if d1 <= LARGE.powi(-2) { LARGE } else { 1.0 / LARGE };
        d1 *= by * by;
        x /= by;
        h[0] /= by;
        h[2] /= by;
    }
    while d2 != 0.0 && (d2.abs() <= LARGE.powi(-2) || d2.abs() >= LARGE.powi(2)) {
        flag = -1.0;
        let by = if d2.abs() <= LARGE.powi(-2) { LARGE } else { 1.0 / LARGE };
        d2 *= by * by;
        h[1] /= by;
        h[3] /= by;
    }
    ([flag, h[0], h[1], h[2], h[3]], [d1, d2, x])
}

/// Which of the elements of `param` are written, by its flag.
fn written(flag: f64) -> &'static [usize] {
    if flag == -2.0 {
        &[]
    } else if flag == -1.0 {
        &[1, 2, 3, 4]
    } else if flag == 0.0 {
        &[2, 3]
    } else {
        &[1, 4]
    }
}

macro_rules! rotmg {
    ($($name:ident $t:ty;)*) => {
        blas! {$(
            /// `cublasSrotmg_v2`, `cublasDrotmg_v2`.
            fn $name(d1: Out<$t>, d2: Out<$t>, x: Out<$t>, y: Out<$t>, param: Out<$t>) |call| {
                if call.device_scalars() {
                    return unsupported("A rotation made of numbers in device memory");
                }
                let given = [d1.get()?, d2.get()?, x.get()?, y.get()?].map(f64::from);
                let (matrix, after) = modified(given);
                param.set(matrix[0] as $t)?;
                for &index in written(matrix[0]) {
                    // SAFETY: by the call's description, `param` has five numbers.
                    unsafe { param.at(index) }.set(matrix[index] as $t)?;
                }
                [d1, d2, x].into_iter().zip(after).try_for_each(|(to, value)| to.set(value as $t))
            }
        )*}
    };
}
rotmg! {
    srotmg f32;
    drotmg f64;
}

/// The complex rotation with a real cosine that leaves nothing of `b`: cosine, sine, and what becomes of `a`.
fn complex(a: [f64; 2], b: [f64; 2]) -> (f64, [f64; 2], [f64; 2]) {
    let (size_a, size_b) = (a[0].hypot(a[1]), b[0].hypot(b[1]));
    if size_a == 0.0 {
        return (0.0, [1.0, 0.0], b);
    }
    let length = size_a.hypot(size_b);
    let direction = a.map(|part| part / size_a);
    let sine = [
        (direction[0] * b[0] + direction[1] * b[1]) / length,
        (direction[1] * b[0] - direction[0] * b[1]) / length,
    ];
    (size_a / length, sine, direction.map(|part| part * length))
}

macro_rules! rotg {
    ($($name:ident $t:ty;)*) => {
        blas! {$(
            /// `cublasCrotg_v2`, `cublasZrotg_v2`.
            fn $name(a: Out<[$t; 2]>, b: Out<[$t; 2]>, c: Out<$t>, s: Out<[$t; 2]>) |call| {
                if call.device_scalars() {
                    return unsupported("A rotation made of numbers in device memory");
                }
                c.check()?;
                s.check()?;
                let (cosine, sine, after) = complex(a.get()?.map(f64::from), b.get()?.map(f64::from));
                a.set(after.map(|part| part as $t))?;
                c.set(cosine as $t)?;
                s.set(sine.map(|part| part as $t))
            }
        )*}
    };
}
rotg! {
    crotg f32;
    zrotg f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modified_rotations_keep_what_they_weigh() {
        for given in [
            [1.0, 1.0, 3.0, 4.0],
            [2.0, 0.5, 4.0, -1.0],
            [1e-9, 3.0, 2.0, 1.0],
            [1e9, 1e9, 0.5, 0.25],
            [3.0, 1e-10, -2.0, 1.0],
            [1.0, -0.25, 2.0, 1.0],
        ] {
            let [d1, d2, x, y] = given;
            let (param, after) = modified(given);
            let h = match param[0] {
                -1.0 => [param[1], param[2], param[3], param[4]],
                0.0 => [1.0, param[2], param[3], 1.0],
                1.0 => [param[1], -1.0, 1.0, param[4]],
                other => panic!("flag {other}"),
            };
            let (top, bottom) = (h[0] * x + h[2] * y, h[1] * x + h[3] * y);
            assert!(bottom.abs() < 1e-12 * (1.0 + top.abs()), "{given:?}: {bottom}");
            assert!((top - after[2]).abs() <= 1e-12 * top.abs(), "{given:?}");
            let (before, now) = (d1 * x * x + d2 * y * y, after[0] * top * top);
            assert!((before - now).abs() <= 1e-12 * before.abs(), "{given:?}: {before} {now}");
            assert!(
                after[..2].iter().all(|d| (4096f64.powi(-2)..4096f64.powi(2)).contains(&d.abs())),
                "{given:?}"
            );
        }
        assert_eq!(modified([1.0, 0.0, 2.0, 3.0]), ([-2.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 2.0]));
        assert_eq!(modified([-1.0, 1.0, 2.0, 3.0]).1, [0.0; 3]);
    }

    #[test]
    fn complex_rotations_make_zeros() {
        for (a, b) in [([3.0, 1.0], [4.0, -2.0]), ([0.0, 0.0], [1.0, 2.0]), ([0.0, -2.0], [0.0, 0.0])] {
            let (c, s, r) = complex(a, b);
            let times = |x: [f64; 2], y: [f64; 2]| [x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]];
            let (top, bottom) = (times(s, b), times([-s[0], s[1]], a));
            for part in 0..2 {
                assert!((c * a[part] + top[part] - r[part]).abs() < 1e-12, "{a:?} {b:?}");
                assert!((bottom[part] + c * b[part]).abs() < 1e-12, "{a:?} {b:?}");
            }
            assert!((c * c + s[0] * s[0] + s[1] * s[1] - 1.0).abs() < 1e-12);
        }
    }
}
