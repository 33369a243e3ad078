//! `include/dlbridge.h` is what cbindgen makes of this crate, in the manner of C, with the functions in
//! the order of tasks. `abi.txt` lists its functions, constants, and the sizes of its structs.
//! Whether it works belongs to `programs.rs`.

#[cfg(unix)]
mod common;

use std::path::Path;

/// Set to write the header instead of comparing it.
const WRITE: &str = "DLBRIDGE_WRITE_HEADER";

#[test]
fn header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(folder).with_config(config).generate();
    let mut generated = Vec::new();
    bindings.unwrap().write(&mut generated);
    let generated = as_c_has_it(&String::from_utf8(generated).unwrap());
    let path = folder.join("include/dlbridge.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == generated, "{} is old: run this test with {WRITE}=1", path.display());
}

/// Constants without a line between them, and the heading of duties as one word.
fn as_c_has_it(header: &str) -> String {
    let mut constants = header.to_owned();
    for define in ["#define DLB_TYPE_", "#define DLB_DEVICE_"] {
        constants = constants.replace(&format!("\n\n{define}"), &format!("\n{define}"));
    }
    let duties = constants.replace("// # Safety\n//\n// ", "// Requires: ");
    by_tasks(&duties.replace("Requires: As for", "Requires: as for"))
}

/// All functions, in the order in which a program needs them.
const TASKS: [(&str, &[&str]); 10] = [
    (
        "Import a tensor",
        &[
            "dlb_from_versioned",
            "dlb_from_legacy",
            "dlb_from_python",
            "dlb_delete_versioned",
            "dlb_delete_legacy",
        ],
    ),
    ("Check and read a tensor", &["dlb_expect", "dlb_tensor_info", "dlb_is_legacy_read_only"]),
    ("Make a tensor", &["dlb_new", "dlb_copy", "dlb_export"]),
    ("Release a tensor", &["dlb_release", "dlb_retain"]),
    (
        "Export a tensor",
        &[
            "dlb_into_versioned",
            "dlb_into_legacy",
            "dlb_into_python",
            "dlb_into_capsule",
            "dlb_export_python",
        ],
    ),
    (
        "Release on a chosen thread",
        &[
            "dlb_queue_new",
            "dlb_queue_release",
            "dlb_queue_drain",
            "dlb_queue_take",
            "dlb_queue_pending",
            "dlb_queue_descriptor",
            "dlb_queue_mute",
            "dlb_queue_close",
        ],
    ),
    (
        "Share with other processes",
        &[
            "dlb_sealed_copy",
            "dlb_sealed_descriptor",
            "dlb_sealed_open",
            "dlb_sealed_count",
            "dlb_sealed_name",
            "dlb_sealed_tensor",
            "dlb_sealed_private",
            "dlb_sealed_close",
        ],
    ),
    ("Names", &["dlb_dtype_name", "dlb_dtype_parse", "dlb_device_name"]),
    ("Failures", &["dlb_last_error", "dlb_status_name", "dlb_attempt"]),
    ("The library", &["dlb_version", "dlb_api_version", "dlb_use_python"]),
];

fn by_tasks(header: &str) -> String {
    let (start, end) = ("#endif // __cplusplus\n\n", "\n\n#ifdef __cplusplus\n}");
    let (before, rest) = header.split_once(start).expect("functions");
    let (functions, after) = rest.split_once(end).expect("an end of functions");
    let mut functions: Vec<_> = functions.split("\n\n").collect();
    let mut ordered = String::new();
    for (task, names) in TASKS {
        ordered += &format!("// ---- {task} ----\n\n");
        for name in names {
            let declares = |text: &&str| name_of(text) == Some(name);
            let found = functions.iter().position(declares).unwrap_or_else(|| panic!("no {name}"));
            ordered += functions.remove(found);
            ordered += "\n\n";
        }
    }
    assert!(functions.is_empty(), "of no task: {functions:?}");
    [before, start, ordered.trim_end(), end, after].concat()
}

/// The name of the function that a declaration declares.
fn name_of(declaration: &str) -> Option<&str> {
    let line = declaration.lines().find(|line| !line.starts_with("//"))?;
    line.split('(').next()?.rsplit([' ', '*']).next()
}

/// The listing changes only on purpose: what it lists is the ABI.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn the_listing_of_symbols_and_sizes_is_current() {
    use std::process::Command;

    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(folder.join("include/dlbridge.h")).unwrap();
    let mut program = "#include <dlbridge.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    let mut print = |what: &str, numbers: &str| {
        program += &format!("printf(\"{what}\\n\", {numbers});\n");
    };
    for block in header.split("typedef struct ").skip(1).filter(|block| block.contains("{\n")) {
        let Some((name, fields)) = block.split_once(" {\n") else { continue };
        if name.contains(';') {
            continue;
        }
        print(&format!("struct {name}: %zu bytes"), &format!("sizeof({name})"));
        for line in fields.split("\n}").next().unwrap().lines().map(str::trim) {
            let Some(field) = line.strip_suffix(';').filter(|_| !line.starts_with("//")) else {
                continue;
            };
            let field = match field.split_once("(*") {
                Some((_, rest)) => rest.split(')').next().unwrap(),
                None => field.rsplit([' ', '*']).next().unwrap().split('[').next().unwrap(),
            };
            print(
                &format!("  {field}: %zu bytes at %zu"),
                &format!("sizeof((({name} *)0)->{field}), offsetof({name}, {field})"),
            );
        }
    }
    for line in header.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["#define", name, _] => print(&format!("{name} = %lld"), &format!("(long long){name}")),
            [name, "=", _] if name.starts_with("DLB_") => {
                print(&format!("{name} = %lld"), &format!("(long long){name}"));
            }
            _ => {}
        }
    }
    program += "}\n";
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sizes.c");
    std::fs::write(&source, program).unwrap();
    let program = common::compile("cc", "-std=c11", &source, "sizes", &[]);
    let mut listing = common::succeed(&mut Command::new(program));
    // What the shared library exports is what the header declares.
    let library = common::installed().join("libdlbridge.so");
    let symbols = common::succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let mut symbols: Vec<_> = symbols.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    symbols.retain(|name| !name.starts_with("rust_eh_"));
    let mut declared: Vec<_> = TASKS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    declared.sort_unstable();
    symbols.sort_unstable();
    assert_eq!(symbols, declared);
    for name in declared {
        listing += &format!("function {name}\n");
    }
    let path = folder.join("abi.txt");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &listing).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == listing, "{} is old: run this test with {WRITE}=1", path.display());
}
