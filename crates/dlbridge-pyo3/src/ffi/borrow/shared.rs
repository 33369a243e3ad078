//! The table that all extension modules of the process share, by a capsule in the dict that the main interpreter
//! keeps for them, which no name of Python leads to.
//! Invariants: a capsule of this name has a `Table` that lives as long as the process (F6). Before a module has the
//! table of the process, no memory has come to it from Python, nor gone there.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, thread};

use dlbridge::Tensor;
use dlbridge::ffi::Bytes;

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;

use super::ordered::{NODE, Node, Ordered};
use super::slot::Slot;
use super::table::Table;
use super::{Kind, refusal};
use crate::error::error_of;
use crate::ffi::capsule;
use crate::ffi::versions::with_critical_section;
use crate::interpreter::{in_main, is_main, module_state};

/// The name says the layout of `Table` and how its words are used. A change of either changes the number here, and
/// then two versions in a process have a table each.
const NAME: &CStr = c"dlbridge.borrows.5";

/// The same name, as the key in the dict.
const KEY: &str = match NAME.to_str() {
    Ok(name) => name,
    Err(_) => panic!("the name is ASCII"),
};

/// The layout of version 5. Whoever changes a number here changes `NAME`.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(is(&Table::LAYOUT, &[16_448, 0, 8, 16, 24, 32, 64]));
    assert!(is(&Ordered::LAYOUT, &[24, 0, 8, 16]));
    assert!(is(&Slot::LAYOUT, &[64, 0, 8, 16, 24]));
    assert!(is(&NODE, &[120, 0, 48, 56, 57, 64, 72, 80, 88, 104, 112]));
    assert!(is(&Bytes::LAYOUT, &[48, 0, 8, 16, 32, 0, 8]));
    assert!(is(&[Kind::Read as usize, Kind::Write as usize], &[0, 1]));
};

#[cfg(target_pointer_width = "64")]
const fn is(found: &[usize], expected: &[usize]) -> bool {
    let mut at = 0;
    while at < expected.len() && found[at] == expected[at] {
        at += 1;
    }
    at == expected.len() && at == found.len()
}

/// The table of this extension module, which is used if no other module was first.
static OWN: Table = Table::new();

static MODULE: Module = Module::new(&OWN);

/// The tables of an extension module.
struct Module {
    own: &'static Table,
    /// The table of the process. It is set under the lock of `own`, and takes the borrows from the tree of `own`.
    shared: OnceLock<&'static Table>,
    /// The number of borrows before.
    early: AtomicU64,
}

/// The table of the process, if it is known.
#[inline]
pub(super) fn table() -> Option<&'static Table> {
    MODULE.shared.get().copied()
}

