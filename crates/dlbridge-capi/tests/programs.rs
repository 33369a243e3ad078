//! C and C++ programs against the generated header and both libraries, under valgrind where there is
//! one, and with AddressSanitizer where the compiler has it.
//! What the programs check stands in `programs/`.
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{
    compile, is_long, links, prefix, random_calls, shared_library, source, static_library, succeed,
};

/// Looks for leaks at the end, too.
const ADDRESS_SANITIZER: &str = "-fsanitize=address,undefined";

#[test]
fn c_program_with_the_shared_library() {
    run(&compile("cc", "-std=c11", &source("owners.c"), "owners-c", &shared_library()));
}

/// Not under valgrind: a child loses what other threads were doing, and a jump what it skips.
#[test]
fn queues_work_after_forks_and_jumps() {
    let program = compile("cc", "-std=gnu11", &source("queues.c"), "queues-c", &shared_library());
    assert_eq!(succeed(&mut Command::new(program)), "ok\n");
}

#[test]
fn c_program_with_the_calls_for_every_day() {
    run(&compile("cc", "-std=c11", &source("tasks.c"), "tasks-c", &shared_library()));
}

/// `cargo xtask bench --check` counts its instructions.
#[test]
fn a_round_trip_in_c() {
    let program = compile("cc", "-std=c11", &source("round_trip.c"), "trip", &shared_library());
    assert_eq!(output(&program, &["3"]), "");
}

#[test]
fn mistakes_of_a_c_program_are_named() {
    run(&compile("cc", "-std=c11", &source("mistakes.c"), "mistakes-c", &shared_library()));
}

/// On a thread with a stack that a recursive release does not fit into.
#[test]
fn chains_of_a_c_program_are_released_without_recursion() {
    let program = compile("cc", "-std=c11", &source("chains.c"), "chains-c", &shared_library());
    assert_eq!(succeed(&mut Command::new(program)), "ok\n");
}

#[test]
#[cfg(target_os = "linux")]
fn c_program_with_sealed_tensors() {
    run(&compile("cc", "-std=gnu11", &source("sealed.c"), "sealed-c", &shared_library()));
}

#[test]
fn cpp_program_with_the_static_library() {
    run(&compile("c++", "-std=c++17", &source("owners.cpp"), "owners-cpp", &static_library()));
}

/// `dlbridge.hpp` in C++17 and C++20, with exceptions and without, under valgrind and sanitizers. Each build takes seconds of
/// the compiler, so only the long tests have all.
#[test]
fn cpp_program_with_the_wrapper() {
    let build = |standard: &str, name: &str, flags: &[&str]| {
        let link = flags.iter().map(|flag| (*flag).to_owned()).chain(shared_library());
        compile("c++", standard, &source("wrapper.cpp"), name, &link.collect::<Vec<_>>())
    };
    run(&build("-std=c++17", "wrapper17", &[]));
    if is_long() {
        run(&build("-std=c++20", "wrapper20", &["-fno-exceptions"]));
    }
    let sanitizers = [ADDRESS_SANITIZER, "-fsanitize=thread"];
    for sanitizer in &sanitizers[..if is_long() { 2 } else { 1 }] {
        if !links(&[(*sanitizer).to_owned()]) {
            eprintln!("skipped: the C++ compiler has no {sanitizer}");
            continue;
        }
        let program = build("-std=c++17", &format!("wrapper{sanitizer}"), &[sanitizer]);
        assert_eq!(succeed(&mut Command::new(program)), "ok\n");
    }
}

/// It does not unwind through the library.
#[test]
fn a_cpp_owner_whose_destructor_throws_ends_the_program() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("throwing.cpp");
    let code = "#include <dlbridge.hpp>\n#include <exception>\n\
        struct Owner { float number = 1; ~Owner() noexcept(false) { throw 7; } };\n\
        int main() {\n std::set_terminate([] { std::_Exit(3); });\n \
        auto owner = std::make_unique<Owner>();\n dlb_memory memory{};\n memory.data = &owner->number;\n \
        memory.device = {DLB_DEVICE_CPU, 0};\n memory.dtype = dlb::dtype_of<float>();\n \
        dlb::share(std::move(owner), memory).value();\n return 0; }\n";
    std::fs::write(&source, code).unwrap();
    let program = compile("c++", "-std=c++17", &source, "throwing", &shared_library());
    let mut command = Command::new(program);
    assert_eq!(command.env_remove("LD_LIBRARY_PATH").status().unwrap().code(), Some(3));
}

