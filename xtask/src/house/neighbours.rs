//! Neighbours: crates that use only public items of the core and of the Python crate, as the crate of any user does. An item
//! that documentation hides may change in any release.

use std::collections::BTreeSet;

use super::rooms::{first, names};

/// The folder of neighbours.
const NEIGHBOURS: &str = "extras/";
/// The crates whose hidden items they do without, and their sources.
const CRATES: [(&str, &str); 2] =
    [("dlbridge", "crates/dlbridge/src/"), ("dlbridge_pyo3", "crates/dlbridge-pyo3/src/")];

/// The hidden items that neighbours name: in a path from the crate's name on, or as a method.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (krate, folder) in CRATES {
        let sources = files.iter().filter(|(name, _)| name.starts_with(folder));
        let (mut hidden, mut methods) = (BTreeSet::new(), BTreeSet::new());
        for (_, text) in sources {
            hidden.extend(items(text));
            methods.extend(hidden_methods(text));
        }
        for (name, text) in files.iter().filter(|(name, _)| is_of_neighbour(name)) {
            let named = in_paths(text, &format!("{krate}::"));
            let called = methods.iter().filter(|method| text.contains(&format!(".{method}(")));
            let found = named.intersection(&hidden).chain(called.filter(|_| krate == "dlbridge"));
            let told = |item: &String| format!("{name}: {krate} hides {item} from documentation");
            findings.extend(found.map(told));
        }
    }
    findings
}

fn is_of_neighbour(name: &str) -> bool {
    name.ends_with(".rs") && name.starts_with(NEIGHBOURS)
}

/// The text behind each `#[doc(hidden)]` of an indentation, without further attributes.
fn behind<'t>(text: &'t str, indent: &str) -> impl Iterator<Item = &'t str> {
    let mark = format!("\n{indent}#[doc(hidden)]\n");
    let parts: Vec<_> = text.split(&mark).skip(1).collect();
    parts.into_iter().map(|mut part| {
        while let Some((line, rest)) = part.split_once('\n') {
            if !line.trim_start().starts_with(['#', '/']) {
                break;
            }
            part = rest;
        }
        part.trim_start()
    })
}

/// The names of hidden items outside of blocks.
fn items(text: &str) -> Vec<String> {
    let name = |item: &str| {
        if let Some(path) = item.strip_prefix("pub use ") {
            return names(path);
        }
        let mut words = item.split_whitespace();
        let name = words.find(|word| !["pub", "unsafe", "const", "fn", "mod"].contains(word));
        let name = match name {
            Some("struct" | "enum" | "trait" | "type" | "static") => words.next(),
            // No item with a name.
            Some("impl") => None,
            name => name,
        };
        name.map(first).into_iter().collect()
    };
    behind(text, "").flat_map(name).collect()
}

/// The names of hidden functions of a value.
fn hidden_methods(text: &str) -> Vec<String> {
    let name = |item: &str| {
        let (name, arguments) = item.split_once("fn ")?.1.split_once('(')?;
        let of_value = ["self", "&self", "&mut self"];
        of_value.iter().any(|one| arguments.starts_with(one)).then(|| first(name))
    };
    behind(text, "    ").filter_map(name).collect()
}

/// The words of each path that begins with `krate`, also of those in braces.
fn in_paths(text: &str, krate: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut words = BTreeSet::new();
    for path in code.split(krate).skip(1) {
        let mut depth = 0;
        let end = path.find(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            let is_path = c.is_alphanumeric() || "_:{}*".contains(c);
            depth < 0 || !is_path && (depth == 0 || !(c == ',' || c.is_whitespace()))
        });
        let path = &path[..end.unwrap_or(path.len())];
        words.extend(path.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_hidden_item_in_a_neighbour_is_found() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let files = [
            file(
                "crates/dlbridge/src/lib.rs",
                "mod a;\n#[doc(hidden)]\npub mod layout;\n#[doc(hidden)]\n#[cfg(unix)]\npub use a::{\n    b::Dims as Sizes, c,\n};\n\
                 pub use d::Tensor;\n#[doc(hidden)]\nimpl Index for Tensor {}\n",
            ),
            file(
                "crates/dlbridge/src/dtype.rs",
                "impl DType {\n    #[doc(hidden)]\n    #[inline]\n    pub const fn word(self) -> u32 {}\n    #[doc(hidden)]\n    pub fn new(x: u8) {}\n}\n",
            ),
            file(
                "crates/dlbridge-pyo3/src/error.rs",
                "\n#[doc(hidden)]\npub fn error_of<E>(text: E) -> E {\n",
            ),
            file(
                "extras/sealed/src/one.rs",
                "// dlbridge::layout\nuse dlbridge::{Tensor, a::{Sizes, c}};\nfn f(x: dlbridge::Tensor, layout: u8) { x.dtype().word() }",
            ),
            file(
                "extras/sealed/tests/two.rs",
                "use dlbridge::Tensor;\nlet x = (dlbridge::layout::f(), Tensor::new(layout), dlbridge_pyo3::error_of::<E>(1));",
            ),
            file("crates/dlbridge-capi/src/three.rs", "use dlbridge::layout;"),
        ];
        assert_eq!(
            check(&files),
            [
                "extras/sealed/src/one.rs: dlbridge hides Sizes from documentation",
                "extras/sealed/src/one.rs: dlbridge hides c from documentation",
                "extras/sealed/src/one.rs: dlbridge hides word from documentation",
                "extras/sealed/tests/two.rs: dlbridge hides layout from documentation",
                "extras/sealed/tests/two.rs: dlbridge_pyo3 hides error_of from documentation",
            ]
        );
    }
}
