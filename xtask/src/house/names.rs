//! What the code spans of a page, and of the head of a source, name exists: files, tests, items of our
//! crates, features, commands, and every other word, which stands somewhere in the sources. So do the
//! files that any comment names.

use std::collections::HashSet;

use pulldown_cmark::{Event, Parser};

use super::notes;
use crate::guide;
use crate::shell::{LIBRARIES, line_of};

/// History, adapters that do not exist yet, pages that a command writes.
const LEFT_OUT: &str = "CHANGELOG docs/benchmarks docs/decisions/ docs/doctor docs/first";
/// Words of other libraries and programs, of files that others write, and of examples.
const FOREIGN: &str = "AllowTypeChange BorrowError CUstream Complex32 Complex64 DenseArray \
    LocalPreferences.toml ManagedTensor PanicException PyArray1 PyArray2 PyArrayDescr \
    PyArrayLike1 PyFixedString PyArray_New PyBuffer PyGILState_Check PyReadonlyArray1 \
    PyReadonlyArray2 PyReadonlyArrayDyn PyReadwriteArray1 PyReadwriteArray2 Py_Finalize \
    TensorDict __getbuffer__ __releasebuffer__ __setstate__ as_mut_slice callgrind_annotate \
    cpu_slice_mut cudaStream_t cuda_device decltype expand_dims dldevice dlpack.h fork \
    from_capsule from_pyany from_vec2 install_exchange_api into_dlpack_readonly into_pyarray \
    is_c_contiguous jltypes_to_dtypes npyffi numel pydel refcheck set_deleter strides_or_compact \
    to_pyarray try_readonly FRAMEWORK NANOSECONDS REASON make_array make_signal manager \
    my_extension my_object weights EACCES EBUSY EFAULT EPERM F_SEAL_FUTURE_WRITE F_SEAL_GROW \
    F_SEAL_SEAL F_SEAL_SHRINK F_SEAL_WRITE MAP_PRIVATE O_TRUNC __pad_1 ptrace dlpackrs e4m3fn \
    e5m2 F4E2M1 py39 pybuffer.h tp_as_buffer COUNT GROUP MSG_CTRUNC SEEK_HOLE ZeroTensor \
    immutable_type longjmp hashbrown jacrev hessian";
/// Written by commands, or outside of the repository.
const ELSEWHERE: &str = "../ .venv fuzz/artifacts/ target/ /dev/ /proc /labels numpy/ kill";
/// The endings of sources, in which words are looked for, and of other files.
const SOURCES: &str = ".rs .py .pyi .jl .h .c .cpp .toml .sh .in .yml .txt";
/// The endings of files that comments name.
const NAMED: &str = ".rs .py .jl .md .sh .toml .yml";
const COMMENTS: [&str; 4] = ["//", "# ", "/*", "* "];
/// An item's name stands behind one of these.
const KEYWORDS: &str = "fn struct enum trait type const static mod macro_rules def class function";

/// What there is to name.
pub(crate) struct Names<'a> {
    paths: Vec<&'a str>,
    /// The words of all sources.
    words: HashSet<&'a str>,
    /// The items that each source defines.
    items: Vec<(&'a str, HashSet<&'a str>)>,
    features: &'a [String],
}

impl<'a> Names<'a> {
    /// Reads files, given as name and text.
    pub(crate) fn of(files: &'a [(String, String)], features: &'a [String]) -> Self {
        let (mut words, mut items) = (HashSet::new(), Vec::new());
        for (name, text) in files {
            words.extend(words_of(name));
            let mut defined = HashSet::new();
            let is_code = |line: &str| !COMMENTS.iter().any(|start| line.starts_with(start));
            let lines = text.lines().map(str::trim_start).filter(|line| is_code(line));
            for line in lines.filter(|_| any(SOURCES, |end| name.ends_with(end))) {
                words.extend(words_of(line));
                // The first word may be a variant.
                defined.extend(words_of(line).next());
                let behind = words_of(line).zip(words_of(line).skip(1));
                let named = behind.filter(|(word, _)| any(KEYWORDS, |keyword| keyword == *word));
                defined.extend(named.map(|(_, item)| item));
            }
            items.push((&name[..], defined));
        }
        let paths = files.iter().map(|(name, _)| &name[..]).collect();
        Self { paths, words, items, features }
    }

    /// The spans of a page that name something missing, as `name:line: problem`.
    pub(crate) fn check(&self, page: &str, text: &str) -> Vec<String> {
        let is_checked = !any(LEFT_OUT, |start| page.starts_with(start));
        let spans = Parser::new(text).into_offset_iter().filter(|_| is_checked);
        let found = spans.filter_map(|(event, place)| {
            let Event::Code(span) = event else { return None };
            let problem = self.problem(&span)?;
            Some(format!("{page}:{}: `{span}`: {problem}", line_of(text, place.start)))
        });
        found.collect()
    }

    /// The comments of a source that name a file which is not there.
    pub(crate) fn check_files(&self, source: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let is_checked = any(SOURCES, |end| source.ends_with(end));
        for (index, line) in text.lines().enumerate().filter(|_| is_checked) {
            let line = line.trim_start();
            if !any("// #", |start| line.starts_with(start)) || line.starts_with("//!") {
                continue;
            }
            let is_file = |span: &&str| any(NAMED, |end| span.ends_with(end)) && is_path(span);
            for span in line.split('`').skip(1).step_by(2).filter(is_file) {
                let is_there = self.paths.iter().any(|path| is_at(path, span));
                if !is_there && !any(ELSEWHERE, |start| span.starts_with(start)) {
                    findings.push(format!("{source}:{}: there is no {span}", index + 1));
                }
            }
        }
        findings
    }

