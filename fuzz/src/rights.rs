//! Calls of the safe API on a few handles, in any order, compared with a model of who may do what: class,
//! flags, values, and when the owner is dropped.
//!
//! The model is a list of facts for each handle and of values for each memory. It knows of no header, lease or
//! chain. Whatever the library does, two rules hold: memory that one handle writes has no other handle,
//! and a handle never gains a right.

use std::cell::Cell;
use std::sync::Arc;

use dlbridge::ffi::{self, Kept};
use dlbridge::{Access, ArcTensor, Error, Flags, Parts, Tensor, TensorRef};
use dlbridge_testing::{CountingOwner, Releases};

use crate::input::Input;

/// The elements of each memory.
const LEN: usize = 6;
/// The most handles at a time, and the most calls of one input.
const MOST: usize = 10;
const CALLS: usize = 48;

/// What a handle may do, and the elements that it shows.
#[derive(Clone, Debug, PartialEq)]
struct Facts {
    memory: usize,
    /// The place of each element in the memory.
    places: Vec<usize>,
    access: Access,
    is_read_only: bool,
    is_copied: bool,
    /// Read-only only because the legacy ABI has no flag.
    is_legacy: bool,
    /// Made from its owner by nothing but `into_shared`, `into_frozen` and clones.
    is_direct: bool,
}

impl Facts {
    /// A handle that only reads.
    fn to_read(&self) -> Self {
        let access = if self.access == Access::Shared { Access::Shared } else { Access::Frozen };
        Self { access, is_read_only: true, is_copied: false, is_legacy: false, ..self.clone() }
    }

    /// A handle of memory that came back from C.
    fn imported(&self) -> Self {
        Self { access: Access::Shared, is_legacy: false, is_direct: false, ..self.clone() }
    }
}

enum Handle {
    Owned(Tensor),
    Counted(ArcTensor),
}

impl Handle {
    fn tensor(&self) -> &Tensor {
        match self {
            Self::Owned(tensor) => tensor,
            Self::Counted(tensor) => tensor,
        }
    }

    fn into_tensor(self) -> Tensor {
        match self {
            Self::Owned(tensor) => tensor,
            Self::Counted(tensor) => tensor.into(),
        }
    }
}

struct Memory {
    values: Vec<i32>,
    /// Of memory that the library made, nothing counts the drops.
    releases: Option<Releases>,
}

#[derive(Default)]
struct World {
    memories: Vec<Memory>,
    handles: Vec<(Handle, Facts)>,
}

/// A user's type that lends its tensor to read.
struct Lends(Tensor);

impl<'a> From<&'a Lends> for TensorRef<'a> {
    fn from(lends: &'a Lends) -> Self {
        lends.0.as_tensor_ref()
    }
}

thread_local! {
    /// The borrows of the fake binding that have not ended.
    static BORROWS: Cell<isize> = const { Cell::new(0) };
}

fn kept() -> Kept {
    BORROWS.set(BORROWS.get() + 1);
    Kept { number: 0, start: 0, end: |_, _| BORROWS.set(BORROWS.get() - 1) }
}

/// Makes handles, and calls what may be called.
///
/// # Panics
///
/// If a handle has another class, flag or value than the model says, if memory that one handle writes has
/// another one, or if an owner is not dropped once, with the last handle.
pub fn run(data: &[u8]) {
    let (mut world, mut input) = (World::default(), Input::new(data));
    let before = BORROWS.get();
    world.make(&mut input);
    for _ in 0..CALLS {
        world.call(&mut input);
        world.check();
    }
    while world.handles.pop().is_some() {
        world.check();
    }
    assert_eq!(BORROWS.get(), before, "each borrow ends with the last handle in Rust");
}

