//! C and C++ programs against the generated header and both libraries, under valgrind where there is
//! one, and with AddressSanitizer where the compiler has it.
//! What the programs check stands in `programs/`.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Complains about everything that a strict project would.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];
/// The libraries that the static library needs.
const SYSTEM: [&str; 5] = ["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"];

#[test]
fn c_program_with_the_shared_library() {
    let folder = installed();
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let link = [format!("-L{}", folder.display()), rpath, "-ldlbridge".to_owned()];
    run(&compile("cc", "-std=c11", &source("owners.c"), &link));
}

#[test]
fn cpp_program_with_the_static_library() {
    run(&compile("c++", "-std=c++17", &source("owners.cpp"), &static_library()));
}

#[test]
fn header_compiles_as_every_c_and_cpp() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header_alone.c");
    std::fs::write(&source, "#include <dlbridge.h>\nint main(void) { return 0; }\n").unwrap();
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        compile("cc", standard, &source, &[]);
    }
    let cpp = source.with_extension("cpp");
    std::fs::copy(&source, &cpp).unwrap();
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        compile("c++", standard, &cpp, &[]);
    }
}

/// The examples of the guide: a whole program is run, functions are called by a `main` of theirs.
#[test]
fn examples_of_the_guide() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/c.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut programs = 0;
    for (number, block) in blocks.enumerate() {
        let is_program = block.contains("int main(");
        let rest = match is_program {
            true => "",
            false if block.contains("void show(") => CALLS_SHOW,
            false => "int main(void) { return 0; }\n",
        };
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guide_{number}.c"));
        std::fs::write(&source, [block, rest].concat()).unwrap();
        let said = output(&compile("cc", "-std=c11", &source, &static_library()), &[]);
        assert_eq!(said.is_empty(), rest.contains("return 0;") && !is_program, "it prints: {said}");
        programs += usize::from(is_program);
    }
    assert!(programs > 0, "the page has a program");
}

/// Calls the guide's first example with a tensor, and with one of a version that is rejected.
const CALLS_SHOW: &str = "
int main(void) {
    float number = 1;
    dlb_memory memory = {.struct_size = sizeof memory, .data = &number, .dtype = {2, 32, 1}, .device = {1, 0}};
    for (unsigned major = 1; major < 3; major++) {
        dlb_tensor *tensor;
        struct DLManagedTensorVersioned *managed;
        if (dlb_export(&memory, &tensor) || dlb_into_versioned(tensor, &managed)) return 1;
        *(unsigned *)managed = major;
        show(managed);
    }
}
";

/// The folder that cargo put the libraries into, which is this program's or the one above.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut folders = program.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libdlbridge_capi.a").is_file());
    found.expect("cargo has built the libraries").to_owned()
}

fn static_library() -> Vec<String> {
    let library = libraries().join("libdlbridge_capi.a").display().to_string();
    [library].into_iter().chain(SYSTEM.map(str::to_owned)).collect()
}

/// A folder with the shared library under the names that it is installed with.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        std::fs::create_dir_all(&folder).unwrap();
        let built = libraries().join(format!("libdlbridge_capi{}", std::env::consts::DLL_SUFFIX));
        let names = match cfg!(target_os = "macos") {
            true => ["libdlbridge.dylib", "libdlbridge.2.dylib"],
            false => ["libdlbridge.so", "libdlbridge.so.2"],
        };
        for name in names {
            let _ = std::fs::remove_file(folder.join(name));
            std::os::unix::fs::symlink(&built, folder.join(name)).unwrap();
        }
        folder
    })
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
    assert_eq!(output(program, &[]), "ok\n");
}

/// What a program prints; it succeeds, and loses no memory.
fn output(program: &Path, arguments: &[&str]) -> String {
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
    succeed(command.args(arguments))
}

fn succeed(command: &mut Command) -> String {
    // Cargo's search path may lead to a library of another build.
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    said.into_owned()
}
