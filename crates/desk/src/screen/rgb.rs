//! From the X server's pixels (blue, green, red, unused) to RGB, with the difference that a PNG filter wants taken on the way.

use super::frame::PIXEL;

/// Bytes of a pixel of the result.
pub(crate) const RGB: usize = 3;

/// A row as it is.
pub(crate) fn plain(row: &[u8], out: &mut [u8]) {
    convert::<false>(row, row, out);
}

/// A row minus the one above it, byte by byte: PNG's filter "Up".
pub(crate) fn minus_above(row: &[u8], above: &[u8], out: &mut [u8]) {
    convert::<true>(row, above, out);
}

/// A row in which every pixel is what it adds to its left neighbour: PNG's filter "Sub".
pub(crate) fn minus_left(row: &[u8], out: &mut [u8]) {
    let (Some(first), Some(rest)) = (row.get(..PIXEL), row.get(PIXEL..)) else { return };
    let (out_first, out_rest) = out.split_at_mut(RGB.min(out.len()));
    plain(first, out_first);
    convert::<true>(rest, row, out_rest);
}

/// `SUBTRACT` is known when compiling, so that plain conversion pays nothing for it.
fn convert<const SUBTRACT: bool>(row: &[u8], minus: &[u8], out: &mut [u8]) {
    let pixels = (row.len() / PIXEL).min(out.len() / RGB).min(minus.len() / PIXEL);
    let (row, minus, out) = (&row[..pixels * PIXEL], &minus[..pixels * PIXEL], &mut out[..pixels * RGB]);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("ssse3") {
        // SAFETY: the processor has SSSE3.
        let done = unsafe { convert_ssse3::<SUBTRACT>(row, minus, out) };
        return convert_scalar::<SUBTRACT>(&row[done * PIXEL..], &minus[done * PIXEL..], &mut out[done * RGB..]);
    }
    convert_scalar::<SUBTRACT>(row, minus, out);
}

fn convert_scalar<const SUBTRACT: bool>(row: &[u8], minus: &[u8], out: &mut [u8]) {
    for ((p, m), o) in row.chunks_exact(PIXEL).zip(minus.chunks_exact(PIXEL)).zip(out.chunks_exact_mut(RGB)) {
        let less = |n: usize| if SUBTRACT { p[n].wrapping_sub(m[n]) } else { p[n] };
        (o[0], o[1], o[2]) = (less(2), less(1), less(0));
    }
}

/// Converts as many pixels as can be done sixteen at a time, and returns how many that were.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3")]
fn convert_ssse3<const SUBTRACT: bool>(row: &[u8], minus: &[u8], out: &mut [u8]) -> usize {
    use std::arch::x86_64::*;
    const STEP: usize = 16;
    let order = _mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
    let mut done = 0;
    let rows = row.chunks_exact(STEP * PIXEL).zip(minus.chunks_exact(STEP * PIXEL));
    for ((p, m), o) in rows.zip(out.chunks_exact_mut(STEP * RGB)) {
        let four = |n: usize| {
            // SAFETY: the chunks are 64 bytes long and n is below 4.
            let v = unsafe { _mm_loadu_si128(p.as_ptr().add(n * 16).cast()) };
            let v = if SUBTRACT {
                // SAFETY: as above.
                _mm_sub_epi8(v, unsafe { _mm_loadu_si128(m.as_ptr().add(n * 16).cast()) })
            } else {
                v
            };
            _mm_shuffle_epi8(v, order)
        };
        // Four times twelve bytes become three times sixteen.
        let (a, b, c, d) = (four(0), four(1), four(2), four(3));
        let first = _mm_or_si128(a, _mm_slli_si128::<12>(b));
        let second = _mm_or_si128(_mm_srli_si128::<4>(b), _mm_slli_si128::<8>(c));
        let third = _mm_or_si128(_mm_srli_si128::<8>(c), _mm_slli_si128::<4>(d));
        for (n, v) in [first, second, third].into_iter().enumerate() {
            // SAFETY: the chunk is 48 bytes long.
            unsafe { _mm_storeu_si128(o.as_mut_ptr().add(n * 16).cast(), v) };
        }
        done += STEP;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fast_and_plain_ways_agree(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let half = bytes.len() / 8 * 4;
            let (row, above) = (&bytes[..half], &bytes[half..half * 2]);
            let mut fast = vec![0; half / PIXEL * RGB];
            let mut slow = fast.clone();
            minus_above(row, above, &mut fast);
            convert_scalar::<true>(row, above, &mut slow);
            prop_assert_eq!(&fast, &slow);
            plain(row, &mut fast);
            convert_scalar::<false>(row, row, &mut slow);
            prop_assert_eq!(&fast, &slow);
            // What "Sub" takes away, adding up gives back.
            minus_left(row, &mut fast);
            for n in RGB..fast.len() {
                fast[n] = fast[n].wrapping_add(fast[n - RGB]);
            }
            prop_assert_eq!(&fast, &slow);
        }
    }

    #[test]
    fn order_of_colours() {
        let mut out = [0; 3];
        plain(&[1, 2, 3, 255], &mut out);
        assert_eq!(out, [3, 2, 1]);
    }
}
