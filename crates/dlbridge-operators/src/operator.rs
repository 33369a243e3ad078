//! What an operator is: the trait that [`operator!`](crate::operator!) implements, and its arguments.

use std::ops::{Deref, DerefMut};

use dlbridge::{DType, Element, Tensor, View, ViewMut};
use dlbridge_pyo3::PyTensorMut;
use pyo3::prelude::*;

use crate::raw::walk::Borrowed;
use crate::signature::Parsed;
use crate::{DeviceStream, DeviceView, DeviceViewMut, Failure};

/// An operator, as [`operator!`](crate::operator!) makes it.
pub trait Operator: 'static {
    /// The name of the function.
    const NAME: &'static str;
    /// Its documentation.
    const DOC: &'static str;
    /// The core axes of its tensors, in the notation of NumPy's generalised ufuncs.
    const SIGNATURE: &'static str;
    /// The function for each list of element types.
    const INSTANCES: &'static [Instance];
    /// The operator that computes the gradients of this one's inputs.
    const BACKWARD: Option<&'static str>;
    /// The signature, parsed once.
    #[doc(hidden)]
    fn parsed() -> &'static Parsed;
}

/// An operator's function for one list of element types.
#[derive(Debug)]
pub struct Instance {
    /// The parameters, in order.
    pub parameters: &'static [Parameter],
    /// Calls the function.
    pub call: fn(&mut [Value<'_>]) -> Result<(), Failure>,
    /// Queues the same work on a stream, for tensors in CUDA memory.
    pub cuda: Option<Launch>,
}

/// An operator's function for CUDA memory.
pub type Launch = fn(&DeviceStream<'_>, &mut [Value<'_>]) -> Result<(), Failure>;

/// One parameter of an operator.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Borrows an array of Python to write it, for a tensor in place.
    #[doc(hidden)]
    pub borrow: Option<BorrowMut>,
}

/// A function that borrows an array of Python to write it, until the result is dropped.
#[doc(hidden)]
pub type BorrowMut = fn(&Bound<'_, PyAny>) -> PyResult<Box<dyn Deref<Target = Tensor>>>;

impl Parameter {
    /// The type of an output.
    pub(crate) fn output(&self) -> Option<DType> {
        if let Kind::Output(dtype) = self.kind { Some(dtype) } else { None }
    }
}

/// The kinds of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A tensor to read: [`View`].
    Input(DType),
    /// A tensor to read that may be absent: `Option<View<T>>`.
    Optional(DType),
    /// A tensor of the caller to change: [`InPlace`].
    InPlace(DType),
    /// A tensor to fill, which the framework allocates: [`ViewMut`].
    Output(DType),
    /// A number: `f64`.
    Float,
    /// An integer: `i64`.
    Int,
    /// A truth value: `bool`.
    Bool,
}

impl Kind {
    /// Whether the caller passes a tensor for it.
    pub(crate) fn is_tensor(self) -> bool {
        matches!(self, Self::Input(_) | Self::Optional(_) | Self::InPlace(_))
    }

    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Self::Optional(_))
    }
}

/// The value of one argument during a call.
#[derive(Debug)]
pub struct Value<'a>(pub(crate) Inner<'a>);

#[derive(Debug)]
pub(crate) enum Inner<'a> {
    Input(Borrowed<'a>),
    Output(Borrowed<'a>),
    Absent,
    Scalar(Scalar),
}

/// A scalar argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar {
    Float(f64),
    Int(i64),
    Bool(bool),
}

/// A type that an operator's function can have as a parameter.
pub trait Argument {
    /// The kind of the parameter.
    const KIND: Kind;
    /// Borrows an array of Python to write it, for a tensor in place.
    #[doc(hidden)]
    const BORROW: Option<BorrowMut> = None;
    /// The type of the argument of a call.
    type Item<'v>;

    /// The argument's value.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    fn get<'v>(value: &'v mut Value<'_>) -> Result<Self::Item<'v>, Failure>;

    /// The type of the argument of a call of the CUDA function.
    type OnDevice<'v>;

    /// The argument's value for the CUDA function.
    ///
    /// # Errors
    ///
    /// If the value is of another kind.
    fn on_device<'v>(value: &'v mut Value<'_>) -> Result<Self::OnDevice<'v>, Failure>;
}

pub(crate) fn other_kind<T>(expected: &str) -> Result<T, Failure> {
    Err(Failure::new(format!("expected {expected}, found an argument of another kind")))
}

