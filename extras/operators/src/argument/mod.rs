//! The parameters of an operator's function: which types they have, and how each gets its value.

pub(crate) mod device_call;
pub(crate) mod lines;
pub(crate) mod operand;
pub(crate) mod rows;
pub(crate) mod stream;

use std::ops::{Deref, DerefMut};

use dlbridge::{Element, Tensor, View, ViewMut};
use dlbridge_pyo3::PyTensorMut;
use pyo3::prelude::*;

use self::device_call::DeviceCall;
use self::lines::Walk;
use self::rows::{Number, Part, Read, Value, Write};
use crate::Failure;
use crate::device::{DeviceValue, DeviceView, DeviceViewMut, Strides};
use crate::kind::{Kind, Scalar};

/// An array of Python that is borrowed to be written, until this is dropped.
pub(crate) struct Writable(Box<dyn Deref<Target = Tensor>>);

impl Writable {
    fn of<T: Element>(tensor: PyTensorMut<T>) -> Self {
        Self(Box::new(tensor))
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.0
    }
}

/// An operator's function for one list of element types.
#[derive(Debug)]
pub struct Instance {
    pub(crate) parameters: &'static [Parameter],
    /// Calls the function for each row.
    pub(crate) call: Call,
    /// Queues the same work on a stream, for tensors in CUDA memory.
    pub(crate) cuda: Option<Launch>,
}

/// An operator's function over the rows of a call.
pub(crate) type Call = fn(Walk<'_, '_>) -> Result<(), Failure>;

/// An operator's function for CUDA memory.
pub type Launch = fn(&mut DeviceCall<'_, '_>) -> Result<(), Failure>;

impl Instance {
    /// An instance, as `operator!` makes it. A call of another function than the parameters say is an error.
    #[must_use]
    pub const fn new(parameters: &'static [Parameter], call: Call, cuda: Option<Launch>) -> Self {
        Self { parameters, call, cuda }
    }

    /// The tensors among the arguments, with their dtypes.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&'static str, dlbridge::DType)> {
        self.parameters.iter().filter_map(|one| Some((one.name, one.kind.input()?)))
    }
}

/// One parameter of an operator.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Borrows an array of Python to write it, for a tensor in place.
    pub(crate) borrow: Option<Borrow>,
}

impl Parameter {
    /// The parameter of a name, whose type is `A`.
    #[must_use]
    pub const fn of<A: Argument>(name: &'static str) -> Self {
        let Declared { kind, borrow } = A::DECLARED;
        Self { name, kind, borrow }
    }
}

/// A function that borrows an array of Python to write it.
type Borrow = fn(&Bound<'_, PyAny>) -> PyResult<Writable>;

/// The facts that a parameter's type determines.
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    kind: Kind,
    borrow: Option<Borrow>,
}

impl Declared {
    const fn new(kind: Kind) -> Self {
        Self { kind, borrow: None }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that an operator's function can have as a parameter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no parameter of an operator",
    note = "parameters are `View<T>`, `Option<View<T>>`, `InPlace<T>`, `f64`, `i64`, `bool` and `ViewMut<T>`, in this order",
    note = "a function that is generic over its elements says which: `<T: f32 | f64>`"
)]
pub trait Argument: sealed::Sealed {
    /// The facts that the type determines.
    const DECLARED: Declared;
    /// The type of the argument of a call.
    type Item<'v>;

    /// The argument's part of a row.
    type Row<'v>: Copy;

    /// The argument's rows, unless they are of another kind.
    fn row(part: Part<'_>) -> Option<Self::Row<'_>>;

    /// The argument in one row.
    fn get<'v>(value: Value<'v, Self::Row<'v>>) -> Self::Item<'v>;
}

/// A type that the CUDA function can have as the parameter for one of type `A`.
#[diagnostic::on_unimplemented(
    message = "a CUDA function's parameter for `{A}` cannot be a `{Self}`",
    note = "it is a `DeviceView<'_, T>` for `View<T>`, an `Option` of that for an `Option`, a `DeviceViewMut<'_, T>` for \
            `ViewMut<T>` and `InPlace<T>`, and the same for a scalar"
)]
pub trait ForArgument<'v, A>: Sized {
    /// Whether the elements must be contiguous.
    const IS_CONTIGUOUS: bool;

    /// The argument's value, unless it is of another kind.
    fn of(value: DeviceValue<'v>) -> Option<Self>;
}

impl<'v, T: Element, S: Strides> ForArgument<'v, View<'_, T>> for DeviceView<'v, T, S> {
    const IS_CONTIGUOUS: bool = S::ARE_CONTIGUOUS;

    fn of(value: DeviceValue<'v>) -> Option<Self> {
        value.view()
    }
}

impl<'v, T: Element, S: Strides> ForArgument<'v, Option<View<'_, T>>>
    for Option<DeviceView<'v, T, S>>
{
    const IS_CONTIGUOUS: bool = S::ARE_CONTIGUOUS;

    fn of(value: DeviceValue<'v>) -> Option<Self> {
        if value.is_absent() { Some(None) } else { value.view().map(Some) }
    }
}