impl World {
    fn call(&mut self, input: &mut Input<'_>) {
        if self.handles.is_empty() || (self.handles.len() < MOST && input.rarely(6)) {
            return self.make(input);
        }
        let at = input.below(self.handles.len());
        let (handle, facts) = self.handles.swap_remove(at);
        match input.below(16) {
            0 => drop((handle, facts)),
            1 => self.shared(handle, facts, input),
            2 => self.cloned(handle, facts),
            3 => self.unique(handle, facts),
            4 => self.owner(handle, facts),
            5 => self.refused(handle, facts),
            6..=8 => self.part(handle, &facts, input),
            9 => self.lent(handle, &facts),
            10 => self.exported(handle, &facts),
            11 => self.exported_legacy(handle, &facts),
            12 => self.written(handle, facts, input),
            13 => self.copied(handle, facts),
            14 => self.slice(handle, facts),
            _ => self.given(handle, facts, input),
        }
    }

    fn keep(&mut self, tensor: Tensor, facts: Facts) {
        self.handles.push((Handle::Owned(tensor), facts));
    }

    fn count(&mut self, tensor: ArcTensor, facts: Facts) {
        self.handles.push((Handle::Counted(tensor), facts));
    }

    /// A memory and its first handle.
    fn remember(&mut self, tensor: Tensor, memory: Memory, is_read_only: bool) {
        let access = if is_read_only { Access::Frozen } else { Access::Exclusive };
        let is_direct = memory.releases.is_some();
        let (places, is_copied) = ((0..memory.values.len()).collect(), tensor.is_copied());
        let memory = {
            self.memories.push(memory);
            self.memories.len() - 1
        };
        let is_legacy = false;
        let facts = Facts { memory, places, access, is_read_only, is_copied, is_legacy, is_direct };
        self.keep(tensor, facts);
    }

    fn make(&mut self, input: &mut Input<'_>) {
        let values: Vec<i32> =
            (0..LEN as i32).map(|i| i + 10 * i32::from(input.any::<u8>())).collect();
        let owner = CountingOwner::new(values.clone());
        let memory = Memory { values, releases: Some(owner.drops()) };
        let (builder, is_read_only) = (Tensor::builder(owner), input.rarely(4));
        let tensor =
            if is_read_only { builder.build_read_only::<i32>() } else { builder.build::<i32>() };
        self.remember(tensor.expect("as many as the owner has"), memory, is_read_only);
    }

    fn shared(&mut self, handle: Handle, facts: Facts, input: &mut Input<'_>) {
        let tensor = handle.into_tensor();
        if input.rarely(2) {
            let facts = Facts { is_direct: facts.is_direct, ..facts.to_read() };
            return self.count(tensor.into_frozen(), facts);
        }
        let weaker = facts.access == Access::Exclusive;
        let access = if weaker { Access::Shared } else { facts.access };
        self.count(tensor.into_shared(), Facts { access, is_copied: false, ..facts });
    }

    fn cloned(&mut self, handle: Handle, facts: Facts) {
        match handle {
            Handle::Counted(tensor) if self.handles.len() < MOST => {
                self.keep(tensor.clone().into(), facts.clone());
                self.count(tensor, facts);
            }
            other => self.handles.push((other, facts)),
        }
    }

    /// Nothing, if there are other handles.
    fn unique(&mut self, handle: Handle, facts: Facts) {
        match handle {
            Handle::Counted(tensor) => {
                let is_alone = self.is_alone(&facts);
                match tensor.into_inner() {
                    Some(tensor) => self.keep(tensor, facts),
                    None => assert!(!is_alone, "the only handle of its memory"),
                }
            }
            other => self.handles.push((other, facts)),
        }
    }

    /// Whether a handle that was taken out of the list was the only one of its memory.
    fn is_alone(&self, facts: &Facts) -> bool {
        self.handles.iter().all(|(_, others)| others.memory != facts.memory)
    }

    fn owner(&mut self, handle: Handle, facts: Facts) {
        match handle.into_tensor().into_owner::<CountingOwner<i32>>() {
            Ok(owner) => {
                assert!(self.is_alone(&facts), "the owner of memory that others have");
                assert_eq!(owner.as_ref(), self.memories[facts.memory].values);
            }
            Err(tensor) => {
                assert!(!facts.is_direct || !self.is_alone(&facts), "its own owner");
                self.keep(tensor, facts);
            }
        }
    }

