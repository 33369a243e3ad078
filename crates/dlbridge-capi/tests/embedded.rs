//! Programs in C that start a Python in ways of their own, each in a process of its own.
//! Ordinary use of Python belongs to `python.rs`.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::OnceLock;

use common::{compile, installed, is_long, random_calls, shared_library, source, succeed};

/// Prints the version of a Python and its library.
const QUESTIONS: &str = "\
import sys, sysconfig
print('%d.%d' % sys.version_info[:2], sysconfig.get_config_var('LIBDIR'), sysconfig.get_config_var('LDLIBRARY'), sep='\\n')";

/// The shared libraries of all Pythons on the search path (with pyenv, of all that it has), and of the
/// one that tests use, by version.
fn pythons() -> &'static BTreeMap<(u32, u32), String> {
    static FOUND: OnceLock<BTreeMap<(u32, u32), String>> = OnceLock::new();
    FOUND.get_or_init(find)
}

fn find() -> BTreeMap<(u32, u32), String> {
    let pyenv = Command::new("pyenv").args(["versions", "--bare"]).output();
    let versions = pyenv.map(|output| String::from_utf8_lossy(&output.stdout).replace('\n', ":"));
    let named = std::env::var("DLBRIDGE_PYTHON").or(std::env::var("PYO3_PYTHON"));
    let mut names: Vec<String> = (8..=15).map(|minor| format!("python3.{minor}")).collect();
    names.extend(named);
    names.push("python3".to_owned());
    let mut found = BTreeMap::new();
    for name in names {
        let mut command = Command::new(&name);
        command.args(["-c", QUESTIONS]);
        if let Ok(versions) = &versions {
            command.env("PYENV_VERSION", versions.trim_end_matches(':'));
        }
        let Ok(output) = command.output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<_> = text.lines().collect();
        let [version, folder, library] = lines[..] else { continue };
        let Some((major, minor)) = version.split_once('.') else { continue };
        let path = format!("{folder}/{library}");
        if library.contains(std::env::consts::DLL_SUFFIX) && std::path::Path::new(&path).is_file() {
            found.insert((major.parse().unwrap(), minor.parse().unwrap()), path);
        }
    }
    found
}

/// Runs a case with every Python of these versions.
fn run(case: &str, wanted: impl Fn((u32, u32)) -> bool) {
    let program = compile("cc", "-std=c11", &source("embed.c"), case, &shared_library());
    let mut ran = Vec::new();
    for (version, library) in pythons().iter().filter(|(version, _)| wanted(**version)) {
        let said = succeed(Command::new(&program).arg(library).arg(case));
        assert!(said == "ok\n" || said == "skipped\n", "{version:?}: {said}");
        ran.push((version, said));
    }
    println!("{case}: {ran:?}");
    if ran.is_empty() {
        eprintln!("skipped: no shared libpython of these versions");
    }
}

const SUPPORTED: fn((u32, u32)) -> bool = |version| version >= (3, 11);

/// Once a sub-interpreter had existed, the C library treated a detached thread as attached, and
/// lost wake-ups.
#[test]
fn a_foreign_thread_is_refused_after_a_sub_interpreter() {
    run("a_foreign_thread_is_refused_after_a_sub_interpreter", SUPPORTED);
}

#[test]
fn queues_drain_before_and_after_python_runs() {
    run("queues_drain_before_and_after_python_runs", SUPPORTED);
}

#[test]
fn a_python_that_starts_again_is_refused() {
    run("a_python_that_starts_again_is_refused", SUPPORTED);
}

#[test]
fn a_second_interpreter_is_refused_by_name() {
    run("a_second_interpreter_is_refused_by_name", SUPPORTED);
}

/// `dlb_release` waited for ever in a sub-interpreter of Python 3.11, for the GIL that its own
/// thread held; from 3.12 on it ran the deleter in the wrong interpreter.
#[test]
fn a_release_in_another_interpreter_is_deferred() {
    run("a_release_in_another_interpreter_is_deferred", SUPPORTED);
}

#[test]
fn an_old_python_is_refused_by_its_version() {
    run("an_old_python_is_refused_by_its_version", |version| version < (3, 11));
}

#[test]
fn another_python_is_refused() {
    run("another_python_is_refused", SUPPORTED);
}