impl<'v, T: Element, S: Strides> ForArgument<'v, InPlace<'_, T>> for DeviceViewMut<'v, T, S> {
    const IS_CONTIGUOUS: bool = S::ARE_CONTIGUOUS;

    fn of(value: DeviceValue<'v>) -> Option<Self> {
        value.view_mut()
    }
}

impl<'v, T: Element, S: Strides> ForArgument<'v, ViewMut<'_, T>> for DeviceViewMut<'v, T, S> {
    const IS_CONTIGUOUS: bool = S::ARE_CONTIGUOUS;

    fn of(value: DeviceValue<'v>) -> Option<Self> {
        value.view_mut()
    }
}

impl<T: Element> sealed::Sealed for View<'_, T> {}

impl<T: Element> Argument for View<'_, T> {
    const DECLARED: Declared = Declared::new(Kind::Input(T::DTYPE));
    type Item<'v> = View<'v, T>;
    type Row<'v> = Read<'v, T>;

    #[inline(always)]
    fn row(part: Part<'_>) -> Option<Read<'_, T>> {
        part.read()
    }

    #[inline(always)]
    fn get<'v>(value: Value<'v, Read<'v, T>>) -> View<'v, T> {
        value.view()
    }
}

impl<T: Element> sealed::Sealed for Option<View<'_, T>> {}

impl<T: Element> Argument for Option<View<'_, T>> {
    const DECLARED: Declared = Declared::new(Kind::Optional(T::DTYPE));
    type Item<'v> = Option<View<'v, T>>;
    type Row<'v> = Option<Read<'v, T>>;

    #[inline(always)]
    fn row(part: Part<'_>) -> Option<Option<Read<'_, T>>> {
        if part.is_absent() { Some(None) } else { part.read().map(Some) }
    }

    #[inline(always)]
    fn get<'v>(value: Value<'v, Option<Read<'v, T>>>) -> Option<View<'v, T>> {
        value.optional()
    }
}

/// A tensor of the caller that the function changes in place: a [`ViewMut`] whose elements have values.
#[derive(Debug)]
pub struct InPlace<'a, T: Element>(ViewMut<'a, T>);

impl<'a, T: Element> Deref for InPlace<'a, T> {
    type Target = ViewMut<'a, T>;

    fn deref(&self) -> &ViewMut<'a, T> {
        &self.0
    }
}

impl<T: Element> DerefMut for InPlace<'_, T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<T: Element> sealed::Sealed for InPlace<'_, T> {}

impl<T: Element> Argument for InPlace<'_, T> {
    const DECLARED: Declared = Declared {
        kind: Kind::InPlace(T::DTYPE),
        borrow: Some(|array| {
            let tensor: PyTensorMut<T> = array.extract()?;
            Ok(Writable::of(tensor))
        }),
    };
    type Item<'v> = InPlace<'v, T>;
    type Row<'v> = Write<'v, T>;

    #[inline(always)]
    fn row(part: Part<'_>) -> Option<Write<'_, T>> {
        part.write()
    }

    #[inline(always)]
    fn get<'v>(value: Value<'v, Write<'v, T>>) -> InPlace<'v, T> {
        InPlace(value.view_mut())
    }
}

impl<T: Element> sealed::Sealed for ViewMut<'_, T> {}

impl<T: Element> Argument for ViewMut<'_, T> {
    const DECLARED: Declared = Declared::new(Kind::Output(T::DTYPE));
    type Item<'v> = ViewMut<'v, T>;
    type Row<'v> = Write<'v, T>;

    #[inline(always)]
    fn row(part: Part<'_>) -> Option<Write<'_, T>> {
        part.write()
    }

    #[inline(always)]
    fn get<'v>(value: Value<'v, Write<'v, T>>) -> ViewMut<'v, T> {
        value.view_mut()
    }
}

macro_rules! scalars {
    ($($ty:ty: $kind:ident;)*) => {$(
        impl sealed::Sealed for $ty {}

        impl Argument for $ty {
            const DECLARED: Declared = Declared::new(Kind::$kind);
            type Item<'v> = $ty;
            type Row<'v> = Number<$ty>;

            #[inline(always)]
            fn row(part: Part<'_>) -> Option<Number<$ty>> {
                Number::<$ty>::of(part)
            }

            #[inline(always)]
            fn get(value: Value<'_, Number<$ty>>) -> $ty {
                value.number()
            }
        }

        impl ForArgument<'_, $ty> for $ty {
            const IS_CONTIGUOUS: bool = false;

            fn of(value: DeviceValue<'_>) -> Option<$ty> {
                match value.scalar() {
                    Some(Scalar::$kind(value)) => Some(value),
                    _ => None,
                }
            }
        }
    )*};
}

scalars! {
    f64: Float;
    i64: Int;
    bool: Bool;
}
