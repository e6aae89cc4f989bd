//! Two sizes: what a model is shown, and the screen that it is a picture of.

use hotdesk_api::action::{Point, Rect, Size};

/// Models scale down what is longer than that on a side, or has more pixels, and coordinates get lost in it.
const LONGEST_SIDE: f64 = 1568.0;
const MOST_PIXELS: f64 = 1_150_000.0;
/// How much a part is enlarged at most; beyond that there is nothing more to see.
const MOST_ENLARGED: f64 = 4.0;
/// The largest display that can be declared on a side; the desk scales no further.
pub(crate) const MOST_DECLARED: u32 = 4096;

/// What a model is shown of a screen, and where its coordinates lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) shown: Size,
    pub(crate) real: Size,
}

impl View {
    /// As large as models see without loss.
    pub(crate) fn fitting(real: Size) -> Self {
        let (width, height) = (f64::from(real.width), f64::from(real.height));
        let factor = (LONGEST_SIDE / width.max(height)).min((MOST_PIXELS / (width * height)).sqrt()).min(1.0);
        let side = |pixels: f64| ((pixels * factor).floor() as u32).max(1);
        Self { shown: Size { width: side(width), height: side(height) }, real }
    }

    /// Of the size that the model was told.
    pub(crate) fn declared(real: Size, shown: Size) -> Self {
        Self { shown, real }
    }

    /// The size to ask the desk for; none if it is the screen's own.
    pub(crate) fn scaling(&self) -> Option<Size> {
        (self.shown != self.real).then_some(self.shown)
    }

    /// Where on the screen a place of the picture is.
    pub(crate) fn to_screen(self, x: f64, y: f64) -> Result<Point, String> {
        let Size { width, height } = self.shown;
        // The edges themselves are meant well.
        let within = |at: f64, side: u32| at.is_finite() && at >= 0.0 && at <= f64::from(side);
        if !within(x, width) || !within(y, height) {
            return Err(format!("the place ({x}, {y}) lies outside of the picture, which is {width}×{height}"));
        }
        let lead = |at: f64, shown: u32, real: u32| {
            // The middle of the pixel, because it stands for several.
            let middle = (at.floor() + 0.5) * f64::from(real) / f64::from(shown);
            (middle.floor() as i32).clamp(0, i32::try_from(real).unwrap_or(i32::MAX) - 1)
        };
        Ok(Point { x: lead(x, width, self.real.width), y: lead(y, height, self.real.height) })
    }

    /// Where in the picture a place of the screen is.
    pub(crate) fn to_picture(self, at: Point) -> Point {
        let lead = |at: i32, real: u32, shown: u32| (i64::from(at) * i64::from(shown) / i64::from(real.max(1))) as i32;
        Point { x: lead(at.x, self.real.width, self.shown.width), y: lead(at.y, self.real.height, self.shown.height) }
    }

    /// A part of the screen between two corners of the picture.
    pub(crate) fn part(&self, [x0, y0, x1, y1]: [f64; 4]) -> Result<Rect, String> {
        if x1 <= x0 || y1 <= y0 {
            return Err(format!("the region ({x0}, {y0}, {x1}, {y1}) is empty: it goes from the top left to the bottom right"));
        }
        // Only to see that they are in the picture.
        self.to_screen(x0, y0).and(self.to_screen(x1, y1))?;
        let lead = |at: f64, shown: u32, real: u32| (at * f64::from(real) / f64::from(shown)).round() as i32;
        let (left, right) = (lead(x0, self.shown.width, self.real.width), lead(x1, self.shown.width, self.real.width));
        let (top, bottom) = (lead(y0, self.shown.height, self.real.height), lead(y1, self.shown.height, self.real.height));
        Ok(Rect { x: left, y: top, width: (right - left).max(1) as u32, height: (bottom - top).max(1) as u32 })
    }

    /// The size in which a part of the screen is shown: as large as the picture has room for.
    pub(crate) fn enlarged(&self, width: u32, height: u32) -> Size {
        let (w, h) = (f64::from(width.max(1)), f64::from(height.max(1)));
        let factor = (f64::from(self.shown.width) / w).min(f64::from(self.shown.height) / h).min(MOST_ENLARGED);
        let side = |pixels: f64| ((pixels * factor).round() as u32).max(1);
        Size { width: side(w), height: side(h) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn pictures_fit_what_models_see() {
        for (real, shown) in [
            (size(1920, 1080), size(1429, 804)),
            (size(1280, 800), size(1280, 800)),
            (size(1024, 768), size(1024, 768)),
            (size(3840, 2160), size(1429, 804)),
            (size(4000, 400), size(1568, 156)),
            (size(1, 1), size(1, 1)),
        ] {
            assert_eq!(View::fitting(real).shown, shown, "{real:?}");
        }
        assert_eq!(View::fitting(size(1280, 800)).scaling(), None);
    }

    #[test]
    fn coordinates_go_to_the_screen_and_back() {
        let view = View::declared(size(1920, 1080), size(1024, 768));
        assert_eq!(view.to_screen(0.0, 0.0), Ok(Point { x: 0, y: 0 }));
        assert_eq!(view.to_screen(512.0, 384.0), Ok(Point { x: 960, y: 540 }));
        assert_eq!(view.to_screen(1024.0, 768.0), Ok(Point { x: 1919, y: 1079 }));
        for (x, y) in [(-1.0, 0.0), (0.0, 769.0), (f64::NAN, 0.0), (f64::INFINITY, 0.0)] {
            assert!(view.to_screen(x, y).is_err(), "{x} {y}");
        }
        for x in (0..1024).step_by(7) {
            let there = view.to_screen(f64::from(x), 5.0).unwrap();
            assert_eq!(view.to_picture(there).x, x, "the same pixel of the picture");
        }
    }

    #[test]
    fn parts_are_enlarged() {
        let view = View::declared(size(1920, 1080), size(960, 540));
        assert_eq!(view.part([10.0, 20.0, 110.0, 70.0]), Ok(Rect { x: 20, y: 40, width: 200, height: 100 }));
        assert_eq!(view.enlarged(200, 100), size(800, 400));
        assert_eq!(view.enlarged(1920, 1080), size(960, 540));
        assert!(view.part([10.0, 20.0, 10.0, 30.0]).is_err());
        assert!(view.part([10.0, 20.0, 1000.0, 30.0]).is_err());
    }
}