/// The table of the process. Called before memory comes from Python, or goes there.
///
/// # Errors
///
/// That of the interpreter's dict, or a `MemoryError`.
#[inline]
pub(super) fn find(py: Python<'_>) -> PyResult<&'static Table> {
    match table() {
        Some(table) => Ok(table),
        None => find_first(py),
    }
}

#[cold]
fn find_first(py: Python<'_>) -> PyResult<&'static Table> {
    // Before another module can find the table.
    #[cfg(unix)]
    forks::wait_for_the_lock();
    // Each interpreter has a dict of its own, and one process would have several tables.
    let found = if is_main(py) {
        shared(py)
    } else {
        // The exception itself stays in its interpreter.
        let found = in_main(py, |py| Some(shared(py).map_err(|error| error.to_string())));
        found.ok_or_else(no_memory)?.map_err(error_of::<PyRuntimeError>)
    };
    // With a table of its own, this module would never see what others borrow.
    found.map(|table| MODULE.share(table))
}

#[cold]
fn no_memory() -> PyErr {
    error_of::<PyMemoryError>(
        "expected memory for the table of what Rust borrows, and in a sub-interpreter a thread, found none",
    )
}

/// Borrows bytes of a tensor to read, and returns the number of the borrow, with its table if that is known.
#[inline(always)]
pub(super) fn read<const STAYS: bool>(
    bytes: &Bytes,
    tensor: &Tensor,
) -> crate::Result<(u64, &'static Table)> {
    let found = match table() {
        Some(table) => table.read::<STAYS>(bytes).map(|number| (number, table)),
        None => match MODULE.borrow_early(Node::new(bytes, Kind::Read, false)) {
            Ok(number) => Ok((number, &OWN)),
            Err(table) => table.read::<true>(bytes).map(|number| (number, table)),
        },
    };
    found.map_err(|other| refusal(tensor, other))
}

/// Borrows bytes of a tensor to write, and returns the number of the borrow.
pub(super) fn write(bytes: &Bytes, tensor: &Tensor) -> crate::Result<u64> {
    let table = table().expect("an import, from which shared memory to write comes, finds it");
    table.write(bytes).map_err(|other| refusal(tensor, other))
}

/// Borrows bytes to read that Rust keeps and exports for the first time, so that they have no writers.
pub(super) fn keep(bytes: &Bytes) -> u64 {
    match table() {
        Some(table) => table.keep(bytes),
        None => {
            let kept = MODULE.borrow_early(Node::new(bytes, Kind::Read, true));
            kept.unwrap_or_else(|table| table.keep(bytes))
        }
    }
}

/// Ends a borrow of bytes that begin at `start`, on any thread.
pub(super) fn end(number: u64, start: usize, kind: Kind) {
    let ended = match table() {
        Some(table) => Err(table),
        None => MODULE.end_early(number, start),
    };
    if let Err(table) = ended {
        table.end(number, start, kind);
    }
}

/// The first number of a borrow before the table is known: above those of other borrows.
const EARLY: u64 = 1 << 62;

impl Module {
    const fn new(own: &'static Table) -> Self {
        Self { own, shared: OnceLock::new(), early: AtomicU64::new(0) }
    }

    /// Uses a table from now on, unless another one is used already.
    fn share(&self, table: &'static Table) -> &'static Table {
        loop {
            let used = self.own.locked(|early| {
                if self.shared.get().is_none() && !ptr::eq(table, self.own) {
                    // A thread that forks holds the locks in an order of its own.
                    table.try_locked(|ordered| ordered.adopt(early))?;
                }
                Some(*self.shared.get_or_init(|| table))
            });
            match used {
                Some(used) => return used,
                None => thread::yield_now(),
            }
        }
    }

    /// Borrows bytes in the tree of this module's table, or returns the table that is known by now.
    #[cold]
    fn borrow_early(&self, node: Box<Node>) -> Result<u64, &'static Table> {
        #[cfg(unix)]
        forks::wait_for_the_lock();
        let result = self.own.locked(|early| match self.shared.get() {
            Some(table) => Err((*table, node)),
            None => {
                let number = self.early.fetch_add(1, Ordering::Relaxed);
                // No two modules have a number: their tables are that far apart.
                let first = (ptr::from_ref(self.own).addr() as u64) << 14 & (EARLY - 1);
                Ok(early.insert_as(node, EARLY | first.wrapping_add(number) & (EARLY - 1)))
            }
        });
        // A node without use is freed when the lock is free again.
        result.map_err(|(table, _node)| table)
    }

    /// Ends a borrow in the tree of this module's table, or returns the table that has it.
    fn end_early(&self, number: u64, start: usize) -> Result<Option<Box<Node>>, &'static Table> {
        self.own.locked(|early| match self.shared.get() {
            None => Ok(early.remove(number, start)),
            Some(table) => Err(*table),
        })
    }
}

/// A fork waits until no thread changes the table of this module, so that the child has a whole one.
#[cfg(unix)]
mod forks {
    use std::ffi::c_int;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::OWN;

    type Handler = Option<unsafe extern "C" fn()>;

    unsafe extern "C" {
        /// POSIX, as `pthread.h` declares it.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    /// The thread that forks and has the lock; 0 for none.
    static FORKING: AtomicUsize = AtomicUsize::new(0);

    /// No `Once`: a child that is forked in its first call would wait for ever.
    pub(super) fn wait_for_the_lock() {
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        if !IS_DONE.load(Ordering::Acquire) {
            register();
            IS_DONE.store(true, Ordering::Release);
        }
    }

    /// Registers the functions below. Each fork calls them as often as they were registered, maybe by two threads.
    pub(super) fn register() {
        // SAFETY: functions that stay loaded. Without memory for them, a child may find the table locked, and
        // waits (F5).
        let _ = unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }

    /// A number for this thread.
    fn thread() -> usize {
        thread_local!(static PLACE: u8 = const { 0 });
        PLACE.with(|place| ptr::from_ref(place).addr())
    }

    unsafe extern "C" fn prepare() {
        if FORKING.load(Ordering::Relaxed) != thread() {
            OWN.lock();
            FORKING.store(thread(), Ordering::Relaxed);
        }
    }

    unsafe extern "C" fn parent() {
        if FORKING.load(Ordering::Relaxed) == thread() {
            FORKING.store(0, Ordering::Relaxed);
            OWN.unlock();
        }
    }

    /// Other threads do not exist in the child.
    unsafe extern "C" fn child() {
        if FORKING.load(Ordering::Relaxed) == thread() {
            OWN.free_claimed();
        }
        // SAFETY: called where a fork returns (F5).
        unsafe { parent() };
    }
}

/// The table of the first extension module that asked, in the dict of this interpreter, which is the main one.
fn shared(py: Python<'_>) -> PyResult<&'static Table> {
    let own = ptr::from_ref(&OWN).cast_mut().cast();
    // SAFETY: a pointer that is not null to a static table, a static name, and nothing to release (F2).
    let own = unsafe { capsule::make(py, own, NAME, None) }?;
    // Python makes the dict without a lock: two threads that ask first would have one each. All modules of this
    // library lock the same object.
    let names = with_critical_section(&py.None().into_bound(py), || module_state(py));
    let names = names.ok_or_else(no_memory)?;
    let found = names.call_method1(intern!(py, "setdefault"), (intern!(py, KEY), own))?;
    // Another object under the name is one for all modules.
    Ok(match capsule::content(found.as_borrowed(), NAME) {
        // SAFETY: a table of this layout, static in the module that made the capsule, which is never
        // unloaded (F6).
        Some(table) => unsafe { table.cast::<Table>().as_ref() },
        None => &OWN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_fork_waits_for_the_lock_and_its_child_has_a_free_one() {
        use std::ffi::{c_int, c_uint};
        use std::time::Duration;

        unsafe extern "C" {
            safe fn fork() -> c_int;
            safe fn alarm(seconds: c_uint) -> c_uint;
            safe fn _exit(status: c_int) -> !;
            safe fn waitpid(process: c_int, status: &mut c_int, options: c_int) -> c_int;
        }
        forks::wait_for_the_lock();
        // As two threads do that call it first.
        forks::register();
        let (locked, is_locked) = std::sync::mpsc::channel();
        let holder = thread::spawn(move || {
            OWN.locked(|_| {
                locked.send(()).expect("received");
                thread::sleep(Duration::from_millis(50));
            });
        });
        is_locked.recv().expect("sent");
        let child = fork();
        if child == 0 {
            alarm(20);
            OWN.locked(|_| ());
            _exit(0);
        }
        let mut status = -1;
        waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "ended by a signal: the lock was held");
        holder.join().expect("no panic");
    }

    #[test]
    fn the_first_module_gives_its_table_to_all_others() {
        Python::attach(|py| {
            let first = shared(py).expect("a table");
            assert!(ptr::eq(first, shared(py).expect("the same")));
            // A thread that runs another interpreter.
            assert!(in_main(py, |py| shared(py).ok()).is_some_and(|table| ptr::eq(table, first)));
            // A module that is loaded afterwards.
            let names = module_state(py).expect("a dict");
            let capsule = names.get_item(KEY).expect("set");
            let table = capsule::content(capsule.as_borrowed(), NAME).expect("a capsule");
            assert!(ptr::eq(table.as_ptr().cast::<Table>(), first));
            // Something else under the name is no table; each module then has its own.
            names.set_item(KEY, 1).expect("a dict");
            assert!(ptr::eq(shared(py).expect("its own"), &OWN));
            names.set_item(KEY, capsule).expect("a dict");
        });
    }

    #[test]
    fn borrows_before_the_table_is_known_move_to_it() {
        static OTHER: Table = Table::new();
        static OURS: Table = Table::new();
        static MODULE: Module = Module::new(&OURS);
        let bytes = |start| Bytes::of(start, &[8], &[1], 1).expect("elements");
        let node = |start| Node::new(&bytes(start), Kind::Read, true);
        let numbers = [64, 96, 80].map(|start| MODULE.borrow_early(node(start)).expect("early"));
        MODULE.end_early(numbers[1], 96).expect("early").expect("it was there");
        let theirs = OTHER.keep(&bytes(64));
        assert!(ptr::eq(MODULE.share(&OTHER), &OTHER));
        for start in [64, 80] {
            OTHER.write(&bytes(start)).expect_err("kept");
        }
        OTHER.write(&bytes(96)).map(|number| OTHER.end(number, 96, Kind::Write)).expect("ended");
        assert!(MODULE.borrow_early(node(64)).is_err_and(|table| ptr::eq(table, &OTHER)));
        assert!(MODULE.end_early(numbers[0], 64).is_err_and(|table| ptr::eq(table, &OTHER)));
        OTHER.end(theirs, 64, Kind::Read);
        OTHER.write(&bytes(64)).expect_err("kept by this module");
        for (number, start) in [(numbers[0], 64), (numbers[2], 80)] {
            OTHER.end(number, start, Kind::Read);
            OTHER.write(&bytes(start)).expect("ended");
        }
        assert!(ptr::eq(MODULE.share(&OURS), &OTHER), "once");
    }
}
