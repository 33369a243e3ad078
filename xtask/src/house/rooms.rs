//! The order of rooms: a file or folder directly in a crate's `src/` uses only those before it, so that it can be read
//! without those behind it. `ARCHITECTURE.md` has the same list. A name that the root re-exports counts as its room; those of
//! a re-export by `*`, and what an exported macro writes in a user's crate, are not followed.

use std::collections::{BTreeMap, BTreeSet};

/// The page, and the heading of its table.
const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "\n## Order of rooms\n";
/// The rooms of each crate, the lowest first.
const ROOMS: [(&str, &str); 7] = [
    ("crates/dlbridge", "access device dtype error names layout memory tensor protocol adapters"),
    (
        "crates/dlbridge-pyo3",
        "error interpreter release dtypes ffi stream object types export import class arguments framework",
    ),
    (
        "extras/sealed",
        "wait safetensors_0_8 elsewhere fork check memfd header socket serve sealed handle filling channel",
    ),
    (
        "extras/operators",
        "few failure kind signature device argument declaration definition operator call raw python",
    ),
    (
        "crates/dlbridge-capi",
        "codes error entry info python handle sized import queue export allocate expect sealed",
    ),
    ("python", "arguments create timer inspect sealed message channel safetensors testing"),
    (
        "xtask",
        "shell workspace tally steps python arguments calls capi cross julia guide outdated new package house doctor fuzz bench sanitize lint test",
    ),
];

/// What breaks the order, and what the page says otherwise.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let (mut findings, mut against) = (Vec::new(), BTreeSet::new());
    let page = files.iter().find(|(name, _)| name == PAGE).map_or("", |(_, text)| text);
    let table = page.split(HEADING).nth(1).unwrap_or_default();
    for (place, rooms) in ROOMS {
        let (order, folder): (Vec<_>, _) =
            (rooms.split_whitespace().collect(), format!("{place}/src/"));
        let row = order.iter().map(|room| format!("`{room}`")).collect::<Vec<_>>().join(", ");
        if !table.contains(&format!("| `{place}` | {row} |")) {
            findings.push(format!("{PAGE}: expected a row of the rooms of `{place}`: {row}"));
        }
        let root = files.iter().find(|(name, _)| *name == format!("{folder}lib.rs"));
        let exported = root.map(|(_, text)| exported(text)).unwrap_or_default();
        for (name, text) in files {
            let Some(room) = name.strip_prefix(&folder).and_then(room) else { continue };
            let Some(own) = order.iter().position(|one| *one == room) else {
                findings.push(format!("{name}: `house/rooms.rs` does not list the room {room}"));
                continue;
            };
            let used = used(text).into_iter().filter_map(|used| {
                let used = exported.get(&used).unwrap_or(&used);
                order.iter().position(|one| one == used).filter(|at| *at > own)
            });
            against.extend(used.map(|at| format!("{place}: {room} uses {}", order[at])));
        }
    }
    let behind = |found: &String| format!("{found}, which stands behind it in `house/rooms.rs`");
    findings.extend(against.iter().map(behind));
    findings
}

/// The room of a path in `src/`; none for the root of a crate.
fn room(path: &str) -> Option<&str> {
    let first = path.split('/').next().unwrap_or_default();
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (path.ends_with(".rs") && !["lib", "main"].contains(&room)).then_some(room)
}

/// The names that the root of a crate re-exports, each with its room.
fn exported(root: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in root.split("\npub use ").skip(1) {
        found.extend(names(path).into_iter().map(|name| (name, first(path))));
    }
    found
}

/// The names that a path with a list in braces brings, up to its `;`.
pub(super) fn names(path: &str) -> Vec<String> {
    let path = path.split(';').next().unwrap_or_default();
    let list = path.split_once('{').map_or(path, |(_, list)| list.trim_end_matches('}'));
    let name = |name: &str| name.trim().rsplit([':', ' ']).next().unwrap_or_default().to_owned();
    list.split(',').map(name).filter(|name| !name.is_empty()).collect()
}

/// The first segments of the paths in the crate that a source names, outside of comments and its tests.
fn used(text: &str) -> BTreeSet<String> {
    let code = text.split("\nmod tests {").next().unwrap_or_default().replace("$crate::", "");
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect::<String>();
    let mut used = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        let Some(group) = path.strip_prefix('{') else {
            used.insert(first(path));
            continue;
        };
        let (mut depth, mut start) = (1, true);
        for (at, c) in group.char_indices() {
            if start && depth == 1 && c != '}' {
                used.insert(first(&group[at..]));
            }
            depth += i32::from(c == '{') - i32::from(c == '}');
            start = c == ',';
            if depth == 0 {
                break;
            }
        }
    }
    used
}

pub(super) fn first(path: &str) -> String {
    path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::{check, room, used};

    #[test]
    fn the_first_segments_are_found() {
        let text = "use crate::memory::{a, b};\nuse crate::{\n    layout::{x, y}, Error,\n};\n// crate::no\n\
            fn f() { crate::tensor::g(); $crate::not() }\n#[cfg(test)]\nmod tests {\n use crate::not; }";
        let names: Vec<_> = used(text).into_iter().collect();
        assert_eq!(names, ["Error", "layout", "memory", "tensor"]);
        assert_eq!(room("memory/handle/mod.rs"), Some("memory"));
        assert_eq!((room("lib.rs"), room("raw.rs"), room("notes.txt")), (None, Some("raw"), None));
    }

    #[test]
    fn a_use_against_the_order_is_found() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let files = [
            file("crates/dlbridge/src/memory/one.rs", "use crate::{layout::Layout, tensor::View};"),
            file("crates/dlbridge/src/tensor/two.rs", "use crate::memory::Handle;"),
            file("crates/dlbridge/src/attic.rs", ""),
            file(
                "crates/dlbridge/src/lib.rs",
                "mod x;\npub use tensor::{\n    View as Seen, b::Tensor,\n};\npub use error::E;\n",
            ),
            file("crates/dlbridge/src/layout/three.rs", "use crate::Seen;"),
            file("crates/dlbridge/src/access.rs", "use crate::{E, Tensor};"),
        ];
        let found = check(&files);
        let mine: Vec<_> = found.iter().filter(|it| it.starts_with("crates/dlbridge")).collect();
        assert_eq!(
            mine,
            [
                "crates/dlbridge/src/attic.rs: `house/rooms.rs` does not list the room attic",
                "crates/dlbridge: access uses error, which stands behind it in `house/rooms.rs`",
                "crates/dlbridge: access uses tensor, which stands behind it in `house/rooms.rs`",
                "crates/dlbridge: layout uses tensor, which stands behind it in `house/rooms.rs`",
                "crates/dlbridge: memory uses tensor, which stands behind it in `house/rooms.rs`",
            ]
        );
    }
}
