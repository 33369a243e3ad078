//! The libraries that are measured, one line each.
//! How they are built does not belong here.

/// A library with a module `bench_<module>`.
#[derive(Debug)]
pub(crate) struct Library {
    /// What its users call it.
    pub(crate) name: &'static str,
    /// Its module, and its folder.
    pub(crate) module: &'static str,
    /// What it is built from.
    pub(crate) source: Source,
}

/// What a library's module is built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// C, in a folder of the module's name.
    C,
    /// A member of this workspace.
    Member,
    /// A crate in a workspace of its own.
    Crate,
    /// C++ that is compiled together with the installed package nanobind.
    Nanobind,
    /// Python that names what an installed package has.
    Python,
}

/// The measure of all others.
pub(crate) const FLOOR: Library = Library { name: "floor", module: "floor", source: Source::C };
/// This project.
pub(crate) const OURS: Library =
    Library { name: "dlbridge", module: "dlbridge", source: Source::Member };
/// What else there is.
pub(crate) const PEERS: [Library; 7] = [
    Library { name: "dlpack-rs", module: "dlpack_rs", source: Source::Crate },
    Library { name: "dlpark", module: "dlpark", source: Source::Crate },
    Library { name: "dlpk", module: "dlpk", source: Source::Crate },
    Library { name: "pyo3-dlpack", module: "pyo3_dlpack", source: Source::Crate },
    Library { name: "rust-numpy", module: "rust_numpy", source: Source::Crate },
    Library { name: "nanobind", module: "nanobind", source: Source::Nanobind },
    Library { name: "tvm-ffi", module: "tvm_ffi", source: Source::Python },
];
/// The sets of Python packages that the peers need.
pub(crate) const REQUIREMENTS: [&str; 2] = ["bench", "tvm-ffi"];

impl Library {
    /// The crate or Python package whose version counts, where that is not this project.
    pub(crate) fn package(&self) -> Option<&'static str> {
        match (self.source, self.name) {
            (Source::C | Source::Member, _) => None,
            (_, "rust-numpy") => Some("numpy"),
            (_, "tvm-ffi") => Some("apache-tvm-ffi"),
            (_, name) => Some(name),
        }
    }
}
