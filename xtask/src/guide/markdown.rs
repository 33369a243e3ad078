//! What a page in Markdown holds: its blocks of code, its links.
//! What is right or wrong about them belongs to `blocks` and `links`.
//! Invariant: what stands in code is no link, and every line is counted from 1.

/// What begins and ends a block.
const FENCE: &str = "```";

/// A block of code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The line of its opening fence.
    pub(crate) line: usize,
    /// The first word after the fence: what it is written in.
    pub(crate) kind: &'a str,
    /// What the comment in the line above names, such as the file that it is an excerpt of.
    pub(crate) note: Option<&'a str>,
    /// Its lines.
    pub(crate) code: Vec<&'a str>,
}

/// Where a link leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// Its line.
    pub(crate) line: usize,
    /// What stands in its parentheses.
    pub(crate) target: &'a str,
}

/// All blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    let mut above = "";
    for (index, line) in page.lines().enumerate() {
        match (fence(line), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(kind), None) => {
                open =
                    Some(Block { line: index + 1, kind, note: comment(above), code: Vec::new() });
            }
            (None, Some(block)) => block.code.push(line),
            (None, None) => {}
        }
        above = line;
    }
    // A fence that nobody closes goes on to the end.
    blocks.extend(open);
    blocks
}

/// All links and pictures of a page.
pub(crate) fn links(page: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    let mut in_block = false;
    for (index, line) in page.lines().enumerate() {
        if fence(line).is_some() {
            in_block = !in_block;
        } else if !in_block {
            links.extend(targets(line).map(|target| Link { line: index + 1, target }));
        }
    }
    links
}

/// What a page looks like to a reader: kinds without what only tools read, and without the lines
/// that rustdoc hides.
pub(crate) fn shown(page: &str) -> String {
    let mut text = String::new();
    let mut block = None;
    for line in page.lines() {
        match (fence(line), block) {
            (Some(_), Some(_)) => block = None,
            (Some(kind), None) => {
                block = Some(kind);
                text += &line[..line.len() - line.trim_start().len()];
                text += FENCE;
                text += kind;
                text += "\n";
                continue;
            }
            (None, Some("rust")) if line == "#" || line.starts_with("# ") => continue,
            _ => {}
        }
        text += line;
        text += "\n";
    }
    text
}

/// The kind of block that a line opens; empty if it closes one.
fn fence(line: &str) -> Option<&str> {
    let words = line.trim_start().strip_prefix(FENCE)?;
    Some(words.split([',', ' ']).next().unwrap_or_default())
}

fn comment(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim())
}

/// The targets of one line, without what stands between backticks.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    // Every other piece is code.
    let text_pieces = line.split('`').enumerate().filter(|(index, _)| index % 2 == 0);
    text_pieces.flat_map(|(_, text)| {
        let links = text.split("](").skip(1);
        links.filter_map(|rest| Some(rest.split_once(')')?.0))
    })
}

#[cfg(test)]
mod tests {
    use super::{Block, Link, blocks, links, shown};

    const PAGE: &str = "\
See [one](a.md) and [`two`](b.md#part), not `[three](c.md)`.

<!-- src/lib.rs -->
```rust,no_run
# use x;
#[test]
[four](d.md)
```

```
plain
";

    #[test]
    fn blocks_know_their_kind_line_and_note() {
        let rust = Block {
            line: 4,
            kind: "rust",
            note: Some("src/lib.rs"),
            code: vec!["# use x;", "#[test]", "[four](d.md)"],
        };
        let plain = Block { line: 10, kind: "", note: None, code: vec!["plain"] };
        assert_eq!(blocks(PAGE), [rust, plain]);
    }

    #[test]
    fn code_holds_no_links() {
        let targets = ["a.md", "b.md#part"].map(|target| Link { line: 1, target });
        assert_eq!(links(PAGE), targets);
    }

    #[test]
    fn readers_see_no_hidden_lines() {
        let shown = shown(PAGE);
        assert!(shown.contains("```rust\n#[test]\n"), "{shown}");
        assert!(shown.starts_with("See [one](a.md)"), "{shown}");
    }
}