    /// Another owner is asked for than there is: nothing changes.
    fn refused(&mut self, handle: Handle, facts: Facts) {
        let tensor = handle.into_tensor().into_owner::<String>().expect_err("no owner is text");
        self.keep(tensor, facts);
    }

    fn part(&mut self, handle: Handle, facts: &Facts, input: &mut Input<'_>) {
        let len = facts.places.len();
        let start = input.below(len + 1);
        let end = start + input.below(len - start + 1);
        let kind = if len == 1 { input.below(3) } else { input.below(2) };
        let places: Vec<usize> = match kind {
            0 => facts.places[start..end].to_vec(),
            1 => facts.places.iter().rev().copied().collect(),
            _ => facts.places.repeat(3),
        };
        let read = if kind == 2 {
            Facts { is_copied: facts.is_copied, is_legacy: facts.is_legacy, ..facts.to_read() }
        } else {
            facts.clone()
        };
        let facts = Facts { places, is_direct: false, ..read };
        let cannot = "a part that is there";
        match handle {
            Handle::Counted(tensor) if kind < 2 => {
                let part = if kind == 0 { tensor.slice(0, start..end) } else { tensor.flip(0) };
                self.count(part.expect(cannot), facts);
            }
            handle => {
                let tensor = handle.into_tensor();
                let part = match kind {
                    0 => Parts::slice(tensor, 0, start..end),
                    1 => Parts::flip(tensor, 0),
                    _ => tensor.broadcast_to([3]),
                };
                self.keep(part.expect(cannot), facts);
            }
        }
    }

    /// Two tensors over what a user's type lends.
    fn lent(&mut self, handle: Handle, facts: &Facts) {
        let lender = Arc::new(Lends(handle.into_tensor()));
        for lender in [lender.clone(), lender] {
            let facts = Facts { is_direct: false, ..facts.to_read() };
            self.keep(Tensor::from_guard(lender), facts);
        }
    }

    fn exported(&mut self, handle: Handle, facts: &Facts) {
        // SAFETY: exported just now, to no other consumer.
        let tensor = unsafe { Tensor::from_raw(handle.into_tensor().into_raw()) };
        self.keep(tensor.expect("our own"), facts.imported());
    }

    fn exported_legacy(&mut self, handle: Handle, facts: &Facts) {
        let can = !facts.is_read_only || facts.is_legacy;
        match handle.into_tensor().into_raw_legacy() {
            Ok(raw) => {
                assert!(can, "read-only memory, by an ABI without a flag");
                // SAFETY: exported just now, to no other consumer.
                let tensor = unsafe { Tensor::from_raw(raw) }.expect("our own");
                let imported = Facts { is_read_only: true, is_copied: false, ..facts.imported() };
                self.keep(tensor, Facts { is_legacy: true, ..imported });
            }
            Err(error) => assert!(!can && error == Error::LegacyReadOnly, "{error}"),
        }
    }

    fn written(&mut self, handle: Handle, facts: Facts, input: &mut Input<'_>) {
        let (mut tensor, value) = (handle.into_tensor(), input.any::<i32>());
        let may = facts.access == Access::Exclusive && !facts.is_read_only;
        let written = tensor.view_mut::<i32>().map(|mut view| match value % 2 {
            0 => view.fill(value),
            _ => view.map_inplace(|_| value),
        });
        assert_eq!(written.is_ok(), may);
        if may {
            let values = &mut self.memories[facts.memory].values;
            facts.places.iter().for_each(|&place| values[place] = value);
        }
        self.keep(tensor, facts);
    }

