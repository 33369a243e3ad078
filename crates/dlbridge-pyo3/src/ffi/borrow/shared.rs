//! The table that all extension modules of the process share, by functions in a capsule in the dict that the interpreter
//! keeps for them, which no name of Python leads to. Each sub-interpreter has a table of its own.
//! Invariants: a capsule of this name has `Functions` that live as long as the process (F6). Before a module has the
//! table of the process, no memory has come to it from Python, nor gone there.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dlbridge::Tensor;
use dlbridge::ffi::Bytes;

use pyo3::exceptions::PyMemoryError;
use pyo3::intern;
use pyo3::prelude::*;

use super::own::{self, Functions, OWN};
use super::{Other, refusal};
use crate::error::error_of;
use crate::ffi::capsule;
use crate::ffi::versions::with_critical_section;
use crate::interpreter::module_state;

const NAME: &CStr = c"dlbridge.borrows";

/// The same name, as the key in the dict.
const KEY: &str = "dlbridge.borrows";

/// The functions of the table of the process. Set under the lock of `EARLY`.
static SHARED: OnceLock<&'static Functions> = OnceLock::new();

/// The table of the process, if it is known.
#[inline]
pub(super) fn table() -> Option<&'static Functions> {
    SHARED.get().copied()
}

/// Finds the table of the process. Called before memory comes from Python, or goes there.
///
/// # Errors
///
/// That of the interpreter's dict, or a `MemoryError`.
#[inline]
pub(super) fn find(py: Python<'_>) -> PyResult<()> {
    if table().is_some() { Ok(()) } else { find_first(py) }
}

#[cold]
fn find_first(py: Python<'_>) -> PyResult<()> {
    // Before another module can find the table.
    #[cfg(unix)]
    forks::wait_for_the_locks();
    // With a table of its own, this module would never see what others borrow.
    shared(py).map(|table| early().move_to(table))
}

/// Borrows bytes of a tensor to read, and returns the number of the borrow.
#[inline]
pub(super) fn read(bytes: &Bytes, tensor: &Tensor) -> crate::Result<usize> {
    match table() {
        Some(table) => asked(table.read, bytes, tensor),
        None => borrow_early(bytes).or_else(|table| asked(table.read, bytes, tensor)),
    }
}

/// Borrows bytes of a tensor to write, and returns the number of the borrow.
pub(super) fn write(bytes: &Bytes, tensor: &Tensor) -> crate::Result<usize> {
    let table = table().expect("an import, from which shared memory to write comes, finds it");
    asked(table.write, bytes, tensor)
}

#[inline]
fn asked(
    function: extern "C" fn(&Bytes, &mut MaybeUninit<Other>) -> usize,
    bytes: &Bytes,
    tensor: &Tensor,
) -> crate::Result<usize> {
    let mut other = MaybeUninit::uninit();
    match function(bytes, &mut other) {
        // SAFETY: filled where the number is 0 (F6).
        0 => Err(refusal(tensor, unsafe { other.assume_init() })),
        number => Ok(number),
    }
}

/// Borrows bytes to read for a tensor that Rust keeps, in place of the borrow with this number. With 0, the memory is
/// exported for the first time, so that it has no writers.
pub(super) fn keep(bytes: &Bytes, number: usize) -> usize {
    if number & EARLY != 0 {
        return number;
    }
    let table = match table() {
        Some(table) => table,
        None => match borrow_early(bytes) {
            Ok(number) => return number,
            Err(table) => table,
        },
    };
    // SAFETY: the number of a borrow that this module began and has not ended, or 0 (F6).
    unsafe { (table.keep)(bytes, number) }
}

/// Ends a borrow of bytes that begin at `start`, on any thread. The number is that of a borrow of this module, and not used
/// again.
#[inline]
pub(super) fn end(number: usize, start: usize) {
    match table() {
        // SAFETY: the number of a borrow that this module began and has not ended (F6).
        Some(table) if number & EARLY == 0 => unsafe { (table.end)(number, start) },
        _ => end_early(number),
    }
}

/// The flag of a number of this module's own: of a borrow that began before the table was known.
const EARLY: usize = 2;

/// Borrows to read that began before the table was known. A thread without the interpreter cannot look for it, and needs none:
/// what it reads is memory of Rust, which no code in Python has yet.
struct Early {
    last: usize,
    /// Their numbers and bytes; with the number in the table once that is known, else 0.
    borrows: Vec<(usize, Bytes, usize)>,
}

static BORROWS: Mutex<Early> = Mutex::new(Early { last: 0, borrows: Vec::new() });

fn early() -> MutexGuard<'static, Early> {
    BORROWS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Early {
    /// Uses a table from now on, unless another one is used already.
    fn move_to(&mut self, table: &'static Functions) {
        if SHARED.get().is_none() {
            for (_, bytes, number) in &mut self.borrows {
                // SAFETY: no borrow is replaced (F6).
                *number = unsafe { (table.keep)(bytes, 0) };
            }
            SHARED.get_or_init(|| table);
        }
    }
}

