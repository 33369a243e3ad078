//! Foreign functions that a language runtime may end by unwinding: CPython before 3.14 ends a thread that
//! waits for the GIL of an interpreter that has ended by `pthread_exit`.
//! What such a thread does belongs to the language binding (`Binding::unwound`).

use std::mem;

/// A function of C that is declared as one that does not unwind.
pub trait Unwinds: Copy {
    /// The same function, declared as one that may.
    type Unwinding;

    /// A call of the result may unwind; a call of `self` that does ends the process.
    fn unwinding(self) -> Self::Unwinding;
}

macro_rules! functions {
    ($(($($argument:ident),+))*) => {$(
        impl<$($argument,)+ R> Unwinds for unsafe extern "C" fn($($argument),+) -> R {
            type Unwinding = unsafe extern "C-unwind" fn($($argument),+) -> R;

            #[inline(always)]
            fn unwinding(self) -> Self::Unwinding {
                // SAFETY: the two ABIs are the same but for unwinding, which the new one permits (F5).
                unsafe { mem::transmute::<Self, Self::Unwinding>(self) }
            }
        }
    )*};
}

functions! { (A) (A, B) (A, B, C) (A, B, C, D) }
