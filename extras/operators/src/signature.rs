//! Signatures in the notation of NumPy's generalised ufuncs: `(n,d),(m,d)->(n,m)`.
//! Invariant: a resolved signature has one extent for each name, and broadcast leading axes.

use crate::Failure;
use crate::few::Numbers;

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
    /// Each axis once, in the order in which they first appear: so NumPy counts them.
    pub(crate) axes: Vec<Axis>,
    /// For each tensor that the caller passes, its axes as indices of `axes`.
    pub(crate) inputs: Vec<Vec<usize>>,
    /// The same for each tensor that is a result.
    pub(crate) outputs: Vec<Vec<usize>>,
    /// The number of core axes of all operands.
    pub(crate) core_axes: usize,
    /// `(...)`: the function sees whole arrays, which are broadcast to one shape.
    pub(crate) is_whole: bool,
}

/// The extents of a call.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The broadcast leading axes.
    pub(crate) leading: Numbers,
    /// The extent of each axis of the signature.
    extents: Numbers,
}

/// The extent of an axis that no tensor of the call has.
const UNKNOWN: i64 = -1;

impl Resolved {
    /// The whole shape of a tensor with these core axes.
    pub(crate) fn shape(&self, axes: &[usize]) -> Numbers {
        let mut shape = Numbers::zeros(self.leading.len() + axes.len());
        let (leading, core) = shape.split_at_mut(self.leading.len());
        leading.copy_from_slice(&self.leading);
        for (extent, &axis) in core.iter_mut().zip(axes) {
            *extent = self.extents[axis];
        }
        shape
    }
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
        let mut axes = Vec::new();
        let mut list = |side: &str| operands(&side.replace("...", ""), &mut axes).ok_or_else(wrong);
        let inputs = list(inputs)?;
        let outputs = if outputs.is_empty() { Vec::new() } else { list(outputs)? };
        let core_axes = inputs.iter().chain(&outputs).map(Vec::len).sum();
        Ok(Self { axes, inputs, outputs, core_axes, is_whole })
    }

    /// The extents of a call with tensors of these names and shapes; an optional one may be absent.
    pub(crate) fn resolve<'s>(
        &self,
        tensors: impl Iterator<Item = (&'s str, Option<&'s [i64]>)>,
    ) -> Result<Resolved, Failure> {
        let mut extents = Numbers::zeros(self.axes.len());
        for (extent, axis) in extents.iter_mut().zip(&self.axes) {
            *extent = if let Axis::Fixed(extent) = axis { *extent } else { UNKNOWN };
        }
        let mut leading = Numbers::zeros(0);
        for (axes, (name, shape)) in self.inputs.iter().zip(tensors) {
            let Some(shape) = shape else { continue };
            let Some(front) = shape.len().checked_sub(axes.len()) else {
                let (expected, found) = (axes.len(), shape.len());
                return Err(Failure::new(format!(
                    "{name}: expected at least {expected} axes, found {found}; use x.reshape(...)"
                )));
            };
            let (batch, core) = shape.split_at(front);
            broadcast(&mut leading, batch).map_err(|()| {
                let leading = &*leading;
                Failure::new(format!(
                    "{name}: expected leading axes that broadcast to {leading:?}, found {batch:?}"
                ))
            })?;
            for (&axis, &found) in axes.iter().zip(core) {
                let expected = &mut extents[axis];
                if *expected == UNKNOWN {
                    *expected = found;
                }
                if *expected != found {
                    return Err(Failure::new(format!(
                        "{name}: expected {expected} along {}, found {found}",
                        self.axes[axis].name()
                    )));
                }
            }
        }
        Ok(Resolved { leading, extents })
    }

    /// The core axes of all operands, the inputs first.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// The number of core axes of each operand.
    pub(crate) fn cores(&self) -> impl Iterator<Item = usize> {
        self.operands().map(Vec::len)
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

fn operands(side: &str, known: &mut Vec<Axis>) -> Option<Vec<Vec<usize>>> {
    let inner = side.strip_prefix('(')?.strip_suffix(')')?;
    inner.split("),(").map(|list| axes(list, known)).collect()
}

fn axes(list: &str, known: &mut Vec<Axis>) -> Option<Vec<usize>> {
    let is_name = |name: &str| {
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
    };
    let parse = |text: &str| {
        let axis = match text.parse::<i64>() {
            Ok(extent) if extent >= 0 => Axis::Fixed(extent),
            Err(_) if is_name(text) => Axis::Named(text.to_owned()),
            _ => return None,
        };
        let found = known.iter().position(|one| *one == axis);
        Some(found.unwrap_or_else(|| {
            known.push(axis);
            known.len() - 1
        }))
    };
    if list.is_empty() { Some(Vec::new()) } else { list.split(',').map(parse).collect() }
}

/// Broadcasts `shape` into `into`, as NumPy does. For sizes that may be symbolic, `shapes.py` has the same rule.
fn broadcast(into: &mut Numbers, shape: &[i64]) -> Result<(), ()> {
    if let Some(missing @ 1..) = shape.len().checked_sub(into.len()) {
        let mut longer = Numbers::zeros(shape.len());
        longer[..missing].fill(1);
        longer[missing..].copy_from_slice(into);
        *into = longer;
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

    /// The leading axes, then the shapes of the outputs.
    fn resolved(signature: &str, shapes: &[&[i64]]) -> Result<Vec<Vec<i64>>, String> {
        let signature = Signature::parse(signature).map_err(|error| error.to_string())?;
        let tensors = ["x", "y"].into_iter().zip(shapes.iter().map(|shape| Some(*shape)));
        let found = signature.resolve(tensors).map_err(|error| error.to_string())?;
        let outputs = signature.outputs.iter().map(|axes| found.shape(axes).to_vec());
        Ok([found.leading.to_vec()].into_iter().chain(outputs).collect())
    }

    #[test]
    fn extents_are_matched_by_name_and_leading_axes_broadcast() {
        let found = resolved("(n,d),(m,d)->(n,m)", &[&[5, 1, 2, 3], &[4, 7, 3]]).expect("they fit");
        assert_eq!(found, [vec![5, 4], vec![5, 4, 2, 7]]);
        let found = resolved("(3),()->(3),(2,2)", &[&[3], &[6]]).expect("they fit");
        assert_eq!(found[1..], [vec![6, 3], vec![6, 2, 2]]);
        let found = resolved("(...),(...)->(...)", &[&[2, 1], &[3]]).expect("they fit");
        assert_eq!(found, [[2, 3], [2, 3]]);
        assert_eq!(resolved("(n)->", &[&[2, 3]]).expect("no outputs"), [[2]]);
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
            ["", "(n)", "n->n", "->(n)", "(n,)->(n)", "(-1)->(2)", "(2n)->(2n)", "(...,n)->(n)"]
        {
            assert!(Signature::parse(wrong).is_err(), "{wrong}");
        }
    }
}