    fn problem(&self, span: &str) -> Option<String> {
        if let Some((_, command)) = span.split_once("cargo xtask") {
            return guide::unknown_command(&format!("cargo xtask{command}"));
        }
        let is_foreign = |word: &str| any(FOREIGN, |foreign| foreign == word);
        if is_foreign(span) || any(ELSEWHERE, |start| span.starts_with(start)) {
            return None;
        }
        if is_feature(span) {
            let is_there = self.features.iter().any(|feature| feature == span);
            return (!is_there).then(|| "there is no such feature".to_owned());
        }
        let (first, rest) = span.split_once("::").unwrap_or((span, ""));
        let is_file = first.contains('/') || any(SOURCES, |end| first.ends_with(end));
        let is_test = || first > "a" && rest.contains('_') && self.defines(&["/tests/"], rest);
        if is_path(first) && (is_file || is_test()) {
            if !self.paths.iter().any(|path| is_at(path, first)) {
                return Some("there is no such file".to_owned());
            }
            let of_file = |(path, _): &&(&str, _)| is_at(path, first);
            let mut files = self.items.iter().filter(of_file).map(|(_, items)| items);
            let is_fine = files.any(|items| words_of(rest).all(|item| items.contains(item)));
            return (!is_fine).then(|| format!("{first} does not define it"));
        }
        let of_type = first.starts_with(char::is_uppercase) && self.defines(&LIBRARIES, first);
        let of_module = span.strip_prefix("dlbridge.");
        let places =
            [(&LIBRARIES[..], of_type.then_some(rest)), (&["python/dlbridge/"], of_module)];
        for (places, rest) in places {
            let item = rest.and_then(|rest| words_of(rest).next());
            let missing = item.filter(|item| !self.defines(places, item) && !is_foreign(item));
            if let Some(item) = missing {
                return Some(format!("{} does not define {item}", places.join(" or ")));
            }
        }
        let is_known = |word: &str| {
            let is_suffix = word.starts_with('_') && self.words.iter().any(|w| w.ends_with(word));
            self.words.contains(word) || is_suffix || is_foreign(word) || notes::is_number(word)
        };
        let unknown = words_of(span).find(|word| !is_known(word));
        unknown.map(|word| format!("no source has the word {word}"))
    }

    /// Whether a source in one of these folders defines an item.
    fn defines(&self, folders: &[&str], item: &str) -> bool {
        let is_in = |path: &str| folders.iter().any(|folder| path.contains(folder));
        self.items.iter().any(|(path, of)| is_in(path) && of.contains(item))
    }
}

/// The documentation at the head of a source in Rust, on the same lines.
pub(crate) fn head(source: &str) -> String {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    lines.map(|line| line.trim_start_matches("//!").trim_start().to_owned() + "\n").collect()
}

fn any(list: &str, is_it: impl Fn(&str) -> bool) -> bool {
    list.split_whitespace().any(is_it)
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

fn is_path(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c))
}

/// Whether a name looks like a feature that adapts a crate, such as `ndarray-0_17`.
fn is_feature(name: &str) -> bool {
    let version = name.split('-').skip(1).find(|part| part.starts_with(|c: char| c.is_numeric()));
    name.starts_with(char::is_lowercase)
        && is_path(name)
        && version.is_some_and(|version| version.chars().all(|c| c.is_numeric() || c == '_'))
}

/// Whether a path ends with a name: that of a folder in it, or its file's, with or without extension.
fn is_at(path: &str, name: &str) -> bool {
    let (path, name) = (format!("/{path}"), format!("/{name}"));
    path.match_indices(&name).any(|(at, _)| {
        let rest = &path[at + name.len()..];
        name.ends_with('/')
            || rest.is_empty()
            || rest.starts_with('/')
            || [".rs", ".py", ".jl"].contains(&rest)
    })
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn only_what_does_not_exist_is_found() {
        let files = [
            (
                "crates/x/src/raw/one.rs",
                "// gone()\npub struct Tensor<T> {\n pub fn view() {\n  Other,",
            ),
            ("crates/x/tests/it/two.rs", "fn it_holds() {"),
            ("python/dlbridge/__init__.pyi", "def inspect(x): ..."),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let features = ["ndarray-0_17".to_owned()];
        let names = Names::of(&files, &features);
        let number = |span: &str| names.check("a.md", &format!("See `{span}`.")).len();
        let fine = "Tensor::view::<T>()? Other::view raw/one.rs src/raw src/raw/ two.rs::it_holds \
            two::it_holds dlbridge.inspect(x) ndarray-0_17 T1 42";
        for span in fine.split_whitespace().chain(["cargo xtask lint"]) {
            assert_eq!(number(span), 0, "{span}");
        }
        let gone = "gone() raw/one/ Tensor::it_held raw/two.rs two.rs::it_held one::it_holds dlbridge.view \
            ndarray-0_18";
        for span in gone.split_whitespace().chain(["cargo xtask fly"]) {
            assert_eq!(number(span), 1, "{span}");
        }
        assert!(names.check("CHANGELOG.md", "`gone()`").is_empty());
        let head = super::head("//! See `two.rs`.\n//! `gone()`\n\nfn gone() {}");
        assert_eq!(names.check("a.rs", &head), ["a.rs:2: `gone()`: no source has the word gone"]);
        let source = "fn f() {}\n    // `raw/one.rs`, `gone.rs`\n/// `view.rs`";
        let found = ["a.rs:2: there is no gone.rs", "a.rs:3: there is no view.rs"];
        assert_eq!(names.check_files("a.rs", source), found);
    }
}
