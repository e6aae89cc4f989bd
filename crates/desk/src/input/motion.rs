//! The places that a pointer passes on its way.

use hotdesk_api::action::{Easing, Point};

/// Time between two motions: as often as a common mouse reports, and finer than a frame.
const STEP_MS: u32 = 8;
/// Motions that a drag makes at least, so that programs notice that it is one.
const LEAST_DRAG_STEPS: u32 = 12;

/// A place and when the pointer is there, as a part of the whole time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pass {
    pub(super) at: Point,
    pub(super) time: f64,
}

/// A straight movement; the last pass is the goal.
pub(super) fn straight(from: Point, to: Point, ms: u32, easing: Easing) -> Vec<Pass> {
    if ms == 0 {
        return vec![Pass { at: to, time: 1.0 }];
    }
    along(&[from, to], (ms / STEP_MS).max(1), easing)
}

/// A drag along a path. Every corner of it is passed.
pub(super) fn dragged(path: &[Point], ms: u32, easing: Easing) -> Vec<Pass> {
    along(path, (ms / STEP_MS).max(LEAST_DRAG_STEPS), easing)
}

fn along(path: &[Point], steps: u32, easing: Easing) -> Vec<Pass> {
    let mut corners = Vec::with_capacity(path.len());
    let mut length = 0.0;
    for (index, point) in path.iter().enumerate() {
        if let Some(before) = index.checked_sub(1).and_then(|before| path.get(before)) {
            length += f64::from(point.x - before.x).hypot(f64::from(point.y - before.y));
        }
        corners.push((length, *point));
    }
    let mut passes = Vec::with_capacity(steps as usize + path.len());
    let mut next_corner = corners.iter().skip(1).peekable();
    let mut last = corners.first().copied();
    for step in 1..=steps {
        let time = f64::from(step) / f64::from(steps);
        let way = if step == steps { length } else { length * ease(easing, time) };
        while let Some(corner) = next_corner.next_if(|(distance, _)| *distance <= way) {
            passes.push(Pass { at: corner.1, time });
            last = Some(*corner);
        }
        if let (Some((start, from)), Some((end, to))) = (last, next_corner.peek()) {
            let part = if end > &start { (way - start) / (end - start) } else { 1.0 };
            passes.push(Pass { at: between(from, *to, part), time });
        }
    }
    // A way without length is at its end at once, but takes its time.
    passes.extend(corners.last().filter(|_| length == 0.0).map(|(_, at)| Pass { at: *at, time: 1.0 }));
    passes
}

fn between(from: Point, to: Point, part: f64) -> Point {
    let mix = |a: i32, b: i32| (f64::from(a) + f64::from(b - a) * part).round() as i32;
    Point { x: mix(from.x, to.x), y: mix(from.y, to.y) }
}

fn ease(easing: Easing, t: f64) -> f64 {
    match easing {
        Easing::Linear => t,
        Easing::In => t * t,
        Easing::Out => t * (2.0 - t),
        Easing::InOut if t < 0.5 => 2.0 * t * t,
        Easing::InOut => 1.0 - 2.0 * (1.0 - t) * (1.0 - t),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(x: i32, y: i32) -> Point {
        Point { x, y }
    }

    #[test]
    fn a_movement_ends_at_its_goal() {
        for easing in [Easing::Linear, Easing::In, Easing::Out, Easing::InOut] {
            for ms in [0, 1, 7, 8, 500] {
                let passes = straight(p(3, 4), p(-50, 900), ms, easing);
                assert_eq!(passes.last().map(|pass| (pass.at, pass.time)), Some((p(-50, 900), 1.0)));
                assert!(passes.is_sorted_by(|a, b| a.time <= b.time && a.at.y <= b.at.y));
            }
        }
        let still = straight(p(7, 7), p(7, 7), 80, Easing::Linear);
        assert_eq!(still.last().map(|pass| (pass.at, pass.time)), Some((p(7, 7), 1.0)));
    }

    #[test]
    fn a_drag_passes_every_corner() {
        let path = [p(0, 0), p(100, 0), p(100, 0), p(100, 3), p(0, 0)];
        let passes = dragged(&path, 0, Easing::InOut);
        assert!(passes.len() >= 12);
        let mut rest = passes.iter().map(|pass| pass.at);
        assert!(path.iter().skip(1).all(|corner| rest.any(|at| at == *corner)));
        assert_eq!(passes.last().map(|pass| pass.at), Some(p(0, 0)));
        assert_eq!(dragged(&[p(5, 5), p(5, 5)], 100, Easing::Linear).last().map(|pass| pass.at), Some(p(5, 5)));
    }

    #[test]
    fn easing_starts_and_ends_where_it_should() {
        for easing in [Easing::Linear, Easing::In, Easing::Out, Easing::InOut] {
            assert_eq!((ease(easing, 0.0), ease(easing, 1.0)), (0.0, 1.0));
        }
        assert!(ease(Easing::In, 0.3) < 0.3 && ease(Easing::Out, 0.3) > 0.3);
    }
}
