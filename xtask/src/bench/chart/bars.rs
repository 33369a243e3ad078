//! Bars that start at 1, on a logarithmic scale: how many times as much as the first.
//! Invariant: every value that is drawn has its label, and lies inside the drawing.

use super::{Anchor, Drawing, WIDTH};

const ROW: f64 = 18.0;
const HEAD: f64 = 30.0;
const TOP: f64 = 60.0;
/// Room below a panel, for its axis.
const FOOT: f64 = 34.0;
const COLUMNS: usize = 2;

/// Panels of rows, two beside each other, all on the same scale.
#[derive(Debug)]
pub(crate) struct Bars {
    /// What the chart says.
    pub(crate) title: &'static str,
    /// What the numbers are.
    pub(crate) subtitle: &'static str,
    /// The panels.
    pub(crate) panels: Vec<Panel>,
    /// Room for the labels of rows.
    pub(crate) label_width: f64,
}

/// Rows that are compared.
#[derive(Debug)]
pub(crate) struct Panel {
    /// What is compared.
    pub(crate) title: String,
    /// From the top.
    pub(crate) rows: Vec<Row>,
    /// The most that ours may be.
    pub(crate) budget: Option<f64>,
}

/// A label and its marks.
#[derive(Debug)]
pub(crate) struct Row {
    /// Who, or what.
    pub(crate) label: String,
    /// The values.
    pub(crate) marks: Vec<Mark>,
}

/// A value; where it is ours, it stands out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// How many times the first.
    pub(crate) value: f64,
    /// Whether it is dlbridge's.
    pub(crate) is_ours: bool,
}

impl Bars {
    /// The file.
    pub(crate) fn svg(&self) -> String {
        let heights: Vec<_> = self.panels.chunks(COLUMNS).map(height).collect();
        let mut drawing = Drawing::new(WIDTH, TOP + heights.iter().sum::<f64>(), self.title);
        drawing.text((16.0, 44.0), self.subtitle, "muted", Anchor::Start);
        let mut top = TOP;
        for (panels, height) in self.panels.chunks(COLUMNS).zip(heights) {
            let width = WIDTH / COLUMNS as f64;
            for (column, panel) in panels.iter().enumerate() {
                self.draw(&mut drawing, panel, (width * column as f64, top));
            }
            top += height;
        }
        drawing.svg()
    }

