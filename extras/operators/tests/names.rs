//! An operator may have any name, also one that the macro could have used for itself.

use dlbridge_operators::{Operator, operator};

operator! {
    /// Counts its elements.
    fn rows(x: View<f32>, out: ViewMut<f32>) as "(n)->(n)", backward = module {
        out.fill(x.len() as f32);
    }
}

operator! {
    /// The gradient of `rows`.
    fn module(gradient: View<f32>, _x: View<f32>, out: ViewMut<f32>) as "(n),(n)->(n)" {
        out.fill(0.0 * gradient.len() as f32);
    }
}

#[test]
fn an_operator_is_named_as_a_variable_of_the_macro() {
    fn name_of<O: Operator>(_: O) -> &'static str {
        O::NAME
    }
    assert_eq!((name_of(rows), name_of(module)), ("rows", "module"));
}
