//! The rules for one file, given its name and text. This file is checked as well, so forbidden words
//! are composed of pieces.

/// The most lines that a source file may have.
const LONGEST: usize = 400;
/// The suffixes of source files.
const SOURCES: &[&str] = &[".rs", ".py", ".pyi", ".jl", ".h", ".c", ".cpp", ".sh"];
/// The safe library, and the folder and the files in it where unsafe code may be.
const LIBRARY: &str = "crates/dlbridge/src/";
const RAW: &str = "crates/dlbridge/src/raw";
const RAW_FILE: &str = "/raw.rs";
/// Fake producers for tests, which are unsafe by nature.
const TESTING: &str = "crates/dlbridge/src/testing/";
/// Unsafe code, as opposed to unsafe traits, which only promise.
const UNSAFE: &[&str] = &["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];
/// Top-level folders of one machine, without the slashes around them.
const MACHINE_FOLDERS: &[&str] = &["root", "home", "work", "Users"];
/// Hosts of package indexes, in pieces.
const PACKAGE_HOSTS: &[&[&str]] = &[
    &["pypi.", "org"],
    &["pythonhosted.", "org"],
    &["crates.", "io"],
    &["npmjs.", "org"],
    &["debian.", "org"],
    &["ubuntu.", "com"],
    &["rust-lang.", "org/dist"],
    &["download.pytorch.", "org"],
    &["proxy.golang.", "org"],
];

/// Every violation in a file, as `name:line: what`.
pub(crate) fn check(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if SOURCES.iter().any(|extension| name.ends_with(extension)) && lines > LONGEST {
        findings.push(format!("{name}: {lines} lines, at most {LONGEST} are allowed"));
    }
    for (index, line) in text.lines().enumerate() {
        let found = [unsafe_code(name, line), ignored_example(line), machine(line), host(line)];
        let found = found.into_iter().flatten();
        findings.extend(found.map(|what| format!("{name}:{}: {what}", index + 1)));
    }
    findings
}

fn unsafe_code(name: &str, line: &str) -> Option<String> {
    let allowed =
        [RAW, TESTING].iter().any(|folder| name.starts_with(folder)) || name.ends_with(RAW_FILE);
    let checked = name.starts_with(LIBRARY) && !allowed;
    let is_comment = line.trim_start().starts_with("//");
    let is_unsafe = UNSAFE.iter().any(|code| line.contains(code));
    (checked && !is_comment && is_unsafe).then(|| format!("unsafe code outside {RAW}"))
}

fn ignored_example(line: &str) -> Option<String> {
    let (_, language) = line.split_once("```")?;
    let ignored = language.split([',', ' ']).any(|word| word.starts_with("ignore"));
    ignored.then(|| "an example that is never compiled".to_owned())
}

fn machine(line: &str) -> Option<String> {
    let folder = MACHINE_FOLDERS.iter().find(|folder| {
        let path = format!("/{folder}/");
        line.match_indices(&path).any(|(at, _)| starts_a_path(&line[..at]))
    })?;
    Some(format!("a path of one machine, in /{folder}"))
}

/// Whether a slash after this text is the root, and not a part of a longer path.
fn starts_a_path(before: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-~*}/".contains(c);
    !before.ends_with(inside) || before.ends_with("://")
}

fn host(line: &str) -> Option<String> {
    let host = PACKAGE_HOSTS.iter().map(|pieces| pieces.concat()).find(|h| line.contains(h))?;
    Some(format!("a package host, {host}"))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, PACKAGE_HOSTS, check};

    fn number(name: &str, text: &str) -> usize {
        check(name, text).len()
    }

    #[test]
    fn sources_are_short() {
        let long = "x\n".repeat(LONGEST + 1);
        assert_eq!(
            (number("a.rs", &long), number("a.md", &long), number("a.rs", &long[2..])),
            (1, 0, 0)
        );
    }

    #[test]
    fn unsafe_code_stays_in_raw() {
        for code in ["let x = unsafe { f() };", "unsafe impl Send for X {}", "pub unsafe fn f()"] {
            assert_eq!(number("crates/dlbridge/src/view.rs", code), 1, "{code}");
            assert_eq!(number("crates/dlbridge/src/raw/parse.rs", code), 0, "{code}");
            assert_eq!(number("crates/dlbridge/src/sealed/raw.rs", code), 0, "{code}");
            assert_eq!(number("crates/dlbridge-sys/src/types.rs", code), 0, "{code}");
        }
        for fine in ["/// unsafe { }", "pub unsafe trait Element", "#![forbid(unsafe_code)]"] {
            assert_eq!(number("crates/dlbridge/src/view.rs", fine), 0, "{fine}");
        }
    }

    #[test]
    fn examples_that_are_not_compiled_paths_of_one_machine_and_package_hosts_are_found() {
        let fence = "`".repeat(3);
        for language in ["ignore", "rust,ignore", "rust, ignore", "ignore-wasm"] {
            assert_eq!(number("a.md", &format!("//! {fence}{language}")), 1, "{language}");
        }
        for found in [["/ho", "me/x"], ["see `/wo", "rk/x`"], ["file:///ro", "ot/x"]] {
            assert_eq!(number("a.md", &found.concat()), 1, "{found:?}");
        }
        for pieces in PACKAGE_HOSTS {
            assert_eq!(number("a.toml", &format!("url = {}", pieces.concat())), 1, "{pieces:?}");
        }
        let [no_run, text] = ["no_run", "text"].map(|language| format!("{fence}{language}"));
        let paths = [["a.example/ho", "me/x"], ["../wo", "rk/x"], ["/us", "r/lib"]];
        let paths = paths.map(|pieces| pieces.concat());
        let fine = [no_run, text, "url = \"https://docs.rs/dlbridge\"".to_owned()];
        for fine in fine.iter().chain(&paths) {
            assert_eq!(number("a.md", fine), 0, "{fine}");
        }
    }
}