/// A complex number without a type of DLPack does not compile.
#[test]
fn cpp_numbers_without_a_type_are_refused() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("long_double.cpp");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (number, compiles) in [("double", true), ("long double", false)] {
        let code =
            format!("#include <dlbridge.hpp>\nauto d = dlb::dtype_of<std::complex<{number}>>();\n");
        std::fs::write(&source, code).unwrap();
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-fsyntax-only", "-I"]).arg(&include).arg(&source);
        assert_eq!(compiler.output().unwrap().status.success(), compiles, "{number}");
    }
}

/// An object without exceptions does not change what another one does at a failure.
#[test]
fn cpp_objects_with_and_without_exceptions_are_linked() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = |name: &str, code: &str| {
        let source = folder.join(name);
        std::fs::write(&source, format!("#include <dlbridge.hpp>\n{code}")).unwrap();
        source
    };
    let quiet =
        source("quiet.cpp", "int quiet() { return dlb::zeros<float>({2}).value().ndim(); }\n");
    let object = folder.join("quiet.o");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-fno-exceptions", "-fPIC", "-c", "-I"]);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    succeed(compiler.arg(&quiet).arg("-o").arg(&object));
    let throws = source(
        "throws.cpp",
        "int quiet();\nint main() {\n try { dlb::zeros<float>({-1}).value(); }\n \
         catch (const dlb::error &) { return quiet() == 1 ? 0 : 2; }\n return 1; }\n",
    );
    // The linker takes the first copy of a function.
    let mut link = vec![object.display().to_string()];
    link.extend(shared_library());
    let text = throws.display().to_string();
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-I"]).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    let program = folder.join("throws");
    succeed(compiler.arg(&link[0]).arg(&text).args(&link[1..]).arg("-o").arg(&program));
    succeed(&mut Command::new(program));
}

/// `dlb::span` is a class of its own in C++17, and `std::span` in C++20, so that no function of both has one name.
#[test]
fn cpp_objects_of_two_standards_are_linked() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let object = |name: &str, standard: &str| {
        let (source, object) = (folder.join(name).with_extension("cpp"), folder.join(name));
        let code = format!(
            "#include <dlbridge.hpp>\n#include <typeinfo>\n\
             const char *{name}() {{ return typeid(dlb::tensor).name(); }}\n"
        );
        std::fs::write(&source, code).unwrap();
        let mut compiler = Command::new("c++");
        compiler.args([standard, "-fPIC", "-c", "-I"]).arg(&include).arg(&source);
        succeed(compiler.arg("-o").arg(&object));
        object
    };
    let objects = [object("of_17", "-std=c++17"), object("of_20", "-std=c++20")];
    let main = folder.join("standards.cpp");
    let code = "#include <cstring>\nconst char *of_17();\nconst char *of_20();\n\
                int main() { return std::strcmp(of_17(), of_20()) == 0; }\n";
    std::fs::write(&main, code).unwrap();
    let program = folder.join("standards");
    let mut compiler = Command::new("c++");
    compiler.arg(&main).args(&objects).args(shared_library());
    succeed(compiler.arg("-o").arg(&program));
    succeed(&mut Command::new(program));
}

#[test]
fn pkg_config_finds_the_library_in_a_folder_with_a_space() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return eprintln!("skipped: no pkg-config");
    }
    let prefix = prefix("for pkg-config", "dlbridge.pc", "lib/pkgconfig");
    let script = "eval cc -pthread \"'$1'\" -o \"'$2/owners'\" \
                  $(pkg-config --cflags --libs dlbridge) && LD_LIBRARY_PATH=$2/lib \"$2/owners\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(source("owners.c")).arg(&prefix);
    shell.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    assert_eq!(succeed(&mut shell), "ok\n");
}

#[test]
fn cmake_finds_both_libraries_in_a_folder_with_a_space() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return eprintln!("skipped: no CMake");
    }
    let prefix = prefix("for CMake", "dlbridge-config.cmake", "lib/cmake/dlbridge");
    let project = format!(
        "cmake_minimum_required(VERSION 3.10)\nproject(owners C)\n\
         find_package(dlbridge REQUIRED)\nfind_package(Threads REQUIRED)\n\
         foreach(library dlbridge static)\n\
         add_executable(with_${{library}} {:?})\n\
         target_link_libraries(with_${{library}} dlbridge::${{library}} Threads::Threads)\n\
         endforeach()\n",
        source("owners.c")
    );
    std::fs::write(prefix.join("CMakeLists.txt"), project).unwrap();
    let script = "cd \"$1\" && cmake -S . -B build -DCMAKE_PREFIX_PATH=\"$1\" > log && \
                  cmake --build build >> log && build/with_dlbridge && build/with_static";
    let mut shell = Command::new("sh");
    assert_eq!(succeed(shell.args(["-c", script, "sh"]).arg(&prefix)), "ok\nok\n");
}

