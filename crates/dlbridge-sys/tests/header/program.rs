//! Lets a C compiler evaluate expressions in the scope of a header.
//! What the values should be is not known here.
//! Invariant: one value comes back for each expression, in order.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