/// Borrows bytes before the table is known, or returns the table that is known by now.
#[cold]
fn borrow_early(bytes: &Bytes) -> Result<usize, &'static Functions> {
    #[cfg(unix)]
    forks::wait_for_the_locks();
    let mut early = early();
    if let Some(table) = table() {
        return Err(table);
    }
    early.last += 1;
    let number = early.last << 2 | EARLY;
    early.borrows.push((number, *bytes, 0));
    Ok(number)
}

#[cold]
fn end_early(number: usize) {
    let found = {
        let borrows = &mut early().borrows;
        let place = borrows.iter().position(|borrow| borrow.0 == number);
        place.map(|place| borrows.swap_remove(place))
    };
    if let (Some((_, bytes, number @ 1..)), Some(table)) = (found, table()) {
        // SAFETY: the number of a borrow that this module began and has now given up (F6).
        unsafe { (table.end)(number, bytes.start) };
    }
}

/// A fork waits until no thread has a lock, so that the child has free ones.
#[cfg(unix)]
mod forks {
    use std::cell::RefCell;
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::early;
    use super::own;

    type Handler = Option<unsafe extern "C" fn()>;

    unsafe extern "C" {
        /// POSIX, as `pthread.h` declares it.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    type Locks = (super::MutexGuard<'static, super::Early>, own::Tree);

    thread_local! {
        /// What the thread that forks has locked.
        static LOCKS: RefCell<Option<Locks>> = const { RefCell::new(None) };
    }

    /// No `Once`: a child that is forked in its first call would wait for ever.
    pub(super) fn wait_for_the_locks() {
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        if !IS_DONE.load(Ordering::Acquire) {
            register();
            IS_DONE.store(true, Ordering::Release);
        }
    }

    /// Registers the functions below. Each fork calls them as often as they were registered, maybe by two threads.
    pub(super) fn register() {
        // SAFETY: functions that stay loaded. Without memory for them, a child may find a lock held, and
        // waits (F5).
        let _ = unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }

    unsafe extern "C" fn prepare() {
        let _ = LOCKS.try_with(|locks| {
            locks.borrow_mut().get_or_insert_with(|| (early(), own::tree()));
        });
    }

    unsafe extern "C" fn parent() {
        let _ = LOCKS.try_with(|locks| locks.take());
    }

    /// Other threads do not exist in the child.
    unsafe extern "C" fn child() {
        own::forget_threads();
        // SAFETY: called where a fork returns (F5).
        unsafe { parent() };
    }
}

/// The table of the first extension module that asked, in the dict of this interpreter.
fn shared(py: Python<'_>) -> PyResult<&'static Functions> {
    let own = std::ptr::from_ref(&OWN).cast_mut().cast();
    // SAFETY: a pointer that is not null to static functions, a static name, and nothing to release (F2).
    let own = unsafe { capsule::make(py, own, NAME, None) }?;
    // Python makes the dict without a lock: two threads that ask first would have one each. All modules of this
    // library lock the same object.
    let names = with_critical_section(&py.None().into_bound(py), || module_state(py));
    let names = names.ok_or_else(|| {
        error_of::<PyMemoryError>("expected memory for the table of what Rust borrows, found none")
    })?;
    let found = names.call_method1(intern!(py, "setdefault"), (intern!(py, KEY), own))?;
    // Another object under the name is one for all modules.
    Ok(match capsule::content(found.as_borrowed(), NAME) {
        // SAFETY: functions that are static in the module that made the capsule, which is never
        // unloaded (F6).
        Some(table) => unsafe { table.cast::<Functions>().as_ref() },
        None => &OWN,
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_fork_waits_for_the_locks_and_its_child_has_free_ones() {
        use std::ffi::{c_int, c_uint};
        use std::thread;
        use std::time::Duration;

        unsafe extern "C" {
            safe fn fork() -> c_int;
            safe fn alarm(seconds: c_uint) -> c_uint;
            safe fn _exit(status: c_int) -> !;
            safe fn waitpid(process: c_int, status: &mut c_int, options: c_int) -> c_int;
        }
        forks::wait_for_the_locks();
        // As two threads do that call it first.
        forks::register();
        let (locked, is_locked) = std::sync::mpsc::channel();
        let holder = thread::spawn(move || {
            let _locks = (early(), own::tree());
            locked.send(()).expect("received");
            thread::sleep(Duration::from_millis(50));
        });
        is_locked.recv().expect("sent");
        let child = fork();
        if child == 0 {
            alarm(20);
            drop((early(), own::tree()));
            _exit(0);
        }
        let mut status = -1;
        waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "ended by a signal: a lock was held");
        holder.join().expect("no panic");
    }

    #[test]
    fn the_first_module_gives_its_table_to_all_others() {
        Python::attach(|py| {
            let first = shared(py).expect("a table");
            assert!(ptr::eq(first, shared(py).expect("the same")));
            // A module that is loaded afterwards.
            let names = module_state(py).expect("a dict");
            let capsule = names.get_item(KEY).expect("set");
            let table = capsule::content(capsule.as_borrowed(), NAME).expect("a capsule");
            assert!(ptr::eq(table.as_ptr().cast::<Functions>(), first));
            // Something else under the name is no table; each module then has its own.
            names.set_item(KEY, 1).expect("a dict");
            assert!(ptr::eq(shared(py).expect("its own"), &OWN));
            names.set_item(KEY, capsule).expect("a dict");
        });
    }
}
