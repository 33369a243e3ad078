//! `cargo xtask api`: the public items of the libraries as one text, so that a review sees each change of them.
//! It reads the sources as rustfmt lays them out, with macros without arguments expanded.

use anyhow::{Result, ensure};

use crate::shell::{files, root};
use crate::workspace;

/// Where the text stands.
const LIST: &str = "docs/api.txt";
/// Its API is C's.
const C_LIBRARY: &str = "dlbridge-capi";
/// Starts of lines that only say how an item is public.
const BEFORE: [&str; 2] = ["#[doc(hidden)]", "#[cfg(test)]"];

/// Writes the list.
pub(crate) fn write() -> Result<()> {
    Ok(std::fs::write(root().join(LIST), list()?)?)
}

/// Fails if the list is not that of the sources.
pub(crate) fn check() -> Result<()> {
    let kept = std::fs::read_to_string(root().join(LIST)).unwrap_or_default();
    ensure!(
        kept == list()?,
        "{LIST} is not up to date: run `cargo xtask api`, and look at what changed"
    );
    Ok(())
}

fn list() -> Result<String> {
    // The C library's is `crates/dlbridge-capi/abi.txt`.
    let mut libraries = workspace::libraries()?;
    libraries.retain(|library| library.name() != C_LIBRARY);
    let mut texts = Vec::new();
    for name in files()?.iter().filter(|name| name.ends_with(".rs")) {
        let is_of =
            |library: &&workspace::Member| name.starts_with(&format!("{}/src/", library.folder()));
        if let Some(library) = libraries.iter().find(is_of) {
            texts.push((library.name(), std::fs::read_to_string(root().join(name))?));
        }
    }
    let macros: Vec<_> = texts.iter().flat_map(|(_, text)| macros(text)).collect();
    let mut items = Vec::new();
    for (library, text) in &texts {
        let expanded = macros.iter().fold(text.clone(), |text, (call, body)| {
            text.replace(&format!("\n    {call}\n"), &format!("\n{body}\n"))
        });
        items.extend(public(&expanded).iter().map(|item| format!("{library}: {item}\n")));
    }
    let types = items.iter().filter_map(|item| item.split(": ").nth(1)).filter_map(type_name);
    let types: Vec<_> = types.map(str::to_owned).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names_one =
        |item: &str| item.split(|c| !is_word(c)).any(|word| types.iter().any(|one| one == word));
    // The implementation of a trait for a type that is not public.
    items.retain(|item| !item.contains(": impl") || item.contains(" :: ") || names_one(item));
    items.sort();
    items.dedup();
    Ok(items.concat())
}

/// The name of a public type or trait.
fn type_name(item: &str) -> Option<&str> {
    let starts = ["pub struct ", "pub enum ", "pub trait ", "pub unsafe trait ", "pub type "];
    let rest = starts.iter().find_map(|start| item.strip_prefix(start))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The macros of a source that take no arguments: a call of each, and its body with the depth of the call.
fn macros(text: &str) -> Vec<(String, String)> {
    let parts = text.split("macro_rules! ").skip(1);
    let one = parts.filter_map(|part| {
        let (name, rest) = part.split_once(" {\n    () => {\n")?;
        let (body, _) = rest.split_once("\n    };\n")?;
        Some((format!("{name}!();"), body.replace("\n    ", "\n").split_off(4)))
    });
    one.collect()
}

/// The public items of a source, each on one line.
fn public(text: &str) -> Vec<String> {
    let (mut items, mut block, mut is_hidden) = (Vec::new(), String::new(), false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (depth, code) = (line.len() - line.trim_start().len(), line.trim_start());
        let starts = |words: &[&str]| words.iter().any(|word| code.starts_with(word));
        if starts(&BEFORE) {
            is_hidden = true;
            continue;
        }
        if code.is_empty() || starts(&["//", "#["]) || depth > 4 {
            continue;
        }
        let is_item = match (depth, block.split_once(' ').map_or("", |(_, rest)| rest)) {
            (0, _) => starts(&["pub ", "impl", "unsafe impl"]),
            (_, of) if of.starts_with("trait") || of.starts_with("unsafe trait") => {
                starts(&["fn ", "unsafe fn ", "const ", "type "])
            }
            (_, of) if of.starts_with("enum") => code.starts_with(char::is_uppercase),
            _ => !block.is_empty() && starts(&["pub "]),
        };
        if depth == 0 && code.starts_with('}') {
            block.clear();
        }
        if !is_item {
            is_hidden &= depth == 0 && !code.starts_with('}');
            continue;
        }
        let mut item = code.to_owned();
        let is_open = |item: &str| item.matches('(').count() > item.matches(')').count();
        while !item.ends_with(['{', ';', ',', '}']) || is_open(&item) {
            let Some(more) = lines.next() else { break };
            item = format!("{item} {}", more.trim());
        }
        let shown = item.split(" { ").next().unwrap_or(&item);
        let shown = shown.trim_end_matches(['{', ';', ',', ' ']).to_owned();
        if depth == 0 && item.ends_with('{') {
            block = if is_hidden { String::new() } else { shown.clone() };
        }
        let is_own_impl =
            depth == 0 && starts(&["impl", "unsafe impl"]) && !shown.contains(" for ");
        if !is_hidden && !is_own_impl {
            let place = if depth > 0 { format!("{block} :: ") } else { String::new() };
            items.push(format!("{place}{shown}"));
        }
        is_hidden = false;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::{macros, public};

    #[test]
    fn a_macro_without_arguments_is_listed_where_it_is_called() {
        let text = "\
macro_rules! count {
    () => {
        /// Doc.
        pub fn len(&self) -> usize {
            0
        }
    };
}
";
        let (call, body) = macros(text).remove(0);
        assert_eq!(call, "count!();");
        let expanded = format!("pub struct A;\n\nimpl A {{\n{body}\n}}\n");
        assert_eq!(public(&expanded), ["pub struct A", "impl A :: pub fn len(&self) -> usize"]);
    }

    #[test]
    fn public_items_are_listed_with_their_block() {
        let text = "
pub struct A<T> {
    pub(crate) x: T,
    pub y: i32,
}
impl<T> A<T> {
    /// Doc.
    pub fn long(
        &self,
    ) -> bool {
        true
    }
    fn private() {}
    #[doc(hidden)]
    pub fn hidden(&self) {}
}
pub enum E {
    Two(i32),
}
pub trait T {
    fn f(&self);
}
impl T for A<i32> {
    fn f(&self) {}
}
#[cfg(test)]
mod tests {
    pub fn not() {}
}
";
        let items = "pub struct A<T>
pub struct A<T> :: pub y: i32
impl<T> A<T> :: pub fn long( &self, ) -> bool
pub enum E
pub enum E :: Two(i32)
pub trait T
pub trait T :: fn f(&self)
impl T for A<i32>";
        assert_eq!(public(text).join("\n"), items);
    }
}
