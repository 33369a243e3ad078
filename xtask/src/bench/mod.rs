//! The measurements behind `cargo xtask bench`.

mod baseline;
pub(crate) mod build;
mod callgrind;
mod chart;
pub(crate) mod julia;
pub(crate) mod libraries;
mod machine;
mod measure;
mod paths;
pub(crate) mod python;
mod report;
mod results;
pub(crate) mod rust;
mod sizes;
mod table;
mod threads;

/// Numbers in order, each once.
fn distinct(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}
