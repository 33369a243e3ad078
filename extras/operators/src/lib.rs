//! One Rust function as an operator of PyTorch and JAX, a universal function of NumPy, and a function of every other array.
//!
//! A plain Python function stops `torch.compile`, `jax.jit`, `vmap` and gradients. An operator does not: both
//! frameworks know its result's shape, call it without Python, and differentiate it.
//!
//! ```
//! use dlbridge_operators::{AddOperator, operator};
//! use pyo3::prelude::*;
//!
//! operator! {
//!     /// The squared distance of each row of `a` to each row of `b`.
//!     pub fn distances<T: f32 | f64>(a: View<T>, b: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
//!     as "(n,d),(m,d)->(n,m)" {
//!         for (i, x) in a.rows().enumerate() {
//!             for (j, y) in b.rows().enumerate() {
//!                 out.set([i, j], x.iter().zip(y.iter()).map(|(x, y)| (x - y) * (x - y)).sum())?;
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! #[pymodule]
//! fn my_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
//!     module.add_operator(distances)
//! }
//! ```
//!
//! | in Python | is |
//! | --- | --- |
//! | `my_operators.distances(x, y)` | a new array of the caller's type, of any framework |
//! | `my_operators.distances.torch`, `torch.ops.my_operators.distances` | an operator of PyTorch 2.10 or newer, for `torch.compile`, `torch.export`, `vmap` and gradients |
//! | `my_operators.distances.jax` | a function of JAX, for `jit`, `vmap`, `grad` and `shard_map`: an XLA custom call |
//! | `my_operators.distances.ufunc` | a universal function of NumPy, with `out=` and `axes=` |
//!
//! - **Tensors to read** are a [`View`], of any strides, or an `Option` of one; **tensors to change** are an
//!   [`InPlace`]; **tensors to fill** are a [`ViewMut`], which the framework allocates. **Scalars**, `f64`, `i64` and
//!   `bool`, stand before the tensors to fill.
//! - **The signature** is that of NumPy's generalised ufuncs. It names the axes that the function sees; axes in
//!   front of them are broadcast, and the function is called for each of their indices. So every operator works on
//!   batches, and the result's shape follows, also for the symbolic sizes of a compiler. With `(...)`, the function
//!   gets whole arrays, broadcast to one shape.
//! - **Gradients** are computed by another operator, `backward = NAME` behind the signature: from the gradients of
//!   the results, the results if it asks for them, the inputs and the scalars, it fills the gradients of the inputs. Those
//!   of a broadcast input are summed.
//! - **Errors** of a `Result`, and panics, are exceptions of the framework.
//! - **Nothing is linked**: PyTorch's functions are found in the loaded library (its stable C shim), NumPy's in its
//!   table, and XLA passes its own. With an older PyTorch, the function works on tensors that need no gradient, without the operator.
//! - **CUDA**: `cuda = NAME` names a function that queues the same work on the framework's stream ([`DeviceStream`]), for
//!   tensors of PyTorch and JAX. It gets device memory ([`DeviceView`], [`DeviceViewMut`]) instead of views. The feature
//!   `cudarc-0_19` makes the stream one of cudarc.
//!
//! XLA calls handlers on its own threads, NumPy its loops without the GIL. The crate does not compile with `panic = "abort"`,
//! because errors pass through PyTorch's frames as C++'s exceptions.

// Errors pass through the frames of a kernel as C++'s exceptions, and a panic becomes one.
#[cfg(not(panic = "unwind"))]
compile_error!(
    "dlbridge-operators needs `panic = \"unwind\"`: with `abort`, each error of an operator would end the process"
);

mod argument;
mod call;
mod declaration;
mod definition;
mod device;
mod failure;
mod few;
mod kind;
mod operator;
mod python;
mod raw;
mod signature;

pub use argument::InPlace;
#[doc(hidden)]
pub use argument::device_call::{DeviceCall, Parameter as DeviceParameter};
#[doc(hidden)]
pub use argument::lines::Walk;
pub use argument::stream::DeviceStream;
#[doc(hidden)]
pub use argument::{Argument, ForArgument, Instance, Launch, Parameter};
pub use definition::Operator;
#[doc(hidden)]
pub use definition::{Backward, Definition, check_declaration};
pub use device::{Contiguous, DeviceView, DeviceViewMut, Strided, Strides};
#[doc(hidden)]
pub use device::{DeviceValue, DeviceValues};
pub use dlbridge::{View, ViewMut};
pub use dlbridge_pyo3::attach;
pub use failure::Failure;
#[doc(hidden)]
pub use failure::Outcome;
pub use python::AddOperator;
