//! Folds of a view in lanes.

use super::View;
use crate::Element;

impl<T: Element> View<'_, T> {
    /// Folds the elements in `N` lanes, beginning with `init` in each: lane `i` has the elements `i`, `i + N`, `i + 2 * N`, ...
    /// in row-major order.
    ///
    /// `iter().sum()` adds floats in order, so that each addition waits for the one before it. Lanes do not wait for each
    /// other, and over contiguous elements they vectorise: sixteen sums of `f32` take less than a tenth of the time of one.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![0.5_f32; 20]);
    /// let sums: [f32; 16] = tensor.view::<f32>()?.fold_lanes(0.0, |sum, value| sum + value);
    /// assert_eq!(sums[3..5], [1.0, 0.5]);
    /// assert_eq!(sums.iter().sum::<f32>(), 10.0);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[inline]
    pub fn fold_lanes<B: Copy, const N: usize>(
        &self,
        init: B,
        mut fold: impl FnMut(B, T) -> B,
    ) -> [B; N] {
        const { assert!(N > 0, "one lane at least") };
        let mut lanes = [init; N];
        if let Some(cells) = self.as_cells() {
            let chunks = cells.chunks_exact(N);
            let rest = chunks.remainder();
            for cells in chunks {
                for (lane, cell) in lanes.iter_mut().zip(cells) {
                    *lane = fold(*lane, cell.get());
                }
            }
            for (lane, cell) in lanes.iter_mut().zip(rest) {
                *lane = fold(*lane, cell.get());
            }
            return lanes;
        }
        self.iter().fold(0, |at, value| {
            lanes[at] = fold(lanes[at], value);
            (at + 1) % N
        });
        lanes
    }
}
