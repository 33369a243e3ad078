//! Charts for the page of benchmarks, as SVG: bars and lines, no scripts.
//! What they show does not belong here.
//! Invariant: text and marks are readable on a light and on a dark page, and what is ours stands out.

mod bars;
mod lines;

use std::fmt::Write;

use crate::failure::Result;
use crate::project;

pub(crate) use bars::{Bars, Mark, Panel, Row};
pub(crate) use lines::{Axis, Line, Lines};

/// As wide as a page of text.
const WIDTH: f64 = 900.0;
/// Where the charts lie, beside the page.
const FOLDER: &str = "docs/benchmarks";
/// The colours of a light page, and those of a dark one; a browser chooses.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}\
.head{font-weight:600}.muted{fill:#59636e}.our-text{fill:#0969da;font-weight:600}\
.limit-text{fill:#bc4c00}.page{fill:#fff}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}\
.other{stroke:#8c959f;fill:#8c959f}.ours{stroke:#0969da;fill:#0969da}\
.limit{stroke:#bc4c00;stroke-dasharray:4 3}polyline{fill:none!important;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.muted{fill:#9198a1}.our-text{fill:#4493f8}\
.limit-text{fill:#db6d28}.page{fill:#0d1117}.grid{stroke:#30363d}.axis{stroke:#9198a1}\
.other{stroke:#768390;fill:#768390}.ours{stroke:#4493f8;fill:#4493f8}.limit{stroke:#db6d28}}";

/// A drawing: marks that are put on one after the other.
#[derive(Debug)]
struct Drawing {
    width: f64,
    height: f64,
    marks: String,
}

/// On which side of its place a text stands.
#[derive(Debug, Clone, Copy)]
enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

impl Drawing {
    /// An empty drawing with a title.
    fn new(width: f64, height: f64, title: &str) -> Self {
        let mut drawing = Self { width, height, marks: String::new() };
        drawing.text((16.0, 26.0), title, "title", Anchor::Start);
        drawing
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.mark(format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\" \
             stroke-width=\"{width}\"/>"
        ));
    }

    fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        self.mark(format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>"
        ));
    }

    fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.mark(format!("<polyline points=\"{}\" class=\"{class}\"/>", points.join(" ")));
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, class: &str, anchor: Anchor) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.mark(format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        ));
    }

    fn mark(&mut self, mark: String) {
        self.marks += &mark;
        self.marks.push('\n');
    }

    /// The whole file.
    fn svg(&self) -> String {
        let Self { width, height, marks } = self;
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\"/>\n\
             {marks}</svg>\n"
        );
        svg
    }
}

/// Writes a chart; the page names it by the same name.
pub(crate) fn save(name: &str, svg: &str) -> Result {
    let file = format!("{FOLDER}/{name}.svg");
    project::write(&project::path(&file), svg)?;
    println!("wrote {file}");
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Anchor, Drawing, STYLE};

    #[test]
    fn a_drawing_is_one_element_with_its_text_quoted() {
        let mut drawing = Drawing::new(100.0, 50.0, "a < b & c");
        drawing.text((1.0, 2.0), "->", "muted", Anchor::End);
        let svg = drawing.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains(">a &lt; b &amp; c</text>") && svg.contains(">-&gt;</text>"), "{svg}");
    }

    #[test]
    fn a_dark_page_changes_every_colour() {
        let (light, dark) = STYLE.split_once("@media").unwrap();
        for rule in light.split('}').filter(|rule| rule.contains('#')) {
            let (selector, _) = rule.split_once('{').unwrap();
            assert!(dark.contains(&format!("{selector}{{")), "{selector}");
        }
    }
}
