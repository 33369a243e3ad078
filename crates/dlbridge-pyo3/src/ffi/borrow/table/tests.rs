//! What a fork leaves in the table.

use dlbridge::Tensor;
use dlbridge::ffi::descriptor;

use super::*;

static TABLE: Table = Table::new();

#[test]
fn threads_that_a_fork_ended_leave_nothing_pinned() {
    let memory = Tensor::from(Tensor::from(vec![1, 2, 3]).into_shared());
    let tensor = descriptor(&memory);
    TABLE.quiet.store(LOCKED, Ordering::SeqCst);
    TABLE.free_the_lock();
    // SAFETY: released before the tensor is dropped (F11).
    let number = unsafe { TABLE.write(tensor) }.expect("free");
    // A thread that does not exist in the child had pinned the slot.
    TABLE.slots[number as usize].fetch_or(PINNED, Ordering::SeqCst);
    TABLE.quiet.store(LOCKED, Ordering::SeqCst);
    TABLE.free_the_lock();
    // SAFETY: refused, so that no slot has the tensor (F11).
    let conflict = unsafe { TABLE.read(tensor) }.unwrap_err();
    let Conflict::Borrowed(other) = conflict else { panic!("{conflict:?}") };
    assert_eq!((other.kind, other.is_kept, &other.shape[..]), (Kind::Write, false, &[3_i64][..]));
    TABLE.slots[number as usize].fetch_or(PINNED, Ordering::SeqCst);
    TABLE.release_write(number);
    // SAFETY: released before the tensor is dropped (F11).
    let number = unsafe { TABLE.read(tensor) }.expect("free");
    TABLE.release_read(number, tensor);
    assert!(TABLE.slots.iter().all(|slot| slot.load(Ordering::SeqCst) == FREE));
}
