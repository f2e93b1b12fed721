//! Statistics: Student-t intervals over replicates, combined over cells.
//!
//! A comparison is paired: replicate *r* of all values met the same requests, so that what a replicate has in common is no
//! scatter. A few replicates of two values tell little of what is left; those of all values of a cell tell more, where it is alike
//! for all. Cells are independent of each other, so the variances of their means add up, and the degrees of freedom of the sum are
//! those of Welch and Satterthwaite.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// The mean of a few samples with the variance of that mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Variance of the mean; `None` for a single sample.
    pub variance: Option<f64>,
    /// Degrees of freedom of the variance.
    pub freedom: f64,
}

/// How samples scatter: the variance of one, and its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scatter {
    /// The variance.
    pub variance: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

impl Scatter {
    /// Of several rows of as many samples each, beside what a row and a column have in common (the residual mean square of two
    /// factors). None of a single row or column.
    pub fn of(rows: &[Vec<f64>]) -> Option<Self> {
        let columns = rows.first()?.len();
        let freedom = (rows.len() - 1) * columns.saturating_sub(1);
        if freedom == 0 {
            return None;
        }
        let mean = |samples: &mut dyn Iterator<Item = f64>, count: usize| samples.sum::<f64>() / count as f64;
        let of_row: Vec<f64> = rows.iter().map(|row| mean(&mut row.iter().copied(), columns)).collect();
        let of_column: Vec<f64> =
            (0..columns).map(|c| mean(&mut rows.iter().map(|row| row[c]), rows.len())).collect();
        let whole = mean(&mut of_row.iter().copied(), rows.len());
        let residual = |r: usize, c: usize| (rows[r][c] - of_row[r] - of_column[c] + whole).powi(2);
        let squares: f64 = (0..rows.len())
            .flat_map(|r| (0..columns).map(move |c| (r, c)))
            .map(|(r, c)| residual(r, c))
            .sum();
        Some(Self { variance: squares / freedom as f64, freedom: freedom as f64 })
    }

    /// The difference of two rows' means over so many columns.
    pub fn difference(self, mean: f64, columns: usize) -> Mean {
        Mean { mean, variance: Some(2.0 * self.variance / columns as f64), freedom: self.freedom }
    }
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// The interval; `None` where a single sample gives none.
    pub bounds: Option<(f64, f64)>,
}

impl Mean {
    /// Of samples; there must be one at least.
    pub fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
        let variance = (samples.len() > 1).then(|| squares / (n - 1.0) / n);
        Self { mean, variance, freedom: n - 1.0 }
    }
}

impl Interval {
    /// The weighted sum of means; no interval if any of them has no variance.
    pub fn of_weighted_sum(terms: impl IntoIterator<Item = (f64, Mean)>) -> Self {
        Self::simultaneous(terms, 1)
    }

    /// The same as one of so many intervals that hold together with [`CONFIDENCE`] (Bonferroni).
    pub fn simultaneous(terms: impl IntoIterator<Item = (f64, Mean)>, comparisons: usize) -> Self {
        let (mut value, mut variance, mut scale) = (0.0, Some(0.0), 0.0);
        for (weight, term) in terms {
            value += weight * term.mean;
            let part = term.variance.map(|v| v * weight * weight);
            if let Some(part) = part {
                scale += part * part / term.freedom;
            }
            variance = variance.zip(part).map(|(sum, part)| sum + part);
        }
        let bounds = variance.map(|variance| {
            let t = || t_quantile(variance * variance / scale, comparisons);
            let half = if variance > 0.0 { t() * variance.sqrt() } else { 0.0 };
            (value - half, value + half)
        });
        Self { value, bounds }
    }

    /// The narrower of two intervals of the same value.
    #[must_use]
    pub fn narrower(self, other: Self) -> Self {
        let width = |interval: Self| interval.bounds.map_or(f64::INFINITY, |(low, high)| high - low);
        if width(other) < width(self) { other } else { self }
    }

    /// The exponential of value and interval.
    #[must_use]
    pub fn exp(self) -> Self {
        Self { value: self.value.exp(), bounds: self.bounds.map(|(low, high)| (low.exp(), high.exp())) }
    }
}

