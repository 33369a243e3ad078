//! The trait that [`operator!`](crate::operator!) implements. The compiler checks the declaration; the first use does so
//! again, because the trait can be implemented by hand.
//! Invariant: the instances of a `Checked` have the same parameters but for the dtypes, as many as the signature says.

use std::any::TypeId;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock};

use pyo3::prelude::*;

use crate::Failure;
use crate::argument::{Instance, Parameter};
use crate::declaration::Declaration;
use crate::signature::Signature;

/// An operator, as [`operator!`](crate::operator!) makes it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no operator",
    note = "`operator!` makes one, also for `backward = ...`"
)]
pub trait Operator: 'static {
    /// The name of the function.
    #[doc(hidden)]
    const NAME: &'static str;
    /// Its documentation.
    #[doc(hidden)]
    const DOC: &'static str;
    /// The core axes of its tensors, in the notation of NumPy's generalised ufuncs.
    #[doc(hidden)]
    const SIGNATURE: &'static str;
    /// The function for each list of element types.
    #[doc(hidden)]
    const INSTANCES: &'static [Instance];
    /// The operator that computes the gradients of this one's inputs.
    #[doc(hidden)]
    const BACKWARD: Option<Backward>;
    /// Where the checked operator is kept.
    #[doc(hidden)]
    fn definition() -> &'static Definition;
}

/// The operator that computes the gradients of another one's inputs.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Backward {
    /// The type of the other one.
    operator: fn() -> TypeId,
    pub(crate) checked: fn() -> Result<&'static Checked, Failure>,
    /// Adds it to a module that has the other one.
    pub(crate) add: fn(&Bound<'_, PyModule>) -> PyResult<()>,
    /// Whether it asks for the results.
    pub(crate) with_results: bool,
}

impl Backward {
    /// The operator `B`, which computes the gradients of `O`, and the function that adds it to a module.
    ///
    /// # Panics
    ///
    /// If it does not: when it is compiled, in a constant.
    #[must_use]
    pub const fn of<O: Operator, B: Operator>(
        add: fn(&Bound<'_, PyModule>) -> PyResult<()>,
    ) -> Self {
        let Some(with_results) = declaration::<O>().is_differentiated_by(declaration::<B>()) else {
            panic!(
                "expected a backward that gets the gradients of the results, the results if it needs them, then the \
                 arguments of the function, of the same types and axes, and fills the gradient of each tensor of \
                 floating-point numbers"
            );
        };
        Self { operator: TypeId::of::<O>, checked: checked::<B>, add, with_results }
    }
}

const fn declaration<O: Operator>() -> Declaration {
    Declaration::new(O::SIGNATURE, O::INSTANCES)
}

/// Checks a declaration.
///
/// # Panics
///
/// If it contradicts itself: when it is compiled, in a constant.
#[doc(hidden)]
pub const fn check_declaration<O: Operator>() {
    if let Some(problem) = declaration::<O>().problem(O::BACKWARD.is_some()) {
        panic!("{}", problem);
    }
}

/// An operator that is checked at its first use.
#[doc(hidden)]
#[derive(Debug)]
pub struct Definition(OnceLock<Result<Checked, Failure>>);

impl Definition {
    /// An operator that is not checked yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }
}

/// An operator whose declaration is consistent.
#[derive(Debug)]
pub(crate) struct Checked {
    operator: TypeId,
    pub(crate) name: &'static str,
    declaration: Declaration,
    pub(crate) signature: Signature,
    /// The first one is there.
    pub(crate) instances: &'static [Instance],
    /// The parameters, whose names and kinds are the same for all instances but for the dtypes.
    pub(crate) parameters: &'static [Parameter],
    /// The number of arguments: tensors, then scalars.
    pub(crate) arguments: usize,
    /// The modules whose operator PyTorch has, and whether its autograd needs no Python for tensors without gradients.
    pub(crate) in_torch: Mutex<Vec<(String, bool)>>,
    /// Set where the operator has a kernel for PyTorch's autograd.
    pub(crate) recording: OnceLock<Recording>,
}

/// How PyTorch's autograd calls an operator.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The operator's name in PyTorch.
    pub(crate) name: CString,
    /// Makes the functions of Python when one is needed first: that which records a call, and the operator.
    pub(crate) make: Py<PyAny>,
    pub(crate) functions: OnceLock<(Py<PyAny>, Py<PyAny>)>,
}

/// The operator, checked.
///
/// # Errors
///
/// If its declaration contradicts itself.
pub(crate) fn checked<O: Operator>() -> Result<&'static Checked, Failure> {
    let found = O::definition().0.get_or_init(|| check::<O>());
    let found = found.as_ref().map_err(Clone::clone)?;
    // An implementation by hand can return another one's.
    if found.operator == TypeId::of::<O>() {
        Ok(found)
    } else {
        Err(Failure::new("expected an operator that `operator!` has made"))
    }
}

impl Checked {
    /// The error, with the name of the operator in front.
    pub(crate) fn named(&self, error: Failure) -> Failure {
        named(self.name, &error)
    }

    /// Whether a caller may leave out an argument: it is optional, as are all behind it.
    pub(crate) fn has_default(&self, at: usize) -> bool {
        self.parameters[at..self.arguments].iter().all(|one| one.kind.is_optional())
    }

    /// For each tensor, whether its elements are floating-point numbers in an instance, which have gradients.
    pub(crate) fn floating(&self) -> Vec<bool> {
        let inputs = 0..self.signature.inputs.len();
        inputs.map(|input| self.declaration.is_floating(input)).collect()
    }

    /// Whether there is a CUDA function; `advice` is the call for a caller of an operator that has none.
    pub(crate) fn check_cuda(&self, advice: &str) -> Result<(), Failure> {
        match self.instances.first().and_then(|instance| instance.cuda) {
            Some(_) => Ok(()),
            None => Err(self.named(Failure::new(format!(
                "expected memory on cpu, found memory on cuda; pass {advice}, or declare `cuda = ...` in Rust"
            )))),
        }
    }
}

pub(crate) fn named(name: &str, error: &Failure) -> Failure {
    Failure::new(format!("{name}: {error}"))
}

fn check<O: Operator>() -> Result<Checked, Failure> {
    let signature = Signature::parse(O::SIGNATURE).map_err(|error| named(O::NAME, &error))?;
    let declaration = declaration::<O>();
    if let Some(problem) = declaration.problem(O::BACKWARD.is_some()) {
        let text = O::SIGNATURE;
        return Err(named(O::NAME, &Failure::new(format!("{problem}; the signature is {text}"))));
    }
    if O::BACKWARD.is_some_and(|backward| (backward.operator)() != TypeId::of::<O>()) {
        return Err(named(
            O::NAME,
            &Failure::new("expected a backward that `operator!` has named"),
        ));
    }
    let parameters = O::INSTANCES.first().map_or(&[][..], |instance| instance.parameters);
    let arguments = parameters.iter().filter(|one| one.kind.output().is_none());
    Ok(Checked {
        operator: TypeId::of::<O>(),
        name: O::NAME,
        arguments: arguments.count(),
        declaration,
        signature,
        instances: O::INSTANCES,
        parameters,
        in_torch: Mutex::default(),
        recording: OnceLock::new(),
    })
}