impl<T: Element> Argument for View<'_, T> {
    const KIND: Kind = Kind::Input(T::DTYPE);
    type Item<'v> = View<'v, T>;

    fn get<'v>(value: &'v mut Value<'_>) -> Result<View<'v, T>, Failure> {
        match &value.0 {
            Inner::Input(tensor) => Ok(tensor.view()?),
            _ => other_kind("a tensor to read"),
        }
    }

    type OnDevice<'v> = DeviceView<'v, T>;

    fn on_device<'v>(value: &'v mut Value<'_>) -> Result<DeviceView<'v, T>, Failure> {
        DeviceView::new(value)
    }
}

impl<T: Element> Argument for Option<View<'_, T>> {
    const KIND: Kind = Kind::Optional(T::DTYPE);
    type Item<'v> = Option<View<'v, T>>;

    fn get<'v>(value: &'v mut Value<'_>) -> Result<Option<View<'v, T>>, Failure> {
        match value.0 {
            Inner::Absent => Ok(None),
            _ => <View<'_, T> as Argument>::get(value).map(Some),
        }
    }

    type OnDevice<'v> = Option<DeviceView<'v, T>>;

    fn on_device<'v>(value: &'v mut Value<'_>) -> Result<Self::OnDevice<'v>, Failure> {
        match value.0 {
            Inner::Absent => Ok(None),
            _ => DeviceView::new(value).map(Some),
        }
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

impl<T: Element> Argument for InPlace<'_, T> {
    const KIND: Kind = Kind::InPlace(T::DTYPE);
    const BORROW: Option<BorrowMut> = Some(|array| {
        let tensor: PyTensorMut<T> = array.extract()?;
        Ok(Box::new(tensor))
    });
    type Item<'v> = InPlace<'v, T>;

    fn get<'v>(value: &'v mut Value<'_>) -> Result<InPlace<'v, T>, Failure> {
        <ViewMut<'_, T> as Argument>::get(value).map(InPlace)
    }

    type OnDevice<'v> = DeviceViewMut<'v, T>;

    fn on_device<'v>(value: &'v mut Value<'_>) -> Result<DeviceViewMut<'v, T>, Failure> {
        DeviceViewMut::new(value)
    }
}

impl<T: Element> Argument for ViewMut<'_, T> {
    const KIND: Kind = Kind::Output(T::DTYPE);
    type Item<'v> = ViewMut<'v, T>;

    fn get<'v>(value: &'v mut Value<'_>) -> Result<ViewMut<'v, T>, Failure> {
        match &mut value.0 {
            Inner::Output(tensor) => Ok(tensor.view_mut()?),
            _ => other_kind("a tensor to fill"),
        }
    }

    type OnDevice<'v> = DeviceViewMut<'v, T>;

    fn on_device<'v>(value: &'v mut Value<'_>) -> Result<DeviceViewMut<'v, T>, Failure> {
        DeviceViewMut::new(value)
    }
}

macro_rules! scalars {
    ($($ty:ty: $kind:ident, $word:literal;)*) => {$(
        impl Argument for $ty {
            const KIND: Kind = Kind::$kind;
            type Item<'v> = $ty;

            fn get(value: &mut Value<'_>) -> Result<$ty, Failure> {
                match value.0 {
                    Inner::Scalar(Scalar::$kind(value)) => Ok(value),
                    _ => other_kind($word),
                }
            }

            type OnDevice<'v> = $ty;

            fn on_device(value: &mut Value<'_>) -> Result<$ty, Failure> {
                Self::get(value)
            }
        }
    )*};
}

scalars! {
    f64: Float, "a float";
    i64: Int, "an int";
    bool: Bool, "a bool";
}

