//! `include/dlbridge.h` is what cbindgen makes of this crate.
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
    let generated = String::from_utf8(generated).unwrap();
    let path = folder.join("include/dlbridge.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == generated, "{} is old: run this test with {WRITE}=1", path.display());
}
