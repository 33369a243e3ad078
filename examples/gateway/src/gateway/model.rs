//! What clients send and receive: the inputs and outputs of the model in `model.py`.

use dlbridge::DType;

/// The input: rows of so many `float32`.
pub(super) const FEATURES: usize = 256;
/// The size of a row of the input in bytes.
pub(super) const ROW: usize = FEATURES * size_of::<f32>();
/// What the model scores.
const CLASSES: i64 = 10;

/// A tensor of the model's answer, with a row for each row of the input.
#[derive(Debug)]
pub(super) struct Output {
    /// Its place among [`OUTPUTS`].
    pub index: usize,
    /// Its name. Clients ask for it by the path `/name`.
    pub name: &'static str,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of a row.
    pub row: &'static [i64],
}

/// All that an answer holds.
pub(super) static OUTPUTS: [Output; 2] = [
    Output { index: 0, name: "scores", dtype: DType::F32, row: &[CLASSES] },
    Output { index: 1, name: "labels", dtype: DType::I64, row: &[] },
];

impl Output {
    /// The shape for some rows of input.
    pub(super) fn shape(&self, rows: usize) -> Vec<i64> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        std::iter::once(rows).chain(self.row.iter().copied()).collect()
    }
}
