//! The checks of an operator's declaration, which run when the operator is compiled.
//! Invariant: a signature without a problem is one that `Signature::parse` accepts.

use dlbridge::DType;

use crate::argument::{Instance, Parameter};
use crate::kind::Kind;

/// An operator's declaration of its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declaration {
    signature: &'static [u8],
    instances: &'static [Instance],
}

/// An axis of a signature: the list that it is in, and where its name or extent is.
#[derive(Clone, Copy)]
struct Word {
    list: usize,
    start: usize,
    end: usize,
}

impl Declaration {
    pub(crate) const fn new(signature: &'static str, instances: &'static [Instance]) -> Self {
        Self { signature: signature.as_bytes(), instances }
    }

    /// The problem of the declaration, except for the operator of the gradients.
    pub(crate) const fn problem(self, has_backward: bool) -> Option<&'static str> {
        let Some([inputs, outputs]) = lists(self.signature) else {
            return Some("expected a signature such as (n,d),(m,d)->(n,m)");
        };
        if !self.has_alike_instances() {
            return Some(
                "expected the same parameters for every list of element types, but for these types",
            );
        }
        let parameters = self.parameters();
        if !are_in_order(parameters)
            || !matches!(counts(parameters), [i, _, o] if i == inputs && o == outputs)
        {
            return Some(
                "expected tensors, then scalars, then tensors to fill, as many as the signature has",
            );
        }
        if !matches!(parameters, [first, ..] if first.kind.is_tensor() && !first.kind.is_optional())
        {
            return Some("expected a first tensor that is not optional");
        }
        let (mut is_written, mut at) = (false, 0);
        while at < parameters.len() {
            is_written |= parameters[at].kind.is_in_place();
            at += 1;
        }
        if is_written && has_backward {
            return Some("expected no `backward`, because a tensor changes in place");
        }
        if !is_written && outputs == 0 {
            return Some("expected a tensor to fill, or to change in place");
        }
        if !self.has_known_results(inputs) {
            return Some("expected results whose axes are those of tensors that are not optional");
        }
        None
    }

    /// Whether `other` computes the gradients, and then whether it asks for the results as well.
    /// A declaration with a problem is left to the message about that.
    pub(crate) const fn is_differentiated_by(self, other: Self) -> Option<bool> {
        if self.problem(false).is_some() || other.problem(false).is_some() {
            return Some(false);
        }
        let (Some([inputs, outputs]), Some([others, filled])) =
            (lists(self.signature), lists(other.signature))
        else {
            return None;
        };
        let with_results = others == 2 * outputs + inputs;
        let results = if with_results { 2 * outputs } else { outputs };
        if others != results + inputs || is_whole(self.signature) != is_whole(other.signature) {
            return None;
        }
        let mut at = 0;
        while at < others {
            let own = if at < results { inputs + at % outputs } else { at - results };
            if axes(other.signature, at) != axes(self.signature, own) {
                return None;
            }
            at += 1;
        }
        let (mut input, mut gradients) = (0, 0);
        while input < inputs {
            if self.is_floating(input) {
                let own = axes(self.signature, input);
                if gradients == filled || axes(other.signature, others + gradients) != own {
                    return None;
                }
                gradients += 1;
            }
            input += 1;
        }
        let mut at = 0;
        while at < self.instances.len() {
            if !other.takes(self.instances[at].parameters, results) {
                return None;
            }
            at += 1;
        }
        if gradients == filled { Some(with_results) } else { None }
    }

    /// Whether the elements of a tensor are floating-point numbers in an instance, which have gradients.
    pub(crate) const fn is_floating(self, input: usize) -> bool {
        let mut at = 0;
        while at < self.instances.len() {
            let parameters = self.instances[at].parameters;
            if input < parameters.len() && has_gradient(parameters[input].kind.dtype()) {
                return true;
            }
            at += 1;
        }
        false
    }

    const fn parameters(self) -> &'static [Parameter] {
        match self.instances {
            [first, ..] => first.parameters,
            [] => &[],
        }
    }

    /// Whether the instances have parameters of the same names and kinds.
    const fn has_alike_instances(self) -> bool {
        let parameters = self.parameters();
        let mut at = 0;
        while at < self.instances.len() {
            let one = &self.instances[at];
            if one.parameters.len() != parameters.len()
                || one.cuda.is_some() != self.instances[0].cuda.is_some()
            {
                return false;
            }
            let mut parameter = 0;
            while parameter < parameters.len() {
                let (found, first) = (&one.parameters[parameter], &parameters[parameter]);
                let names = (found.name.as_bytes(), first.name.as_bytes());
                if !is_same(names.0, names.1) || !found.kind.is_like(first.kind) {
                    return false;
                }
                parameter += 1;
            }
            at += 1;
        }
        true
    }

    /// Whether each axis of a result has an extent, or the name of an axis of a tensor that is always there.
    const fn has_known_results(self, inputs: usize) -> bool {
        let mut at = 0;
        while let Some(result) = word(self.signature, at) {
            if result.list >= inputs
                && !self.signature[result.start].is_ascii_digit()
                && !self.has_axis(self.text(result), inputs)
            {
                return false;
            }
            at += 1;
        }
        true
    }

    /// Whether a tensor that is always there has an axis of this name.
    const fn has_axis(self, name: &[u8], inputs: usize) -> bool {
        let mut at = 0;
        while let Some(known) = word(self.signature, at) {
            if known.list < inputs
                && !self.parameters()[known.list].kind.is_optional()
                && is_same(self.text(known), name)
            {
                return true;
            }
            at += 1;
        }
        false
    }

    const fn text(self, word: Word) -> &'static [u8] {
        self.signature.split_at(word.end).0.split_at(word.start).1
    }

    /// Whether an instance gets the gradients of the results, the results if there are twice as many, then the
    /// arguments.
    const fn takes(self, parameters: &[Parameter], results: usize) -> bool {
        let mut at = 0;
        while at < self.instances.len() {
            if is_for(self.instances[at].parameters, parameters, results) {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// Whether the arguments of `found` are `results` tensors of the dtypes that `own` fills, then the arguments of `own`.
const fn is_for(found: &[Parameter], own: &[Parameter], results: usize) -> bool {
    let ([tensors, scalars, filled], [others, more, _]) = (counts(own), counts(found));
    let arguments = tensors + scalars;
    if others + more != results + arguments {
        return false;
    }
    let mut at = 0;
    while at < results + arguments {
        let wanted = if at < results {
            Kind::Input(own[arguments + at % filled].kind.dtype())
        } else {
            own[at - results].kind
        };
        if !found[at].kind.is_like(wanted) || !is_one(found[at].kind.dtype(), wanted.dtype()) {
            return false;
        }
        at += 1;
    }
    true
}

/// The number of tensors, of scalars, and of tensors to fill.
const fn counts(parameters: &[Parameter]) -> [usize; 3] {
    let (mut counts, mut at) = ([0; 3], 0);
    while at < parameters.len() {
        counts[parameters[at].kind.group()] += 1;
        at += 1;
    }
    counts
}

const fn are_in_order(parameters: &[Parameter]) -> bool {
    let mut at = 1;
    while at < parameters.len() {
        if parameters[at].kind.group() < parameters[at - 1].kind.group() {
            return false;
        }
        at += 1;
    }
    true
}

const fn has_gradient(dtype: DType) -> bool {
    let Some(word) = dtype.code.name() else { return false };
    matches!(word.as_bytes(), [.., b'f', b'l', b'o', b'a', b't'] | b"complex")
}

const fn is_one(one: DType, other: DType) -> bool {
    one.code.0 == other.code.0 && one.bits == other.bits && one.lanes == other.lanes
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

const fn is_in_word(byte: u8) -> bool {
    is_letter(byte) || byte.is_ascii_digit()
}

/// Whether the function sees whole arrays: `(...)`.
const fn is_whole(signature: &[u8]) -> bool {
    let mut at = 0;
    while at < signature.len() {
        if signature[at] == b'.' {
            return true;
        }
        at += 1;
    }
    false
}

/// The number of axes of a list.
const fn axes(signature: &[u8], list: usize) -> usize {
    let (mut axes, mut at) = (0, 0);
    while let Some(word) = word(signature, at) {
        if word.list == list {
            axes += 1;
        }
        at += 1;
    }
    axes
}

/// An axis, in the order in which they are written.
const fn word(signature: &[u8], mut nth: usize) -> Option<Word> {
    let (mut lists, mut at) = (0, 0);
    while at < signature.len() {
        if signature[at] == b'(' {
            lists += 1;
        }
        let start = at;
        while at < signature.len() && is_in_word(signature[at]) {
            at += 1;
        }
        if at == start {
            at += 1;
        } else if nth == 0 && lists > 0 {
            return Some(Word { list: lists - 1, start, end: at });
        } else {
            nth -= 1;
        }
    }
    None
}

/// The number of lists on each side, of a well-formed signature.
const fn lists(signature: &[u8]) -> Option<[usize; 2]> {
    #[derive(Clone, Copy)]
    enum Next {
        List,
        ListOrEnd,
        AxisOrClose,
        Axis,
        CommaOrClose,
        Close,
        CommaOrArrow,
    }
    let (mut lists, mut side, mut at) = ([0; 2], 0, 0);
    let (mut whole, mut named) = (false, false);
    let mut next = Next::List;
    while at < signature.len() {
        let byte = signature[at];
        let start = at;
        at += 1;
        next = match (next, byte) {
            (_, b' ') => next,
            (Next::List | Next::ListOrEnd, b'(') => {
                lists[side] += 1;
                Next::AxisOrClose
            }
            (Next::AxisOrClose, b')') => {
                named = true;
                Next::CommaOrArrow
            }
            (Next::CommaOrClose | Next::Close, b')') => Next::CommaOrArrow,
            (Next::CommaOrClose, b',') => Next::Axis,
            (Next::CommaOrArrow, b',') => Next::List,
            (Next::AxisOrClose, b'.') => {
                if !matches!(signature.split_at(start).1, [_, b'.', b'.', ..]) {
                    return None;
                }
                whole = true;
                at += 2;
                Next::Close
            }
            (Next::AxisOrClose | Next::Axis, _) if is_in_word(byte) => {
                let is_extent = !is_letter(byte);
                while at < signature.len() && is_in_word(signature[at]) {
                    if is_extent && is_letter(signature[at]) {
                        return None;
                    }
                    at += 1;
                }
                // An extent is an i64.
                if is_extent && at - start > 18 {
                    return None;
                }
                named = true;
                Next::CommaOrClose
            }
            (Next::CommaOrArrow, b'-')
                if side == 0 && at < signature.len() && signature[at] == b'>' =>
            {
                at += 1;
                side = 1;
                Next::ListOrEnd
            }
            _ => return None,
        };
    }
    let is_complete = side == 1 && matches!(next, Next::ListOrEnd | Next::CommaOrArrow);
    if is_complete && !(whole && named) { Some(lists) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read_as_it_is_parsed() {
        for (signature, expected) in [
            ("(n,d),(m,d)->(n,m)", Some([2, 1])),
            ("(3),()->(3),(2,2)", Some([2, 2])),
            ("(...),(...)->(...)", Some([2, 1])),
            (" ( n ) -> ", Some([1, 0])),
            ("", None),
            ("(n)", None),
            ("n->n", None),
            ("->(n)", None),
            ("(n,)->(n)", None),
            ("(-1)->(2)", None),
            ("(2n)->(2n)", None),
            ("(...,n)->(n)", None),
            ("(...)->(n)", None),
            ("(...)->()", None),
            ("(..)->(..)", None),
            ("(.", None),
            ("(n)->(n),", None),
            ("(n)->(n)->(n)", None),
            ("(9999999999999999999)->()", None),
        ] {
            assert_eq!(lists(signature.as_bytes()), expected, "{signature}");
            let parsed = crate::signature::Signature::parse(signature);
            assert_eq!(parsed.is_ok(), expected.is_some(), "{signature}");
        }
    }
}
