//! Signatures in the notation of NumPy's generalised ufuncs: `(n,d),(m,d)->(n,m)`.
//! Invariant: a resolved signature has one extent for each name, and broadcast leading axes.

use std::sync::OnceLock;

use crate::Failure;

/// One axis of an operand that the function itself sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// An extent that is the same wherever the name stands.
    Named(String),
    /// A fixed extent.
    Fixed(i64),
}

/// The core axes of each operand. The axes in front of them are broadcast, and the function is called once for
/// each of their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) inputs: Vec<Vec<Axis>>,
    pub(crate) outputs: Vec<Vec<Axis>>,
    /// `(...)`: the function sees whole arrays, which are broadcast to one shape.
    pub(crate) is_whole: bool,
}

/// A signature that is parsed at its first use.
#[derive(Debug)]
pub struct Parsed(OnceLock<Result<Signature, Failure>>);

impl Parsed {
    /// A signature that is not parsed yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(&'static self, text: &str) -> Result<&'static Signature, Failure> {
        self.0.get_or_init(|| Signature::parse(text)).as_ref().map_err(Clone::clone)
    }
}

/// The extents of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The broadcast leading axes.
    pub(crate) leading: Vec<i64>,
    /// The whole shape of each output.
    pub(crate) outputs: Vec<Vec<i64>>,
}

impl Signature {
    /// Parses a signature.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::new(format!(
                "signature: expected one such as (n,d),(m,d)->(n,m), found {text}"
            ))
        };
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, outputs) = compact.split_once("->").ok_or_else(wrong)?;
        let is_whole = compact.contains("...");
        if is_whole && compact.replace("(...)", "").chars().any(|c| !",->".contains(c)) {
            return Err(wrong());
        }
        let list = |side: &str| operands(&side.replace("...", "")).ok_or_else(wrong);
        let (inputs, outputs) = (list(inputs)?, list(outputs)?);
        let known: Vec<_> = inputs.iter().flatten().collect();
        let is_known = |axis: &Axis| matches!(axis, Axis::Fixed(_)) || known.contains(&axis);
        if inputs.is_empty() || outputs.is_empty() || !outputs.iter().flatten().all(is_known) {
            return Err(wrong());
        }
        Ok(Self { inputs, outputs, is_whole })
    }

    /// The extents of a call with inputs of these shapes.
    pub(crate) fn resolve(&self, names: &[&str], shapes: &[&[i64]]) -> Result<Resolved, Failure> {
        let mut extents: Vec<(&str, i64)> = Vec::new();
        let mut leading: Vec<i64> = Vec::new();
        for ((axes, shape), name) in self.inputs.iter().zip(shapes).zip(names) {
            let Some(front) = shape.len().checked_sub(axes.len()) else {
                let (expected, found) = (axes.len(), shape.len());
                return Err(Failure::new(format!(
                    "{name}: expected at least {expected} axes, found {found}; use x.reshape(...)"
                )));
            };
            let (batch, core) = shape.split_at(front);
            broadcast(&mut leading, batch).map_err(|()| {
                Failure::new(format!(
                    "{name}: expected leading axes that broadcast to {leading:?}, found {batch:?}"
                ))
            })?;
            for (axis, &found) in axes.iter().zip(core) {
                let expected = match axis {
                    Axis::Fixed(extent) => *extent,
                    Axis::Named(axis) => match extents.iter().find(|(known, _)| known == axis) {
                        Some((_, extent)) => *extent,
                        None => {
                            extents.push((axis, found));
                            found
                        }
                    },
                };
                if expected != found {
                    return Err(Failure::new(format!(
                        "{name}: expected {expected} along {}, found {found}",
                        axis.name()
                    )));
                }
            }
        }
        let extent = |axis: &Axis| match axis {
            Axis::Fixed(extent) => *extent,
            Axis::Named(name) => {
                extents.iter().find(|(known, _)| known == name).map_or(0, |(_, extent)| *extent)
            }
        };
        let whole =
            |axes: &Vec<Axis>| leading.iter().copied().chain(axes.iter().map(extent)).collect();
        let outputs = self.outputs.iter().map(whole).collect();
        Ok(Resolved { leading, outputs })
    }

    /// The core axes of all operands, the inputs first.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Vec<Axis>> {
        self.inputs.iter().chain(&self.outputs)
    }
}

impl Axis {
    fn name(&self) -> String {
        match self {
            Self::Named(name) => format!("the axis {name}"),
            Self::Fixed(_) => "a fixed axis".to_owned(),
        }
    }
}

fn operands(side: &str) -> Option<Vec<Vec<Axis>>> {
    let inner = side.strip_prefix('(')?.strip_suffix(')')?;
    inner.split("),(").map(axes).collect()
}

fn axes(list: &str) -> Option<Vec<Axis>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let parse = |axis: &str| match axis.parse::<i64>() {
        Ok(extent) => (extent >= 0).then_some(Axis::Fixed(extent)),
        Err(_) if !axis.is_empty() && axis.chars().all(is_name) => {
            Some(Axis::Named(axis.to_owned()))
        }
        Err(_) => None,
    };
    if list.is_empty() { Some(Vec::new()) } else { list.split(',').map(parse).collect() }
}

/// Broadcasts `shape` into `into`, as NumPy does.
fn broadcast(into: &mut Vec<i64>, shape: &[i64]) -> Result<(), ()> {
    while into.len() < shape.len() {
        into.insert(0, 1);
    }
    for (to, &from) in into.iter_mut().rev().zip(shape.iter().rev()) {
        match (*to, from) {
            (one, other) if one == other || other == 1 => {}
            (1, other) => *to = other,
            _ => return Err(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(signature: &str, shapes: &[&[i64]]) -> Result<Resolved, String> {
        let signature = Signature::parse(signature).map_err(|error| error.to_string())?;
        signature.resolve(&["x", "y"], shapes).map_err(|error| error.to_string())
    }

    #[test]
    fn extents_are_matched_by_name_and_leading_axes_broadcast() {
        let found = resolved("(n,d),(m,d)->(n,m)", &[&[5, 1, 2, 3], &[4, 7, 3]]).expect("they fit");
        assert_eq!(found, Resolved { leading: vec![5, 4], outputs: vec![vec![5, 4, 2, 7]] });
        let found = resolved("(3),()->(3),(2,2)", &[&[3], &[6]]).expect("they fit");
        assert_eq!(found.outputs, [vec![6, 3], vec![6, 2, 2]]);
        let found = resolved("(...),(...)->(...)", &[&[2, 1], &[3]]).expect("they fit");
        assert_eq!(found.outputs, [vec![2, 3]]);
    }

    #[test]
    fn what_does_not_match_is_named() {
        for (signature, shapes, message) in [
            (
                "(n,d),(m,d)->(n,m)",
                [&[2, 3][..], &[7, 4]],
                "y: expected 3 along the axis d, found 4",
            ),
            ("(n,d),(m,d)->(n,m)", [&[3], &[7, 4]], "x: expected at least 2 axes, found 1"),
            ("(3),()->()", [&[4], &[]], "x: expected 3 along a fixed axis, found 4"),
            (
                "(),()->()",
                [&[4], &[3]],
                "y: expected leading axes that broadcast to [4], found [3]",
            ),
        ] {
            let error = resolved(signature, &shapes).expect_err("they do not match");
            assert!(error.starts_with(message), "{error}");
        }
        for wrong in
            ["", "(n)", "n->n", "(n)->(m)", "(n)->", "(n,)->(n)", "(-1)->(2)", "(...,n)->(n)"]
        {
            assert!(Signature::parse(wrong).is_err(), "{wrong}");
        }
    }
}
