//! Declarations of operators with types that operators do not have.
#![allow(non_camel_case_types)]

mod a_slice {
    dlbridge_operators::operator! { //~ E0277
        fn takes(_x: &[f32], _out: ViewMut<f32>) as "(n)->(n)" {} //~ E0277
    }
}

mod a_result {
    dlbridge_operators::operator! { //~ E0277
        fn returns(_x: View<f32>, _out: ViewMut<f32>) -> f32 as "(n)->(n)" {
            0.0
        }
    }
}

mod no_list_of_types {
    dlbridge_operators::operator! { //~ error
        fn generic<T>(_x: View<T>, _out: ViewMut<T>) as "(n)->(n)" {}
    }
}

mod a_backward_that_is_no_operator {
    struct scale_backward;

    dlbridge_operators::operator! { //~ E0277 E0277
        fn scale(_x: View<f32>, _out: ViewMut<f32>) as "(n)->(n)", backward = scale_backward {}
    }
}

mod a_cuda_function_of_another_type {
    use dlbridge_operators::{DeviceStream, DeviceView, DeviceViewMut};

    dlbridge_operators::operator! { //~ E0277 E0277
        fn copies(_x: View<f32>, _out: ViewMut<f32>) as "(n)->(n)", cuda = copy_on_cuda {}
    }

    fn copy_on_cuda(_: &DeviceStream<'_>, _x: DeviceView<'_, f64>, _out: DeviceViewMut<'_, f32>) {}
}

fn main() {}
