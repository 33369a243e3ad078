//! Devices and dtypes by name: the inverse of their `Display`.

use std::str::FromStr;

use crate::device::{Device, DeviceKind};
use crate::dtype::{DType, TypeCode, is_width};
use crate::error::Error;

impl FromStr for Device {
    type Err = Error;

    /// Parses what `Display` writes; a name without a number means device 0.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, id) = text.split_once(':').unwrap_or((text, "0"));
        let kind = DeviceKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == Some(name))
            .or_else(|| name.strip_prefix("kind").and_then(number).map(DeviceKind));
        match (kind, number(id)) {
            (Some(kind), Some(id)) => Ok(Self::new(kind, id)),
            _ => Err(Error::UnknownName { what: "device", name: text.into() }),
        }
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses what `Display` writes: `float32`, `bool`, `float8_e4m3fn`, `int8x16`, `code200:16`. A width that no
    /// number has is not a name: `float99` is most likely a slip.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| Error::UnknownName { what: "dtype", name: text.into() })
    }
}

fn parse(text: &str) -> Option<DType> {
    // A lane count follows the last 'x', unless that 'x' belongs to the name (none ends in xN).
    if let Some((head, lanes)) = text.rsplit_once('x') {
        if let (Some(dtype), Some(lanes @ 1..)) = (parse_one_lane(head), number(lanes)) {
            return Some(dtype.with_lanes(lanes));
        }
    }
    parse_one_lane(text)
}

fn parse_one_lane(text: &str) -> Option<DType> {
    if let Some((code, bits)) = text.strip_prefix("code").and_then(|rest| rest.split_once(':')) {
        return Some(DType::new(TypeCode(number(code)?), number(bits)?));
    }
    if text == "bool" {
        return Some(DType::BOOL);
    }
    TypeCode::ALL.iter().find_map(|&code| {
        let rest = text.strip_prefix(code.name()?)?;
        match code.fixed_bits() {
            Some(bits) => rest.is_empty().then_some(DType::new(code, bits)),
            None => number(rest).filter(|&bits| is_width(bits)).map(|bits| DType::new(code, bits)),
        }
    })
}

/// A number in a name. To `parse`, a plus sign is part of a number; it is no part of a name.
fn number<N: FromStr>(text: &str) -> Option<N> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}
