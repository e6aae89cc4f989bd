//! How a pointer speeds up and slows down on its way: the curves of pytweening 1.2.0.
//!
//! Powers, sines and cosines go to the C library, as in CPython, because the last bit of a result
//! can decide which pixel a half rounds to.

use std::f64::consts::PI;
use std::hint::black_box;

/// The sines and cosines of C libraries differ in their last bits. A desk's Python nearly always
/// comes with glibc; when we are linked with another one, those curves are left to Python. (Powers
/// are safe: musl and glibc took theirs from the same source.)
pub(super) const SAME_MATH: bool = cfg!(target_env = "gnu");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Easing {
    pub(super) family: Family,
    pub(super) side: Side,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Linear,
    Quad,
    Cubic,
    Quart,
    Quint,
    Sine,
    Expo,
    Circ,
    Elastic,
    Back,
    Bounce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    In,
    Out,
    InOut,
}

impl Easing {
    pub(super) const LINEAR: Self = Self { family: Family::Linear, side: Side::InOut };

    /// `easeInOutQuad`, `linear`
    pub(super) fn named(name: &str) -> Option<Self> {
        if name == "linear" {
            return Some(Self::LINEAR);
        }
        let rest = name.strip_prefix("ease")?;
        let (side, family) = if let Some(rest) = rest.strip_prefix("InOut") {
            (Side::InOut, rest)
        } else if let Some(rest) = rest.strip_prefix("In") {
            (Side::In, rest)
        } else {
            (Side::Out, rest.strip_prefix("Out")?)
        };
        let family = match family {
            "Quad" => Family::Quad,
            "Cubic" => Family::Cubic,
            "Quart" => Family::Quart,
            "Quint" => Family::Quint,
            "Sine" => Family::Sine,
            "Expo" => Family::Expo,
            "Circ" => Family::Circ,
            "Elastic" => Family::Elastic,
            "Back" => Family::Back,
            "Bounce" => Family::Bounce,
            _ => return None,
        };
        Some(Self { family, side })
    }

    /// Whether we get the very same numbers as CPython here.
    pub(super) fn is_exact(self) -> bool {
        SAME_MATH || !matches!(self.family, Family::Sine | Family::Elastic)
    }

    /// Whether it leaves the stretch between start and end.
    pub(super) fn overshoots(self) -> bool {
        matches!(self.family, Family::Elastic | Family::Back)
    }

    /// How far along the way the pointer is after the part `n` (0 to 1) of the time.
    pub(super) fn at(self, n: f64) -> f64 {
        use Side::{In, InOut, Out};
        match (self.family, self.side) {
            (Family::Linear, _) => n,
            (Family::Quad, In) => power(n, 2.0),
            (Family::Quad, Out) => -n * (n - 2.0),
            (Family::Quad, InOut) if n < 0.5 => 2.0 * power(n, 2.0),
            (Family::Quad, InOut) => {
                let n = n * 2.0 - 1.0;
                -0.5 * (n * (n - 2.0) - 1.0)
            }
            (Family::Cubic, side) => odd(n, 3.0, side),
            (Family::Quart, side) => even(n, 4.0, side),
            (Family::Quint, side) => odd(n, 5.0, side),
            (Family::Sine, In) => -(n * PI / 2.0).cos() + 1.0,
            (Family::Sine, Out) => (n * PI / 2.0).sin(),
            (Family::Sine, InOut) => -0.5 * ((PI * n).cos() - 1.0),
            (Family::Expo, side) => expo(n, side),
            (Family::Circ, In) => -((1.0 - n * n).sqrt() - 1.0),
            (Family::Circ, Out) => (1.0 - (n - 1.0) * (n - 1.0)).sqrt(),
            (Family::Circ, InOut) => circ_both(n),
            (Family::Elastic, In) => elastic_in(n, 0.3),
            (Family::Elastic, Out) => elastic_out(n, 0.3),
            (Family::Elastic, InOut) if n * 2.0 < 1.0 => elastic_in(n * 2.0, 0.5) / 2.0,
            (Family::Elastic, InOut) => elastic_out(n * 2.0 - 1.0, 0.5) / 2.0 + 0.5,
            (Family::Back, side) => back(n, side),
            (Family::Bounce, In) => 1.0 - bounce(1.0 - n),
            (Family::Bounce, Out) => bounce(n),
            (Family::Bounce, InOut) if n < 0.5 => (1.0 - bounce(1.0 - n * 2.0)) * 0.5,
            (Family::Bounce, InOut) => bounce(n * 2.0 - 1.0) * 0.5 + 0.5,
        }
    }
}

/// `base ** exponent` on floats. The exponent is hidden from the compiler, which would turn small
/// whole ones into multiplications that round differently.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    base.powf(black_box(exponent))
}

