//! The macro that makes an operator of a function.

/// Makes an operator of a function.
///
/// The tensors of the caller come first: to read ([`View`](crate::View); `Option<View<T>>` if it may be absent), or to change
/// ([`InPlace`](crate::InPlace)). Then come the scalars (`f64`, `i64`, `bool`), then the tensors to fill. The signature says which axes
/// the function sees; axes in front of them are broadcast. With `(...)`, it gets whole arrays.
/// The function is not called where there is no element to write.
///
/// `backward = NAME` and `cuda = NAME`, in this order, name the operator of the gradients and the function for CUDA. The operator of
/// the gradients gets those of the results, then the results if it asks for them, then the tensors and scalars of this one. The CUDA function's
/// parameters are the stream, then those of the operator with [`DeviceView`](crate::DeviceView) for `View`, and [`DeviceViewMut`](crate::DeviceViewMut) for `ViewMut` and
/// `InPlace`. It is called once for all axes, with contiguous elements unless a parameter's type says [`Strided`](crate::Strided).
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
///                 let _ = out.set([i, j], square.sqrt());
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
                const NAME: &'static ::core::primitive::str = ::core::stringify!($name);
                const DOC: &'static ::core::primitive::str = ::core::concat!($($doc, "\n"),*);
                const SIGNATURE: &'static ::core::primitive::str = $signature;
                const INSTANCES: &'static [$crate::Instance] = $crate::operator!(
                    @product [{}] [$($($T [$($element),+])+)?] {($($argument: $ty),*) ($($result)?) [$($cuda)?] $body}
                );
                const BACKWARD: ::core::option::Option<$crate::Backward> =
                    $crate::operator!(@backward $name $($backward)?);

                fn definition() -> &'static $crate::Definition {
                    static DEFINITION: $crate::Definition = $crate::Definition::new();
                    &DEFINITION
                }
            }

            $crate::check_declaration::<$name>();
        };
    };
    ($(#[doc = $doc:literal])* $vis:vis fn $name:ident <$($T:ident),+ $(,)?> $($rest:tt)*) => {
        ::core::compile_error!("expected the types of each type parameter, such as `<T: f32 | f64>`");
    };
    (@backward $name:ident) => { ::core::option::Option::None };
    (@backward $name:ident $backward:ident) => {
        ::core::option::Option::Some($crate::Backward::of::<$name, $backward>(
            |__dlbridge_module| $crate::AddOperator::add_operator(__dlbridge_module, $backward),
        ))
    };
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
    (@list) => { () };
    (@list $first:ident, $($rest:tt)*) => { ($first, $crate::operator!(@list $($rest)*)) };
    (@list $first:ty, $($rest:tt)*) => { ($first, $crate::operator!(@list $($rest)*)) };
    (@types {}) => {};
    (@types {$types:tt $T:ident $element:ty}) => {
        $crate::operator!(@types $types);
        type $T = $element;
    };
    (@instance $types:tt {($($argument:ident: $ty:ty),*) ($($result:ty)?) $cuda:tt $body:block}) => {{
        $crate::operator!(@types $types);
        fn __dlbridge_call(
            __dlbridge_walk: $crate::Walk<'_, '_>,
        ) -> ::core::result::Result<(), $crate::Failure> {
            #[inline(always)]
            #[allow(unused_mut)]
            fn __dlbridge_function($(mut $argument: $ty),*) $(-> $result)? $body
            __dlbridge_walk.each::<$crate::operator!(@list $($ty,)*)>(__DLBRIDGE_PARAMETERS, |$crate::operator!(@list $($argument,)*)| {
                $crate::Outcome::into_result(__dlbridge_function($($argument),*))
            })
        }
        const __DLBRIDGE_PARAMETERS: &[$crate::Parameter] =
            &[$($crate::Parameter::of::<$ty>(::core::stringify!($argument))),*];
        $crate::Instance::new(
            __DLBRIDGE_PARAMETERS,
            __dlbridge_call,
            $crate::operator!(@cuda $cuda ($($argument: $ty),*)),
        )
    }};
    (@cuda [] $parameters:tt) => { ::core::option::Option::None };
    (@cuda [$cuda:path] ($($argument:ident: $ty:ty),*)) => {{
        fn __dlbridge_launch(
            __dlbridge_call: &mut $crate::DeviceCall<'_, '_>,
        ) -> ::core::result::Result<(), $crate::Failure> {
            // Their types are those of the function's parameters.
            $(let $argument = $crate::DeviceParameter::new();)*
            let (__dlbridge_stream, mut __dlbridge_values) =
                __dlbridge_call.arguments([$($argument.is_contiguous::<$ty>()),*])?;
            $(let $argument = $argument.take::<$ty>(::core::stringify!($argument), &mut __dlbridge_values)?;)*
            $crate::Outcome::into_result($cuda(__dlbridge_stream, $($argument),*))
        }
        ::core::option::Option::Some(__dlbridge_launch as $crate::Launch)
    }};
}