#[test]
fn the_class_is_immutable() {
    run("the_class_is_immutable", SUPPORTED);
}

/// Each program ends in its own time: a few runs of each.
#[test]
fn threads_may_wait_for_the_gil_while_python_shuts_down() {
    let python = std::env::var("DLBRIDGE_PYTHON").or(std::env::var("PYO3_PYTHON"));
    let mut command = Command::new(python.as_deref().unwrap_or("python3"));
    let packages = "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))";
    let output = command.args(["-c", &format!("{QUESTIONS}; {packages}")]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    let [_, folder, library, packages] = lines[..] else {
        return eprintln!("skipped: no NumPy");
    };
    let library = std::path::Path::new(folder).join(library);
    if !pythons().values().any(|found| library == *found) {
        return eprintln!("skipped: no shared libpython");
    }
    let program = compile("cc", "-std=c11", &source("shutdown.c"), "shutdown-c", &shared_library());
    let runs = if is_long() { 8 } else { 2 };
    for task in ["library", "consumer", "managed", "owner", "holder", "importer"] {
        for _ in 0..runs {
            let mut command = Command::new(&program);
            command.arg(&library).arg(task).env("PYTHONPATH", packages);
            assert_eq!(succeed(&mut command), "ok\n");
        }
    }
}

/// CPython ends a thread that waits for the GIL by unwinding it, which a destructor of C++ does not survive.
#[test]
fn destructors_of_cpp_release_while_python_shuts_down() {
    let source = source("shutdown.cpp");
    let program = compile("c++", "-std=c++17", &source, "shutdown-cpp", &shared_library());
    for (version, python) in pythons().range((3, 11)..) {
        for _ in 0..if is_long() { 5 } else { 2 } {
            assert_eq!(succeed(Command::new(&program).arg(python)), "ok\n", "{version:?}");
        }
    }
}

#[test]
fn objects_outlive_a_library_that_is_closed() {
    let link = ["-ldl".to_owned()];
    let program = compile("cc", "-std=c11", &source("unload.c"), "unload", &link);
    let library = installed().join(format!("libdlbridge{}", std::env::consts::DLL_SUFFIX));
    for (version, python) in pythons().range((3, 11)..) {
        let said =
            succeed(Command::new(&program).arg(python).arg(&library).arg("dlb_export_python"));
        assert_eq!(said, "ok\n", "{version:?}");
    }
}

/// A plugin is linked as pkg-config says. It exports its own functions only: under `RTLD_GLOBAL`, a second
/// plugin would call the library of the first one.
#[test]
#[cfg(target_os = "linux")]
fn plugins_with_the_static_library_stay_loaded() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return eprintln!("skipped: no pkg-config");
    }
    let prefix = common::prefix("for a plugin", "dlbridge.pc", "lib/pkgconfig");
    for name in ["libdlbridge.so", "libdlbridge.so.2"] {
        let _ = std::fs::remove_file(prefix.join("lib").join(name));
    }
    let code = "#include <dlbridge.h>\n\
                dlb_status plugin_export(const dlb_memory *memory, struct _object **out) {\n\
                return dlb_export_python(memory, out); }\n";
    std::fs::write(prefix.join("plugin.c"), code).unwrap();
    let script = "cd \"$1\" && eval cc -shared -fPIC -o plugin.so plugin.c \
                  $(pkg-config --static --cflags --libs dlbridge)";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(&prefix);
    succeed(shell.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let plugin = prefix.join("plugin.so");
    let symbols = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&plugin));
    let names: Vec<_> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["plugin_export"]);
    let program =
        compile("cc", "-std=c11", &source("unload.c"), "unload-plugin", &["-ldl".to_owned()]);
    for (version, python) in pythons().range((3, 11)..) {
        let said = succeed(Command::new(&program).arg(python).arg(&plugin).arg("plugin_export"));
        assert_eq!(said, "ok\n", "{version:?}");
    }
}

#[test]
fn random_calls_with_python_release_every_owner_once() {
    let program = compile("cc", "-std=c11", &source("random.c"), "random-py", &shared_library());
    for (version, python) in pythons().range((3, 11)..) {
        let said = succeed(Command::new(&program).arg(random_calls()[0]).arg(python));
        assert_eq!(said, "ok\n", "{version:?}");
    }
}