fn odd(n: f64, degree: f64, side: Side) -> f64 {
    match side {
        Side::In => power(n, degree),
        Side::Out => power(n - 1.0, degree) + 1.0,
        Side::InOut if n * 2.0 < 1.0 => 0.5 * power(n * 2.0, degree),
        Side::InOut => 0.5 * (power(n * 2.0 - 2.0, degree) + 2.0),
    }
}

fn even(n: f64, degree: f64, side: Side) -> f64 {
    match side {
        Side::In => power(n, degree),
        Side::Out => -(power(n - 1.0, degree) - 1.0),
        Side::InOut if n * 2.0 < 1.0 => 0.5 * power(n * 2.0, degree),
        Side::InOut => -0.5 * (power(n * 2.0 - 2.0, degree) - 2.0),
    }
}

fn expo(n: f64, side: Side) -> f64 {
    match side {
        Side::In if n == 0.0 => 0.0,
        Side::In => power(2.0, 10.0 * (n - 1.0)),
        Side::Out if n == 1.0 => 1.0,
        Side::Out => -power(2.0, -10.0 * n) + 1.0,
        Side::InOut if n == 0.0 || n == 1.0 => n,
        Side::InOut if n * 2.0 < 1.0 => 0.5 * power(2.0, 10.0 * (n * 2.0 - 1.0)),
        Side::InOut => 0.5 * (-power(2.0, -10.0 * (n * 2.0 - 1.0)) + 2.0),
    }
}

fn circ_both(n: f64) -> f64 {
    let n = n * 2.0;
    if n < 1.0 { -0.5 * ((1.0 - power(n, 2.0)).sqrt() - 1.0) } else { 0.5 * ((1.0 - power(n - 2.0, 2.0)).sqrt() + 1.0) }
}

fn elastic_in(n: f64, period: f64) -> f64 {
    1.0 - elastic_out(1.0 - n, period)
}

fn elastic_out(n: f64, period: f64) -> f64 {
    let shift = period / (2.0 * PI) * 1.0_f64.asin();
    power(2.0, -10.0 * n) * ((n - shift) * (2.0 * PI / period)).sin() + 1.0
}

fn back(n: f64, side: Side) -> f64 {
    const AMOUNT: f64 = 1.70158;
    match side {
        Side::In => n * n * ((AMOUNT + 1.0) * n - AMOUNT),
        Side::Out => {
            let n = n - 1.0;
            n * n * ((AMOUNT + 1.0) * n + AMOUNT) + 1.0
        }
        Side::InOut => {
            let (n, amount) = (n * 2.0, AMOUNT * 1.525);
            if n < 1.0 {
                return 0.5 * (n * n * ((amount + 1.0) * n - amount));
            }
            let n = n - 2.0;
            0.5 * (n * n * ((amount + 1.0) * n + amount) + 2.0)
        }
    }
}

fn bounce(n: f64) -> f64 {
    let (n, height) = if n < 1.0 / 2.75 {
        (n, 0.0)
    } else if n < 2.0 / 2.75 {
        (n - 1.5 / 2.75, 0.75)
    } else if n < 2.5 / 2.75 {
        (n - 2.25 / 2.75, 0.9375)
    } else {
        (n - 2.65 / 2.75, 0.984375)
    };
    7.5625 * n * n + height
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_starts_at_zero_and_ends_at_one() {
        for side in ["In", "Out", "InOut"] {
            for family in ["Quad", "Cubic", "Quart", "Quint", "Sine", "Expo", "Circ", "Elastic", "Back", "Bounce"] {
                let easing = Easing::named(&format!("ease{side}{family}")).expect("a known curve");
                // The original's bounces miss their ends by a little.
                assert!(easing.at(0.0).abs() < 1e-2, "{easing:?}");
                assert!((easing.at(1.0) - 1.0).abs() < 1e-2, "{easing:?}");
            }
        }
    }

    /// Values of pytweening 1.2.0 on CPython 3.11, glibc.
    #[test]
    fn the_numbers_are_those_of_the_original() {
        for (name, n, expected) in [
            ("easeInQuad", 0.3, 0.09),
            ("easeOutQuad", 0.3, 0.51),
            ("easeInOutQuad", 0.7, 0.82),
            ("easeInBounce", 0.3, 0.06937499999999996),
            ("easeInElastic", 0.6, -0.03125),
            ("easeInOutBack", 0.25, -0.09968184375),
            ("easeOutCirc", 0.4, 0.8),
        ] {
            let easing = Easing::named(name).expect("a known curve");
            assert!((easing.at(n) - expected).abs() < 1e-12, "{name}({n}) = {}", easing.at(n));
        }
        assert_eq!(Easing::named("easeInPoly"), None);
        assert_eq!(Easing::named("easeQuad"), None);
    }
}