/// The two-sided quantile of Student's t distribution at [`CONFIDENCE`], shared by so many comparisons.
fn t_quantile(freedom: f64, comparisons: usize) -> f64 {
    let upper = 1.0 - (1.0 - CONFIDENCE) / 2.0 / comparisons.max(1) as f64;
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(f64::INFINITY, |t| t.inverse_cdf(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    /// t at 97.5 % from printed tables: 12.706 (1), 4.303 (2), 2.776 (4), 2.228 (10).
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, t) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (10.0, 2.228)] {
            assert!(close(t_quantile(freedom, 1), t), "{freedom}");
        }
    }

    /// t at 99.5 % from printed tables: 63.657 (1), 4.604 (4); five comparisons share 5 %.
    #[test]
    fn comparisons_share_the_error() {
        assert!(close(t_quantile(1.0, 5), 63.657) && close(t_quantile(4.0, 5), 4.604));
        let samples = [(1.0, Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]))];
        let (low, high) = Interval::simultaneous(samples, 5).bounds.unwrap();
        assert!(close(high - low, 2.0 * 4.604 * 0.5f64.sqrt()));
    }

    /// By hand: 1, 2, 3, 4, 5 has mean 3, variance 2.5, variance of the mean 0.5; 3 ± 2.776 × 0.7071.
    #[test]
    fn one_cell_gives_the_plain_t_interval() {
        let interval = Interval::of_weighted_sum([(1.0, Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]))]);
        let (low, high) = interval.bounds.unwrap();
        assert!(close(interval.value, 3.0) && close(low, 3.0 - 1.963) && close(high, 3.0 + 1.963));
    }

    /// By hand: means 2 and 4, variances of the mean 1/3 and 4/3, weights a half each: value 3, variance
    /// (1/3 + 4/3) / 4 = 5/12, freedom (5/12)² / ((1/12)²/2 + (4/12)²/2) = 50/17 = 2.941; t(2.941) = 3.219.
    #[test]
    fn cells_add_their_variances() {
        let terms = [(0.5, Mean::of(&[1.0, 2.0, 3.0])), (0.5, Mean::of(&[2.0, 4.0, 6.0]))];
        let interval = Interval::of_weighted_sum(terms);
        let (low, high) = interval.bounds.unwrap();
        assert!(close(interval.value, 3.0));
        let half = t_quantile(50.0 / 17.0, 1) * (5.0f64 / 12.0).sqrt();
        assert!(
            close(high - 3.0, half)
                && close(3.0 - low, half)
                && (3.18..3.25).contains(&t_quantile(50.0 / 17.0, 1))
        );
    }

    /// By hand: rows 1, 3, 5 and 2, 6, 4 have means 3 and 4, columns 1.5, 4.5, 4.5, all 3.5. Residuals 0, -1, 1 and 0, 1, -1:
    /// squares 4, over 1 × 2 degrees of freedom. Of two rows that is half the variance of their paired differences 1, 3, -1, which
    /// is 4.
    #[test]
    fn scatter_is_what_rows_and_columns_do_not_have_in_common() {
        let rows = [vec![1.0, 3.0, 5.0], vec![2.0, 6.0, 4.0]];
        assert_eq!(Scatter::of(&rows), Some(Scatter { variance: 2.0, freedom: 2.0 }));
        let paired = Mean::of(&[1.0, 3.0, -1.0]);
        let mean = Scatter::of(&rows).unwrap().difference(1.0, 3);
        assert!(
            close(mean.variance.unwrap(), paired.variance.unwrap()) && close(mean.freedom, paired.freedom)
        );
        let shifted = [vec![1.0, 2.0, 9.0], vec![11.0, 12.0, 19.0], vec![0.0, 1.0, 8.0]];
        assert_eq!(Scatter::of(&shifted), Some(Scatter { variance: 0.0, freedom: 4.0 }));
        assert_eq!((Scatter::of(&rows[..1]), Scatter::of(&[vec![1.0], vec![2.0]])), (None, None));
    }

    #[test]
    fn a_single_sample_gives_no_interval() {
        let interval = Interval::of_weighted_sum([(1.0, Mean::of(&[1.0, 2.0])), (1.0, Mean::of(&[1.0]))]);
        assert_eq!(interval.bounds, None);
        assert!(close(interval.value, 2.5));
    }

    #[test]
    fn samples_without_scatter_give_an_interval_of_no_width() {
        let interval = Interval::of_weighted_sum([(1.0, Mean::of(&[2.0, 2.0, 2.0]))]);
        assert_eq!(interval.bounds, Some((2.0, 2.0)));
    }
}
