//! Of several values, the one that stands for them, and how far they lie apart.

use cryptline_cipher::ceiling;

/// The middle value, or the mean of the two in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    ceiling::median(values).unwrap_or(0.0)
}

/// A quarter of the values lies below the first and a quarter above the second; 0 of none.
pub fn quartiles(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    [last / 4, last - last / 4].map(|at| sorted.get(at).copied().unwrap_or(0.0))
}

/// Distance of the quartiles over the median: half of the values are this close together.
pub fn spread(values: &[f64]) -> f64 {
    let [low, high] = quartiles(values);
    match median(values) {
        0.0 => 0.0,
        median => (high - low) / median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn one_disturbed_sample_moves_neither_median_nor_spread() {
        let mut rates = [10.0; 9];
        rates[4] = 1.0;
        assert_eq!((median(&rates), spread(&rates)), (10.0, 0.0));
        assert_eq!(spread(&[]), 0.0);
    }

    #[test]
    fn half_of_the_values_lie_between_the_quartiles() {
        assert_eq!(quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]), [2.0, 4.0]);
        assert_eq!(quartiles(&[7.0]), [7.0, 7.0]);
        assert_eq!(quartiles(&[7.0, 8.0]), [7.0, 8.0]);
    }
}
