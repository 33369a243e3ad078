//! Lines over a logarithmic scale, each named at its end.
//! Invariant: the names of two lines that end together do not cover each other.

use super::{Anchor, Drawing, WIDTH};

const HEIGHT: f64 = 380.0;
const LEFT: f64 = 80.0;
/// Room for the names of lines.
const RIGHT: f64 = 680.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 330.0;
const TEXT: f64 = 15.0;

/// Lines with their axes.
#[derive(Debug)]
pub(crate) struct Lines {
    /// What the chart says.
    pub(crate) title: String,
    /// What the numbers are.
    pub(crate) subtitle: String,
    /// From left to right, logarithmic.
    pub(crate) across: Axis,
    /// From the bottom to the top.
    pub(crate) up: Axis,
    /// Whether the axis to the top is logarithmic; else it starts at 0.
    pub(crate) is_log: bool,
    /// The lines.
    pub(crate) lines: Vec<Line>,
}

/// The numbers that an axis names, from the least to the greatest.
#[derive(Debug)]
pub(crate) struct Axis {
    /// A number and its name.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// One line; where it is ours, it stands out.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its name.
    pub(crate) label: String,
    /// Where it goes.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether it is dlbridge's.
    pub(crate) is_ours: bool,
}

impl Lines {
    /// The file.
    pub(crate) fn svg(&self) -> String {
        let mut drawing = Drawing::new(WIDTH, HEIGHT, &self.title);
        drawing.text((16.0, 44.0), &self.subtitle, "muted", Anchor::Start);
        for (value, name) in &self.up.ticks {
            let y = self.y(*value);
            drawing.line((LEFT, y), (RIGHT, y), "grid", 1.0);
            drawing.text((LEFT - 8.0, y + 4.0), name, "muted", Anchor::End);
        }
        for (value, name) in &self.across.ticks {
            drawing.text((self.x(*value), BOTTOM + 20.0), name, "muted", Anchor::Middle);
        }
        drawing.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis", 1.0);
        for line in &self.lines {
            let points: Vec<_> = line.points.iter().map(|&(x, y)| (self.x(x), self.y(y))).collect();
            let class = if line.is_ours { "ours" } else { "other" };
            drawing.polyline(&points, class);
            points.iter().for_each(|&point| drawing.dot(point, 3.0, class));
        }
        for (line, y) in self.lines.iter().zip(self.label_places()) {
            let class = if line.is_ours { "our-text" } else { "" };
            drawing.text((RIGHT + 10.0, y + 4.0), &line.label, class, Anchor::Start);
        }
        drawing.svg()
    }

    /// Where the names of the lines stand: at their ends, moved apart.
    fn label_places(&self) -> Vec<f64> {
        let end = |line: &Line| line.points.last().map_or(BOTTOM, |&(_, y)| self.y(y));
        let mut places: Vec<_> = self.lines.iter().map(end).enumerate().collect();
        places.sort_by(|a, b| b.1.total_cmp(&a.1));
        for i in 1..places.len() {
            places[i].1 = f64::min(places[i].1, places[i - 1].1 - TEXT);
        }
        places.sort_by_key(|&(line, _)| line);
        places.into_iter().map(|(_, y)| y).collect()
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + part(&self.across, f64::log2, value) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let part = if self.is_log {
            part(&self.up, f64::log2, value)
        } else {
            value / self.up.ticks.last().map_or(1.0, |(most, _)| *most)
        };
        BOTTOM - part * (BOTTOM - TOP)
    }
}

/// Which part of an axis lies before a value.
fn part(axis: &Axis, measure: impl Fn(f64) -> f64, value: f64) -> f64 {
    let [first, last] = [axis.ticks.first(), axis.ticks.last()];
    let [first, last] = [first, last].map(|tick| measure(tick.map_or(1.0, |(value, _)| *value)));
    (measure(value) - first) / (last - first)
}

#[cfg(test)]
mod tests {
    use super::{Axis, BOTTOM, Line, Lines, TEXT, TOP};

    fn lines(is_log: bool) -> Lines {
        let ticks = |values: &[f64]| values.iter().map(|v| (*v, v.to_string())).collect();
        let line = |label: &str, last, is_ours| Line {
            label: label.to_owned(),
            points: vec![(1.0, 1.0), (8.0, last)],
            is_ours,
        };
        Lines {
            title: "t".to_owned(),
            subtitle: "s".to_owned(),
            across: Axis { ticks: ticks(&[1.0, 8.0]) },
            up: Axis { ticks: ticks(&[1.0, 100.0]) },
            is_log,
            lines: vec![line("ours", 100.0, true), line("theirs", 99.0, false)],
        }
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let places = lines(true).label_places();
        assert!((places[0] - places[1]).abs() >= TEXT, "{places:?}");
        let svg = lines(true).svg();
        assert!(svg.contains(">ours</text>") && svg.contains(">theirs</text>"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2);
    }

    #[test]
    fn the_first_and_the_last_tick_are_the_ends() {
        assert_eq!((lines(true).y(1.0), lines(true).y(100.0)), (BOTTOM, TOP));
        assert_eq!((lines(false).y(0.0), lines(false).y(100.0)), (BOTTOM, TOP));
    }
}
