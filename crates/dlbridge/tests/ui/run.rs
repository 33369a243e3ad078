//! Programs that must not compile: each file of a package's folder, or each module of it, is one misuse. A comment
//! `//~ E0505` ends each line that the compiler refuses, with the codes of its errors; `error` is one without a code.
//! `messages.txt` has the messages that this project writes, each with its labels and notes below it. `cure: TEXT` behind the
//! codes is what the error says to write instead. Where a file has cures, its first line counts its programs and its cures.
//! `dlbridge-ui` and `dlbridge-pyo3-ui` run it, each over its own folder. Misuse that only shows at run time is in
//! `it/aliasing.rs`, `it/access.rs` and `borrows_misuse.rs`.
//!
//! Errors change from version to version, so this runs with the pinned compiler only.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// The compiler whose errors the files name.
const PINNED: &str = "rustc 1.95.";
const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// What a program prints, one JSON value a line.
fn json_lines(text: &[u8]) -> Vec<Value> {
    let lines = text.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{"));
    lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
}

/// What the package depends on, as this test was built with it: arguments for `rustc` that find it.
fn dependencies() -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--quiet", "--tests", "--message-format=json"]);
    let output = cargo.current_dir(FOLDER).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = env::current_exe().expect("a program");
    let mut arguments = vec![format!("-Ldependency={}", program.parent().expect("deps").display())];
    for artifact in json_lines(&output.stdout) {
        let (name, file) = (artifact["target"]["name"].as_str(), artifact["filenames"][0].as_str());
        if let (Some(name), Some(file)) = (name, file.filter(|file| file.ends_with(".rlib"))) {
            arguments.push(format!("--extern={}={file}", name.replace('-', "_")));
        }
    }
    arguments
}

/// The errors of a program.
fn errors(file: &Path, dependencies: &[String]) -> Vec<Value> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--emit=metadata", "--error-format=json", "--out-dir"]);
    rustc.arg(env!("CARGO_TARGET_TMPDIR")).args(dependencies).arg(file);
    let mut found = json_lines(&rustc.output().expect("rustc").stderr);
    found.retain(|it| it["level"] == "error" && !it["spans"].as_array().expect("spans").is_empty());
    found
}

fn code(error: &Value) -> &str {
    error["code"]["code"].as_str().unwrap_or("error")
}

/// The line of the program to which an error points, or in which it calls the macro that is refused.
fn line(error: &Value, file: &Path) -> u64 {
    let spans = error["spans"].as_array().expect("spans");
    let mut span = spans.iter().find(|span| span["is_primary"] == true).expect("a place");
    while Path::new(span["file_name"].as_str().expect("a file")) != file {
        span = &span["expansion"]["span"];
    }
    span["line_start"].as_u64().expect("a line")
}

/// Whether an error has the words of a block of `messages.txt`.
fn says(error: &Value, block: &str) -> bool {
    let mut words = block.lines().map(str::trim);
    let beside = error["children"].as_array().expect("a list");
    let has = |text: &str| beside.iter().any(|it| it["message"] == text);
    words.next().is_some_and(|first| error["message"] == first) && words.all(has)
}

/// Whether an error has `text` in its message, in a note, in a label or in a replacement.
fn tells(error: &Value, text: &str) -> bool {
    let has = |value: &Value| value.as_str().is_some_and(|it| it.contains(text));
    let in_spans = |error: &Value| {
        let mut spans = error["spans"].as_array().into_iter().flatten();
        spans.any(|span| has(&span["label"]) || has(&span["suggested_replacement"]))
    };
    let beside = error["children"].as_array().expect("a list");
    has(&error["message"])
        || in_spans(error)
        || beside.iter().any(|it| has(&it["message"]) || in_spans(it))
}

#[test]
fn misuse_does_not_compile() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("a compiler");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with(PINNED) {
        println!("skipped: the errors are those of {PINNED}x, this is {}", version.trim());
        return;
    }
    let (dependencies, mut all, mut wrong) = (dependencies(), Vec::new(), Vec::new());
    for file in fs::read_dir(FOLDER).expect("a folder") {
        let file = file.expect("a file").path();
        if file.extension().is_none_or(|it| it != "rs") || file.ends_with("run.rs") {
            continue;
        }
        let mut found = BTreeMap::<u64, Vec<Value>>::new();
        for error in errors(&file, &dependencies) {
            found.entry(line(&error, &file)).or_default().push(error);
        }
        let source = fs::read_to_string(&file).expect("a program");
        let (mut programs, mut cures) = (0, 0);
        for (number, text) in (1..).zip(source.lines()) {
            let found = found.remove(&number).unwrap_or_default();
            let expected = text.split_once("//~").map(|it| it.1);
            let (expected, cure) = expected
                .map(|it| it.split_once(" cure: ").map_or((it, None), |it| (it.0, Some(it.1))))
                .unwrap_or_default();
            programs += usize::from(!expected.is_empty());
            cures += usize::from(cure.is_some());
            if cure.is_some_and(|cure| !found.iter().any(|error| tells(error, cure))) {
                wrong
                    .push(format!("{}:{number}: expected {cure:?} in the message", file.display()));
            }
            let mut expected: Vec<_> = expected.split_whitespace().collect();
            let mut codes: Vec<_> = found.iter().map(code).collect();
            expected.sort_unstable();
            codes.sort_unstable();
            if expected != codes {
                let file = file.display();
                wrong.push(format!("{file}:{number}: expected {expected:?}, found {codes:?}"));
            }
            all.extend(found);
        }
        let counts = format!("//! {programs} programs, {cures} with a cure in the message: ");
        if cures > 0 && !source.starts_with(&counts) {
            wrong.push(format!("{}:1: expected {counts:?}", file.display()));
        }
    }
    let messages = fs::read_to_string(Path::new(FOLDER).join("messages.txt")).expect("messages");
    for block in messages.trim_end().split("\n\n") {
        if !all.iter().any(|error| says(error, block)) {
            let first = block.lines().next().unwrap_or_default();
            let like = all.iter().filter(|error| error["message"] == first);
            let found: Vec<_> = like.map(|error| error["children"].to_string()).collect();
            wrong.push(format!("expected a message {block:?}, found beside it {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
