//! `include/dlbridge.h` is what cbindgen makes of this crate, in the manner of C.
//! Whether it works belongs to `programs.rs`.

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
    duties.replace("Requires: As for", "Requires: as for")
}