    fn copied(&mut self, handle: Handle, facts: Facts) {
        let copy = match facts.places.len() % 2 {
            0 => handle.tensor().to_contiguous(),
            _ => handle.tensor().view::<i32>().expect("int32").map_to_tensor(|value| value),
        };
        let copy = copy.expect("a few bytes");
        let values = facts.places.iter().map(|&place| self.memories[facts.memory].values[place]);
        let memory = Memory { values: values.collect(), releases: None };
        self.handles.push((handle, facts));
        self.remember(copy, memory, false);
    }

    /// A slice that owns its tensor becomes the owner of another one.
    fn slice(&mut self, handle: Handle, facts: Facts) {
        let tensor = handle.into_tensor();
        let may = facts.access == Access::Exclusive && !facts.is_read_only;
        let flags = (facts.is_copied, facts.is_legacy);
        let facts = Facts { is_copied: false, is_legacy: false, is_direct: false, ..facts };
        if may && tensor.is_contiguous() {
            let slice = tensor.into_slice_mut::<i32>().expect("exclusive");
            self.keep(Tensor::builder(slice).build::<i32>().expect("as many"), facts);
        } else if facts.access != Access::Shared && tensor.is_contiguous() {
            let slice = tensor.into_slice::<i32>().expect("nobody writes");
            let tensor = Tensor::builder(slice).build_read_only::<i32>().expect("as many");
            self.keep(tensor, Facts { access: Access::Frozen, is_read_only: true, ..facts });
        } else {
            let (is_copied, is_legacy) = flags;
            self.keep(tensor, Facts { is_copied, is_legacy, ..facts });
        }
    }

    /// What a language binding does with a tensor that Rust keeps, or that it gets.
    fn given(&mut self, handle: Handle, facts: Facts, input: &mut Input<'_>) {
        match (input.below(3), facts.access) {
            (0, Access::Shared) => {
                // SAFETY: this model is the binding, and one thread accesses the memory.
                self.keep(unsafe { ffi::keep_borrowed(handle.into_tensor(), kept()) }, facts);
            }
            (1, _) => {
                // SAFETY: the same.
                self.keep(unsafe { ffi::give(handle.into_tensor(), |_| kept()) }, facts);
            }
            (2, access) => {
                let access = if access == Access::Exclusive { Access::Shared } else { access };
                // SAFETY: the same.
                let given = unsafe { ffi::give_shared(handle.into_tensor(), |_| kept()) };
                self.count(given, Facts { access, is_copied: false, ..facts });
            }
            _ => self.handles.push((handle, facts)),
        }
    }

    fn check(&self) {
        for (handle, facts) in &self.handles {
            let tensor = handle.tensor();
            let (flags, copied) = (tensor.flags(), Flags::IS_COPIED);
            let said = (tensor.access(), tensor.is_read_only(), flags.contains(copied));
            assert_eq!(said, (facts.access, facts.is_read_only, facts.is_copied), "{facts:?}");
            assert_eq!(tensor.is_legacy_read_only(), facts.is_legacy, "{facts:?}");
            let values = &self.memories[facts.memory].values;
            let shown: Vec<i32> = facts.places.iter().map(|&place| values[place]).collect();
            assert_eq!(tensor.view::<i32>().expect("int32").to_vec(), shown, "{facts:?}");
            let borrowed = tensor.as_tensor_ref();
            let read = facts.to_read();
            assert_eq!((borrowed.access(), borrowed.flags()), (read.access, Flags::READ_ONLY));
            let reads = tensor.as_slice::<i32>().is_ok();
            assert!(!reads || facts.access != Access::Shared, "a slice of shared memory");
            if tensor.access() == Access::Exclusive {
                let others = self.handles.iter().filter(|(_, other)| other.memory == facts.memory);
                assert_eq!(others.count(), 1, "exclusive memory has one handle: {facts:?}");
            }
        }
        for (at, memory) in self.memories.iter().enumerate() {
            let in_use = self.handles.iter().any(|(_, facts)| facts.memory == at);
            if let Some(releases) = &memory.releases {
                releases.expect(usize::from(!in_use), "the owner, with its last handle");
            }
        }
    }
}
