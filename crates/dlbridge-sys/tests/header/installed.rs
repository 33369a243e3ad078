//! The DLPack headers that installed Python packages ship: finds them, reads one as text (its version, and the names that it
//! declares), and lets a C compiler evaluate expressions in the scope of one. What the values should be is not known here.
//! Invariants: a Python that was asked for by name must run, only a default one may be missing; a name inside a comment is
//! not a declaration; one value comes back for each expression, in order.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where packages keep a copy of the header, relative to site-packages.
const PLACES: &[&str] = &[
    "torch/include/ATen/dlpack.h",
    "tvm_ffi/include/dlpack/dlpack.h",
    "tvm_ffi/3rdparty/dlpack/include/dlpack/dlpack.h",
    "pyarrow/include/arrow/c/dlpack_abi.h",
    "tensorflow/include/external/dlpack/include/dlpack/dlpack.h",
    "cupy/_core/include/cupy/_dlpack/dlpack.h",
    "cuda/core/_include/dlpack.h",
];

/// Prints, of the places given as arguments, those that exist, each beside the file's full path.
const SCRIPT: &str = r#"
import os, sys, sysconfig
paths = sysconfig.get_paths()
roots = [paths["purelib"], paths["platlib"]] + [p for p in sys.path if p]
for place in sys.argv[1:]:
    for root in dict.fromkeys(map(os.path.realpath, roots)):
        path = os.path.join(root, place)
        if os.path.isfile(path):
            print(place, path, sep="\t")
"#;

/// One installed header.
pub(crate) struct Installed {
    /// The place in site-packages, for messages.
    pub(crate) place: String,
    /// The file.
    pub(crate) path: PathBuf,
}

/// Every header in a known place, or why there is none.
pub(crate) fn installed() -> Result<Vec<Installed>, String> {
    let (python, by_name) = python();
    let run = Command::new(&python).arg("-c").arg(SCRIPT).args(PLACES).output();
    let output = match run {
        Ok(output) if output.status.success() => output,
        failed if by_name => panic!("DLBRIDGE_PYTHON does not run: {failed:?}"),
        failed => return Err(format!("{} does not run: {failed:?}", python.display())),
    };
    let stdout = String::from_utf8(output.stdout).expect("Python prints UTF-8 paths");
    let found: Vec<_> = stdout
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(place, path)| Installed { place: place.to_owned(), path: PathBuf::from(path) })
        .collect();
    if found.is_empty() {
        return Err(format!("no package of {} ships a dlpack.h", python.display()));
    }
    Ok(found)
}

/// The interpreter to ask, and whether the caller chose it.
fn python() -> (PathBuf, bool) {
    if let Some(chosen) = env::var_os("DLBRIDGE_PYTHON") {
        return (PathBuf::from(chosen), true);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let in_venv = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let venv = root.join(".venv").join(in_venv);
    let python = if venv.exists() { venv } else { PathBuf::from("python3") };
    (python, false)
}

/// The text of a header without its comments.
pub(crate) struct Header {
    code: String,
}

impl Header {
    /// Takes the comments out of a header.
    pub(crate) fn new(text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
            code.push_str(&rest[..start]);
            let comment = &rest[start..];
            let (end, kept) = if comment.starts_with("/*") { ("*/", 2) } else { ("\n", 0) };
            let length = comment.find(end).map_or(comment.len(), |at| at + kept);
            rest = &comment[length..];
            code.push(' ');
        }
        code.push_str(rest);
        Self { code }
    }

    /// Major and minor version; headers before 1.0 count as `(0, n)`.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        match (self.define("DLPACK_MAJOR_VERSION"), self.define("DLPACK_MINOR_VERSION")) {
            (Some(major), Some(minor)) => Some((major, minor)),
            _ => Some((0, self.define("DLPACK_VERSION")? / 10)),
        }
    }

    /// The number that a macro stands for.
    fn define(&self, name: &str) -> Option<u32> {
        self.defined(name)?.parse().ok()
    }

    /// The text that a macro stands for.
    pub(crate) fn defined(&self, name: &str) -> Option<&str> {
        self.code.lines().find_map(|line| {
            let rest = line.trim_start().strip_prefix("#define")?.trim_start();
            let value = rest.strip_prefix(name)?;
            value.starts_with(char::is_whitespace).then(|| value.trim())
        })
    }

    /// The names that the enum `name` declares, in order.
    pub(crate) fn enumerators(&self, name: &str) -> Vec<String> {
        let mut blocks = self.code.split('}').collect::<Vec<_>>().into_iter().rev();
        let mut after = blocks.next().unwrap_or_default();
        for block in blocks {
            if after.trim_start().strip_prefix(name).is_some_and(|end| end.starts_with(';')) {
                let body = block.rsplit('{').next().unwrap_or_default();
                let is_code = |line: &&str| !line.trim_start().starts_with('#');
                let body: String = body.lines().filter(is_code).collect();
                return body.split(',').filter_map(identifier).map(str::to_owned).collect();
            }
            after = block;
        }
        Vec::new()
    }
}

/// The identifier in front of an enumerator's value.
fn identifier(enumerator: &str) -> Option<&str> {
    enumerator.split('=').next().map(str::trim).filter(|name| !name.is_empty())
}

/// Why there are no values.
pub(crate) enum Failure {
    /// There is no C compiler: nothing to compare with.
    NoCompiler(String),
    /// The compiler or the program complained: the header is not what we think.
    Broken(String),
}

/// Compiles and runs a program that prints the value of each expression.
pub(crate) fn evaluate(
    header: &Path,
    tag: &str,
    expressions: &[&str],
) -> Result<Vec<i64>, Failure> {
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("header_{tag}"));
    let (source, program) = (base.with_extension("c"), base.with_extension("exe"));
    fs::write(&source, text(header, expressions)).expect("the target folder is writable");

    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(&compiler);
    compile.args(["-std=c11", "-Wall", "-o"]).args([&program, &source]);
    match compile.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::NoCompiler(format!("no C compiler {compiler:?}")));
        }
        compiled => succeed("compiling", compiled)?,
    };
    let ran = succeed("running", Command::new(&program).output())?;

    let stdout = String::from_utf8_lossy(&ran.stdout);
    let values: Vec<i64> = stdout.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(values.len(), expressions.len(), "the program printed: {stdout}");
    Ok(values)
}

fn succeed(step: &str, outcome: std::io::Result<Output>) -> Result<Output, Failure> {
    match outcome {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(Failure::Broken(format!("{step}: {}\n{stderr}", output.status)))
        }
        Err(error) => Err(Failure::Broken(format!("{step}: {error}"))),
    }
}

fn text(header: &Path, expressions: &[&str]) -> String {
    let mut text = format!("#include \"{}\"\n#include <stdio.h>\n", header.display());
    text.push_str("int main(void) {\n");
    for expression in expressions {
        let _ = writeln!(text, "  printf(\"%lld\\n\", (long long)({expression}));");
    }
    text.push_str("  return 0;\n}\n");
    text
}
