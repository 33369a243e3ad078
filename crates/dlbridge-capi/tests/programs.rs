//! A C and a C++ program against the generated header and both libraries, under valgrind where
//! there is one.
//! What the programs check stands in `programs/`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Complains about everything that a strict project would.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];
/// What the static library needs.
const SYSTEM: [&str; 5] = ["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"];

#[test]
fn c_program_with_the_shared_library() {
    let folder = libraries();
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let link = [format!("-L{}", folder.display()), rpath, "-ldlbridge_capi".to_owned()];
    run(&compile("cc", "-std=c11", &source("owners.c"), &link));
}

#[test]
fn cpp_program_with_the_static_library() {
    let library = libraries().join("libdlbridge_capi.a");
    let mut link = vec![library.display().to_string()];
    link.extend(SYSTEM.map(str::to_owned));
    run(&compile("c++", "-std=c++17", &source("owners.cpp"), &link));
}

/// The examples of the guide: a whole program is run, functions are called by none.
#[test]
fn examples_of_the_guide() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/c.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut programs = 0;
    for (number, block) in blocks.enumerate() {
        let is_program = block.contains("int main(");
        let rest = if is_program { "" } else { "int main(void) { return 0; }\n" };
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guide_{number}.c"));
        std::fs::write(&source, [block, rest].concat()).unwrap();
        let mut link = vec![libraries().join("libdlbridge_capi.a").display().to_string()];
        link.extend(SYSTEM.map(str::to_owned));
        let said = output(&compile("cc", "-std=c11", &source, &link));
        assert_eq!(said.is_empty(), !is_program, "a program says what it did: {said}");
        programs += usize::from(is_program);
    }
    assert!(programs > 0, "the page has a program");
}

/// The folder that cargo put the libraries into, which is this program's or the one above.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut folders = program.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libdlbridge_capi.a").is_file());
    found.expect("cargo has built the libraries").to_owned()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn compile(compiler: &str, standard: &str, source: &Path, link: &[String]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = source.file_name().unwrap().to_string_lossy().replace('.', "-");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command
        .args([standard, "-g", "-I"])
        .arg(folder.join("include"))
        .args(WARNINGS)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(link);
    let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path) {
    assert_eq!(output(program), "ok\n");
}

/// What a program prints; it succeeds, and loses no memory.
fn output(program: &Path) -> String {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    let mut command = if has_valgrind {
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
            .arg("--errors-for-leak-kinds=definite,indirect")
            .arg(program);
        valgrind
    } else {
        eprintln!("without valgrind, which is not installed: leaks are not seen");
        Command::new(program)
    };
    // Cargo's search path may lead to a library of another build.
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    said.into_owned()
}
