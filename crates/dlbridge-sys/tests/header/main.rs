//! Compares this crate with every `dlpack.h` that an installed Python package ships.
//! Numbers of our own must not be written here: one side is the crate, the other a C compiler.
//! Invariant: a header of our version or an older one has no name that this crate lacks.
//!
//! The Python is `DLBRIDGE_PYTHON`, else the workspace's `.venv`, else `python3`. Where nothing can
//! be compared the test says why and passes; `cargo xtask test` fails if `DLBRIDGE_REQUIRE` names `header`.
#![cfg(not(miri))]

mod installed;
mod table;

use std::fs;

use dlbridge_sys::{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
use installed::{Failure, Header, Installed, evaluate, installed};
use table::{Codes, FLAGS, Row, codes, row, structs};

const OURS: (u32, u32) = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
/// Older headers have other names for devices.
const OLDEST: (u32, u32) = (0, 6);

#[test]
fn abi_equals_that_of_every_installed_header() {
    let headers = match installed() {
        Ok(headers) => headers,
        Err(reason) => return skip(&reason),
    };
    let mut checked = Vec::new();
    for (index, installed) in headers.iter().enumerate() {
        let Installed { place, path } = installed;
        let text = fs::read_to_string(path).expect("an installed header is readable");
        let header = Header::new(&text);
        let Some(version) = header.version().filter(|v| *v >= OLDEST && v.0 <= OURS.0) else {
            println!("left out {place}: version {:?}", header.version());
            continue;
        };
        let (rows, mut wrong) = rows(&header, version);
        let expressions: Vec<_> = rows.iter().map(|row| row.expression.as_str()).collect();
        let values = match evaluate(path, &index.to_string(), &expressions) {
            Ok(values) => values,
            Err(Failure::NoCompiler(reason)) => return skip(&reason),
            Err(Failure::Broken(message)) => panic!("{place}: {message}"),
        };
        for (row, theirs) in rows.iter().zip(values).filter(|(row, value)| row.ours != *value) {
            wrong.push(format!("{}: {} here, {theirs} there", row.expression, row.ours));
        }
        assert!(wrong.is_empty(), "{place} {version:?}:\n{}", wrong.join("\n"));
        println!("checked {place}: version {}.{}, {} values", version.0, version.1, rows.len());
        checked.push(version);
    }
    if !checked.iter().any(|version| *version >= OURS) {
        skip(&format!("no header of version {OURS:?} or newer was found; checked {checked:?}"));
    }
}

fn skip(reason: &str) {
    println!("skipped: header: {reason}");
}

/// What to evaluate with a header of some version, and what is wrong with its names.
fn rows(header: &Header, version: (u32, u32)) -> (Vec<Row>, Vec<String>) {
    let mut wrong = Vec::new();
    let mut rows: Vec<_> = structs()
        .into_iter()
        .filter(|group| group.since <= version)
        .flat_map(|group| group.rows)
        .collect();
    if version.0 > 0 {
        rows.push(row("DLPACK_MAJOR_VERSION".to_owned(), version.0));
        rows.push(row("DLPACK_MINOR_VERSION".to_owned(), version.1));
    }
    for (name, bit) in FLAGS {
        if header.defined(name).is_some() {
            rows.push(row((*name).to_owned(), *bit));
        } else if version >= OURS {
            wrong.push(format!("{name}: here, but not there"));
        }
    }
    for codes in codes() {
        let theirs = header.enumerators(codes.name);
        wrong.extend(missing(&codes, &theirs, version));
        let shared = codes.named.iter().filter(|(name, _)| theirs.iter().any(|n| n == name));
        rows.extend(shared.map(|(name, code)| row((*name).to_owned(), *code)));
    }
    (rows, wrong)
}

/// Names of an enum that one side has and the other should have.
fn missing(codes: &Codes, theirs: &[String], version: (u32, u32)) -> Vec<String> {
    let unnamed = theirs.iter().filter(|name| !codes.named.iter().any(|(ours, _)| ours == name));
    let absent = codes.named.iter().map(|(name, _)| *name).filter(|name| {
        version >= OURS && !codes.newer.contains(name) && !theirs.iter().any(|n| n == name)
    });
    let mut wrong: Vec<_> = absent.map(|name| format!("{name}: here, but not there")).collect();
    if version > OURS {
        unnamed.for_each(|name| println!("note: {name} is newer than this crate"));
    } else {
        wrong.extend(unnamed.map(|name| format!("{name}: there, but not here")));
    }
    if theirs.is_empty() {
        wrong.push(format!("{}: no such enum there", codes.name));
    }
    wrong
}

const SAMPLE: &str = "
// kDLNever = 7,
#define DLPACK_MAJOR_VERSION 1 /* kDLNever */
#define DLPACK_MINOR_VERSION 3
#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  /*! kDLNever = 7, */ kDLCPU = 1, kDLFresh = 99, // kDLNever
  kDLCUDA = 2,
} DLDeviceType;
typedef struct { DLDeviceType device_type; } DLDevice;
";

#[test]
fn a_header_is_read_without_its_comments() {
    let header = Header::new(SAMPLE);
    assert_eq!(header.version(), Some((1, 3)));
    assert_eq!(header.enumerators("DLDeviceType"), ["kDLCPU", "kDLFresh", "kDLCUDA"]);
    assert!(header.enumerators("DLDataTypeCode").is_empty());
    assert_eq!(Header::new("#define DLPACK_VERSION 80\n").version(), Some((0, 8)));
}

#[test]
fn a_name_on_one_side_only_is_reported() {
    let [devices, _] = codes();
    let theirs = Header::new(SAMPLE).enumerators("DLDeviceType");
    let wrong = missing(&devices, &theirs, OURS);
    assert!(wrong.contains(&"kDLFresh: there, but not here".to_owned()), "{wrong:?}");
    assert!(wrong.contains(&"kDLTrn: here, but not there".to_owned()), "{wrong:?}");
    assert!(!wrong.iter().any(|line| line.starts_with("kDLTPU")), "{wrong:?}");

    assert_eq!(missing(&devices, &theirs, (1, 2)), ["kDLFresh: there, but not here"]);
    assert!(!missing(&devices, &theirs, (1, 4)).iter().any(|line| line.starts_with("kDLFresh")));
}