    fn draw(&self, drawing: &mut Drawing, panel: &Panel, (left, top): (f64, f64)) {
        let start = left + self.label_width;
        // room for the label of the largest value
        let scale = Scale::over(self.values(), start, left + WIDTH / COLUMNS as f64 - 48.0);
        drawing.text((left + 16.0, top + 18.0), &panel.title, "head", Anchor::Start);
        let bottom = top + HEAD + ROW * panel.rows.len() as f64;
        for tick in scale.ticks() {
            let (x, class) = (scale.x(tick), if tick == 1.0 { "axis" } else { "grid" });
            drawing.line((x, top + HEAD - 4.0), (x, bottom), class, 1.0);
            drawing.text((x, bottom + 14.0), &format!("{tick}"), "muted", Anchor::Middle);
        }
        if let Some(budget) = panel.budget {
            let x = scale.x(budget);
            drawing.line((x, top + HEAD - 4.0), (x, bottom), "limit", 1.5);
            let end = (left + WIDTH / COLUMNS as f64 - 24.0, top + 18.0);
            drawing.text(end, &format!("budget {budget}"), "limit-text", Anchor::End);
        }
        let has_others = panel.rows.iter().any(|row| row.marks.iter().all(|mark| !mark.is_ours));
        for (index, row) in panel.rows.iter().enumerate() {
            let y = top + HEAD + ROW * (index as f64 + 0.5);
            let is_ours = row.marks.len() == 1 && row.marks[0].is_ours;
            let class = if is_ours && has_others { "our-text" } else { "" };
            drawing.text((start - 8.0, y + 4.0), &row.label, class, Anchor::End);
            // ours on top
            row.marks.iter().rev().for_each(|mark| scale.draw(drawing, *mark, y));
            let most = row.marks.iter().copied().max_by(|a, b| a.value.total_cmp(&b.value));
            let values: Vec<_> = row.marks.iter().map(|mark| number(mark.value)).collect();
            let class = if is_ours { "our-text" } else { "muted" };
            let most = most.map_or(1.0, |mark| mark.value);
            let (at, anchor) = if most < 1.0 { (-9.0, Anchor::End) } else { (9.0, Anchor::Start) };
            drawing.text((scale.x(most) + at, y + 4.0), &values.join(" / "), class, anchor);
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let rows = self.panels.iter().flat_map(|panel| &panel.rows);
        rows.flat_map(|row| row.marks.iter().map(|mark| mark.value))
    }
}

fn height(panels: &[Panel]) -> f64 {
    let rows = panels.iter().map(|panel| panel.rows.len()).max().unwrap_or(0);
    HEAD + ROW * rows as f64 + FOOT
}

fn number(value: f64) -> String {
    if value < 9.95 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Where a value lies.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// Logarithms of the least and the greatest value.
    low: f64,
    high: f64,
    left: f64,
    right: f64,
}

impl Scale {
    /// A scale on which 1 and all values lie.
    fn over(values: impl Iterator<Item = f64>, left: f64, right: f64) -> Self {
        let (low, high) = values
            .map(f64::log2)
            .fold((0.0, 1.0), |(low, high), value| (f64::min(low, value), f64::max(high, value)));
        // room for the label of the least value
        let low = if low < 0.0 { low - 0.14 * (high - low) } else { low - 0.1 };
        Self { low, high, left, right }
    }

    fn x(&self, value: f64) -> f64 {
        let part = (value.log2() - self.low) / (self.high - self.low);
        self.left + part * (self.right - self.left)
    }

    /// Powers of two, of four where there are many.
    fn ticks(&self) -> Vec<f64> {
        let step = if self.high - self.low > 4.5 { 2 } else { 1 };
        let powers = (-10..=10).filter(|power| power % step == 0);
        let inside = powers.filter(|&power| (self.low..=self.high).contains(&f64::from(power)));
        inside.map(|power| 2.0_f64.powi(power)).collect()
    }

    fn draw(&self, drawing: &mut Drawing, mark: Mark, y: f64) {
        let (class, radius) = if mark.is_ours { ("ours", 5.0) } else { ("other", 4.0) };
        drawing.line((self.x(1.0), y), (self.x(mark.value), y), class, 5.0);
        drawing.dot((self.x(mark.value), y), radius, class);
    }
}

#[cfg(test)]
mod tests {
    use super::{Bars, Mark, Panel, Row, Scale};

    #[test]
    fn every_value_is_drawn_and_labelled() {
        let row = |label: &str, value, is_ours| Row {
            label: label.to_owned(),
            marks: vec![Mark { value, is_ours }],
        };
        let rows = vec![row("dlbridge", 0.63, true), row("slow", 31.4, false)];
        let panel = Panel { title: "a path".to_owned(), rows, budget: Some(1.1) };
        let bars = Bars { title: "t", subtitle: "s", panels: vec![panel], label_width: 100.0 };
        let svg = bars.svg();
        for text in [">0.63<", ">31<", ">dlbridge<", ">slow<", ">budget 1.1<", ">a path<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(
            (svg.matches("<circle").count(), svg.matches("our-text\" text").count()),
            (2, 2)
        );
    }

    #[test]
    fn one_and_all_values_lie_on_the_scale() {
        let scale = Scale::over([0.5, 4.0].into_iter(), 100.0, 200.0);
        assert_eq!(scale.x(4.0), 200.0);
        assert!(scale.x(0.5) > 100.0 && scale.x(0.5) < scale.x(1.0));
        assert_eq!(scale.ticks(), [0.5, 1.0, 2.0, 4.0]);
    }
}
