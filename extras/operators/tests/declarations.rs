//! Declarations of operators beside other names. Those that contradict themselves do not compile: `dlbridge-pyo3-ui` has them.

use dlbridge_operators::AddOperator;
use pyo3::prelude::*;

/// Other names than those of the prelude, beside operators. `Result` is that of the project that `cargo xtask new` makes.
#[allow(dead_code, missing_docs)]
mod hygiene {
    use dlbridge_operators::operator;
    use dlbridge_pyo3::Result;

    type Option = Result<()>;
    type Vec = u8;
    struct Some;
    struct None;
    fn call() {}
    const PARAMETERS: u8 = 0;

    operator! {
        /// A product.
        pub(super) fn multiply<T: f32 | f64>(x: View<T>, factor: f64, out: ViewMut<T>) -> Result<(), dlbridge::Error>
        as "(...)->(...)", backward = multiply_backward {
            call();
            out.zip_inplace(&x, |_, x| x * factor as T)
        }
    }

    operator! {
        /// The gradient of `multiply`.
        pub(super) fn multiply_backward<T: f32 | f64>(
            gradient: View<T>, _x: View<T>, factor: f64, out: ViewMut<T>
        ) -> Result<()> as "(...),(...)->(...)" {
            let check = || Result::<(), pyo3::PyErr>::Ok(());
            check()?;
            Ok(out.zip_inplace(&gradient, |_, x| x * factor as T)?)
        }
    }
}

#[test]
fn the_operator_of_the_gradients_is_added_as_well() {
    Python::attach(|py| {
        let module = PyModule::new(py, "multiplying").expect("a module");
        module.add_operator(hygiene::multiply).expect("added");
        assert!(module.hasattr("multiply_backward").expect("a module"));
        module.add_operator(hygiene::multiply_backward).expect("added before");
        module.add_operator(hygiene::multiply).expect("added before");
        let error = module.add("multiply", 1).and_then(|()| module.add_operator(hygiene::multiply));
        let error = error.expect_err("another one").to_string();
        assert!(error.contains("expected one multiply in multiplying"), "{error}");
    });
}
