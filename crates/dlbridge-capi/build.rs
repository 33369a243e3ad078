//! Names the shared library as it is installed, and keeps it loaded.
//! Installing it belongs to `cargo xtask capi`.
//! Invariant: programs that are linked to the installed library find it by its name and version.

/// Changes when a program that was compiled for an older library cannot run with a newer one.
const ABI: u32 = 2;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let arguments = match (&*target("OS"), &*target("FAMILY")) {
        ("macos", _) => vec![format!("-Wl,-install_name,@rpath/libdlbridge.{ABI}.dylib")],
        // Objects of the library's Python class outlive every `dlclose`.
        (_, "unix") => {
            vec![format!("-Wl,-soname,libdlbridge.so.{ABI}"), "-Wl,-z,nodelete".to_owned()]
        }
        _ => Vec::new(),
    };
    for argument in arguments {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