/// Random calls of all functions, under valgrind fewer of them.
#[test]
fn random_calls_release_every_owner_once() {
    let program = compile("cc", "-std=c11", &source("random.c"), "random", &shared_library());
    let [calls, fewer] = random_calls();
    assert_eq!(succeed(Command::new(&program).arg(calls)), "ok\n");
    assert_eq!(output(&program, &[fewer]), "ok\n");
}

/// The same where the compiler has AddressSanitizer, which looks for leaks at the end.
#[test]
fn random_calls_pass_address_sanitizer() {
    let mut link = vec![ADDRESS_SANITIZER.to_owned()];
    if !links(&link) {
        return eprintln!("skipped: the C compiler has no AddressSanitizer");
    }
    link.extend(shared_library());
    for (name, arguments) in [
        ("random.c", &random_calls()[..1]),
        ("owners.c", &[]),
        ("tasks.c", &[]),
        ("mistakes.c", &[]),
    ] {
        let program = compile("cc", "-std=c11", &source(name), &format!("{name}-asan"), &link);
        // A lack of memory is an error of the library, not the end of the program.
        let mut command = Command::new(&program);
        command.args(arguments).env("ASAN_OPTIONS", "allocator_may_return_null=1");
        assert_eq!(succeed(&mut command), "ok\n");
    }
}

#[test]
fn header_compiles_as_every_c_and_cpp() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header_alone.c");
    std::fs::write(&source, "#include <dlbridge.h>\nint main(void) { return 0; }\n").unwrap();
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        compile("cc", standard, &source, &format!("header{standard}"), &[]);
    }
    let cpp = source.with_extension("cpp");
    std::fs::copy(&source, &cpp).unwrap();
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        compile("c++", standard, &cpp, &format!("header{standard}"), &[]);
    }
}

#[test]
fn example_of_the_header() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(folder.join("include/dlbridge.h")).unwrap();
    let example: Vec<_> = header.lines().filter_map(|line| line.strip_prefix("//     ")).collect();
    assert!(example.len() > 5, "the header opens with an example");
    let code = format!(
        "#include <dlbridge.h>\n#include <stdio.h>\n\
         void show(struct DLManagedTensorVersioned *managed) {{\n{}\n}}\n{CALLS_SHOW}",
        example.join("\n")
    );
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header_example.c");
    std::fs::write(&source, code).unwrap();
    output(&compile("cc", "-std=c99", &source, "header-example", &shared_library()), &[]);
}

/// The examples of the guide, in long tests also with AddressSanitizer: a whole program is run, `show` is called.
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
        let name = format!("guide_{number}");
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
        std::fs::write(&source, [block, rest].concat()).unwrap();
        let said = output(&compile("cc", "-std=c11", &source, &name, &shared_library()), &[]);
        assert_eq!(said.is_empty(), rest.contains("return 0;") && !is_program, "it prints: {said}");
        programs += usize::from(is_program);
        // Designators stand in the order of the fields, as C++20 demands.
        let cpp = source.with_extension("cpp");
        std::fs::copy(&source, &cpp).unwrap();
        let mut flags = vec!["-Wno-missing-field-initializers".to_owned()];
        flags.extend(shared_library());
        let cpp = compile("c++", "-std=c++20", &cpp, &format!("{name}-cpp"), &flags);
        succeed(&mut Command::new(cpp));
        let mut link = vec![ADDRESS_SANITIZER.to_owned()];
        if is_long() && links(&link) {
            link.extend(shared_library());
            succeed(&mut Command::new(compile(
                "cc",
                "-std=c11",
                &source,
                &format!("{name}-asan"),
                &link,
            )));
        }
    }
    for block in page.split("```cpp\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide.cpp");
        std::fs::write(&source, block).unwrap();
        run(&compile("c++", "-std=c++17", &source, "guide-cpp17", &shared_library()));
        programs += 1;
    }
    assert!(programs > 2, "the page has programs");
}

/// Calls the guide's first example with a tensor, and with one of a version that is rejected.
const CALLS_SHOW: &str = "
int main(void) {
    float number = 1;
    dlb_memory memory = {.struct_size = sizeof memory, .data = &number, .device = {1, 0}, .dtype = {2, 32, 1}};
    for (unsigned major = 1; major < 3; major++) {
        dlb_tensor *tensor;
        struct DLManagedTensorVersioned *managed;
        if (dlb_export(&memory, &tensor) || dlb_into_versioned(tensor, &managed)) return 1;
        *(unsigned *)managed = major;
        show(managed);
    }
}
";

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
        eprintln!("skipped: the search for leaks: no valgrind");
        Command::new(program)
    };
    succeed(command.args(arguments))
}
