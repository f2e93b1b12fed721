//! Lee's seek curve: t(x) = a √(x−1) + b (x−1) + c over x cylinders, through the times to the next cylinder,
//! between random places and across the disk (E. K. Lee and R. H. Katz, "An analytic performance model of
//! disk arrays", 1993).

use crate::models::SeekModel;

/// A seek curve; coefficients in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeekCurve {
    root: f64,
    linear: f64,
    min: f64,
}

impl SeekCurve {
    pub(crate) fn new(model: SeekModel, cylinders: u64) -> Self {
        let (min, average, max) = (model.min_ns as f64, model.average_ns as f64, model.max_ns as f64);
        let cylinders = cylinders as f64;
        Self {
            root: (15.0 * average - 10.0 * min - 5.0 * max) / (3.0 * cylinders.sqrt()),
            linear: (7.0 * min - 15.0 * average + 8.0 * max) / (3.0 * cylinders),
            min,
        }
    }

    /// Time over `distance` cylinders, at least one.
    #[inline]
    pub(crate) fn ns(&self, distance: u32) -> u64 {
        let beyond = f64::from(distance - 1);
        (self.root * beyond.sqrt() + self.linear * beyond + self.min) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_passes_through_its_three_anchors() {
        let model = SeekModel { min_ns: 800_000, average_ns: 8_500_000, max_ns: 17_000_000 };
        let cylinders = 190_000_u32;
        let curve = SeekCurve::new(model, u64::from(cylinders));
        assert_eq!(curve.ns(1), model.min_ns);
        assert!(curve.ns(cylinders - 1).abs_diff(model.max_ns) < 1000);
        // Random pairs of cylinders lie x apart with density 2 (1 - x / n) / n.
        let weight = |x: u32| f64::from(cylinders - x);
        let total: f64 = (1..cylinders).map(weight).sum();
        let mean = (1..cylinders).map(|x| weight(x) * curve.ns(x) as f64).sum::<f64>() / total;
        assert!((mean / 8.5e6 - 1.0).abs() < 0.001, "mean seek {mean} ns");
    }

    #[test]
    fn curve_never_falls() {
        let model = SeekModel { min_ns: 1_000_000, average_ns: 9_500_000, max_ns: 18_000_000 };
        let curve = SeekCurve::new(model, 190_000);
        assert!((1..189_999).all(|x| curve.ns(x) <= curve.ns(x + 1)));
    }
}
