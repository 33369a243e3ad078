//! Signatures of operators that do not fit their parameters, and operators of gradients that do not fit.

mod fewer_lists_than_tensors {
    dlbridge_operators::operator! { //~ E0080
        fn missing(_x: View<f32>, _y: View<f32>, _out: ViewMut<f32>) as "(n)->(n)" {}
    }
}

mod results_in_front {
    dlbridge_operators::operator! { //~ E0080
        fn unordered(_out: ViewMut<f32>, _x: View<f32>) as "(n)->(n)" {}
    }
}

mod parameters_of_two_kinds {
    use dlbridge_operators::{InPlace, View};

    trait Pick {
        type Of<'a>;
    }

    impl Pick for f32 {
        type Of<'a> = View<'a, f32>;
    }

    impl Pick for f64 {
        type Of<'a> = InPlace<'a, f64>;
    }

    dlbridge_operators::operator! { //~ E0080
        fn picks<T: f32 | f64>(_x: <T as Pick>::Of<'_>, _out: ViewMut<T>) as "(n)->(n)" {}
    }
}

mod a_misspelt_axis {
    dlbridge_operators::operator! { //~ E0080
        fn misspelt(_x: View<f32>, _out: ViewMut<f32>) as "(n)->(m)" {}
    }
}

mod no_notation {
    dlbridge_operators::operator! { //~ E0080
        fn bare(_x: View<f32>, _out: ViewMut<f32>) as "n->n" {}
    }
}

mod an_optional_first_tensor {
    dlbridge_operators::operator! { //~ E0080
        fn optional(_x: Option<View<f32>>, _out: ViewMut<f32>) as "(3)->(3)" {}
    }
}

mod nothing_to_write {
    dlbridge_operators::operator! { //~ E0080
        fn reads(_x: View<f32>) as "(n)->" {}
    }
}

mod a_backward_of_other_types {
    dlbridge_operators::operator! { //~ E0080
        fn of_two<T: f32 | f64>(_x: View<T>, _out: ViewMut<T>) as "(n)->(n)", backward = of_float32 {}
    }
    dlbridge_operators::operator! {
        fn of_float32(_gradient: View<f32>, _x: View<f32>, _of_x: ViewMut<f32>) as "(n),(n)->(n)" {}
    }
    dlbridge_operators::operator! { //~ E0080
        fn scaled(_x: View<f32>, _factor: f64, _out: ViewMut<f32>) as "(n)->(n)", backward = of_float32 {}
    }
}

mod a_backward_of_other_axes {
    dlbridge_operators::operator! { //~ E0080
        fn longer(_x: View<f32>, _out: ViewMut<f32>) as "(n,d)->(n,d)", backward = of_one {}
    }
    dlbridge_operators::operator! {
        fn of_one(_gradient: View<f32>, _x: View<f32>, _of_x: ViewMut<f32>) as "(n),(n)->(n)" {}
    }
}

mod a_gradient_too_few {
    dlbridge_operators::operator! { //~ E0080
        fn both(_x: View<f32>, _y: View<f32>, _out: ViewMut<f32>) as "(n),(n)->(n)", backward = of_x {}
    }
    dlbridge_operators::operator! {
        fn of_x(_gradient: View<f32>, _x: View<f32>, _y: View<f32>, _of_x: ViewMut<f32>)
        as "(n),(n),(n)->(n)" {}
    }
}

mod a_backward_of_no_results {
    dlbridge_operators::operator! { //~ E0080
        fn forgets(_x: View<f32>) as "(n)->(n)", backward = of_forgotten {}
    }
    dlbridge_operators::operator! {
        fn of_forgotten(_gradient: View<f32>, _x: View<f32>, _of_x: ViewMut<f32>) as "(n),(n)->(n)" {}
    }
}

mod a_backward_of_a_tensor_in_place {
    dlbridge_operators::operator! { //~ E0080
        fn changes(_x: InPlace<f32>) as "(n)->", backward = of_change {}
    }
    dlbridge_operators::operator! {
        fn of_change(_x: InPlace<f32>, _of_x: ViewMut<f32>) as "(n)->(n)" {}
    }
}

fn main() {}