/// Makes an operator of a function.
///
/// The tensors of the caller come first: to read ([`View`]; `Option<View<T>>` if it may be absent), or to change
/// ([`InPlace`]). Then come the scalars (`f64`, `i64`, `bool`), then the tensors to fill. The signature says which axes
/// the function sees; axes in front of them are broadcast. `(...)` shows it whole arrays.
///
/// `backward = NAME` and `cuda = NAME`, in this order, name the operator of the gradients and the function for CUDA. That function's
/// parameters are the stream, then those of the operator with [`DeviceView`] for `View`, and [`DeviceViewMut`] for `ViewMut` and
/// `InPlace`. It is called once, with all axes, and not where there is no element to write.
///
/// ```
/// use dlbridge_operators::operator;
///
/// operator! {
///     /// The distance of each row of `a` to each row of `b`.
///     pub fn distances<T: f32 | f64>(a: View<T>, b: View<T>, out: ViewMut<T>) as "(n,d),(m,d)->(n,m)" {
///         for (i, x) in a.rows().enumerate() {
///             for (j, y) in b.rows().enumerate() {
///                 let square: T = x.iter().zip(y.iter()).map(|(x, y)| (x - y) * (x - y)).sum();
///                 let _ = out.set(&[i, j], square.sqrt());
///             }
///         }
///     }
/// }
/// ```
#[macro_export]
macro_rules! operator {
    (
        $(#[doc = $doc:literal])*
        $vis:vis fn $name:ident $(<$($T:ident: $($element:ty)|+),+>)?
        ($($argument:ident: $ty:ty),* $(,)?) $(-> $result:ty)? as $signature:literal
        $(, backward = $backward:ident)? $(, cuda = $cuda:path)? $body:block
    ) => {
        $(#[doc = $doc])*
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy)]
        $vis struct $name;

        const _: () = {
            #[allow(unused_imports)]
            use $crate::{InPlace, View, ViewMut};

            impl $crate::Operator for $name {
                const NAME: &'static str = stringify!($name);
                const DOC: &'static str = concat!($($doc, "\n"),*);
                const SIGNATURE: &'static str = $signature;
                const INSTANCES: &'static [$crate::Instance] = $crate::operator!(
                    @product [{}] [$($($T [$($element),+])+)?] {($($argument: $ty),*) ($($result)?) [$($cuda)?] $body}
                );
                const BACKWARD: Option<&'static str> = $crate::operator!(@backward $($backward)?);

                fn parsed() -> &'static $crate::Parsed {
                    static PARSED: $crate::Parsed = $crate::Parsed::new();
                    &PARSED
                }
            }
        };
    };
    (@backward) => { None };
    (@backward $backward:ident) => { Some(<$backward as $crate::Operator>::NAME) };
    // Each list of types, such as {{{} T f32} I i64}: those of the parameters so far, times those of the next one.
    (@product [$($types:tt)*] [] $function:tt) => {
        &[$($crate::operator!(@instance $types $function)),*]
    };
    (@product $types:tt [$T:ident $elements:tt $($rest:tt)*] $function:tt) => {
        $crate::operator!(@times [] $types $T $elements [$($rest)*] $function)
    };
    (@times $done:tt [] $T:ident $elements:tt $rest:tt $function:tt) => {
        $crate::operator!(@product $done $rest $function)
    };
    (@times [$($done:tt)*] [$types:tt $($more:tt)*] $T:ident [$($element:ty),+] $rest:tt $function:tt) => {
        $crate::operator!(
            @times [$($done)* $({$types $T $element})+] [$($more)*] $T [$($element),+] $rest $function
        )
    };
    (@types {}) => {};
    (@types {$types:tt $T:ident $element:ty}) => {
        $crate::operator!(@types $types);
        type $T = $element;
    };
    (@instance $types:tt {($($argument:ident: $ty:ty),*) ($($result:ty)?) $cuda:tt $body:block}) => {{
        $crate::operator!(@types $types);
        fn call(values: &mut [$crate::Value<'_>]) -> Result<(), $crate::Failure> {
            #[allow(unused_mut)]
            fn function($(mut $argument: $ty),*) $(-> $result)? $body
            let [$($argument),*] = values else {
                return Err($crate::Failure::new("called with another number of arguments"));
            };
            $crate::Outcome::into_result(function(
                $(<$ty as $crate::Argument>::get($argument)?),*
            ))
        }
        const PARAMETERS: &[$crate::Parameter] = &[$($crate::Parameter {
            name: stringify!($argument),
            kind: <$ty as $crate::Argument>::KIND,
            borrow: <$ty as $crate::Argument>::BORROW,
        }),*];
        $crate::Instance {
            parameters: PARAMETERS,
            call,
            cuda: $crate::operator!(@cuda $cuda ($($argument: $ty),*)),
        }
    }};
    (@cuda [] $parameters:tt) => { None };
    (@cuda [$cuda:path] ($($argument:ident: $ty:ty),*)) => {{
        fn launch(
            stream: &$crate::DeviceStream<'_>,
            values: &mut [$crate::Value<'_>],
        ) -> Result<(), $crate::Failure> {
            let [$($argument),*] = values else {
                return Err($crate::Failure::new("called with another number of arguments"));
            };
            $crate::Outcome::into_result($cuda(
                stream,
                $(<$ty as $crate::Argument>::on_device($argument)?),*
            ))
        }
        Some(launch as $crate::Launch)
    }};
}
