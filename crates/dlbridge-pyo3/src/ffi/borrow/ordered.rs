//! `Ordered`: borrows in the order of their addresses, so that one among many is found in a few steps.
//! It has the tensors that Rust keeps, and the arguments for which there is no slot.
//!
//! Invariants: left of a node are smaller keys, right of it larger ones (a search tree). No child has
//! a higher priority than its parent (a heap), so that the tree has logarithmic depth. `end` is the largest of
//! the subtree, `first` and `last` are its starts, and `comb` has the teeth of all: many columns of one matrix
//! are left out at once. A node is freed by the extension module that allocated it.

use std::cmp::Ordering;
use std::mem::offset_of;

use dlbridge::ffi::{Bytes, Comb};

use super::{Kind, Other};

/// A borrow, allocated before the table is locked and freed afterwards.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Node {
    bytes: Bytes,
    id: u64,
    kind: Kind,
    /// Whether Rust keeps the tensor after its call.
    is_kept: bool,
    end: usize,
    first: usize,
    last: usize,
    comb: Comb,
    left: Tree,
    right: Tree,
}

/// The layout of a node, for [`super::shared`].
pub(super) const NODE: [usize; 11] = [
    size_of::<Node>(),
    offset_of!(Node, bytes),
    offset_of!(Node, id),
    offset_of!(Node, kind),
    offset_of!(Node, is_kept),
    offset_of!(Node, end),
    offset_of!(Node, first),
    offset_of!(Node, last),
    offset_of!(Node, comb),
    offset_of!(Node, left),
    offset_of!(Node, right),
];

type Tree = Option<Box<Node>>;
type Key = (usize, u64);

impl Node {
    pub(super) fn new(bytes: &Bytes, kind: Kind, is_kept: bool) -> Box<Self> {
        let Bytes { start: first, end, coarse: comb, .. } = *bytes;
        let (bytes, last, left, right) = (*bytes, first, None, None);
        Box::new(Self { bytes, id: 0, kind, is_kept, end, first, last, comb, left, right })
    }

    fn key(&self) -> Key {
        (self.bytes.start, self.id)
    }

    /// As good as random, so that no order of addresses makes the tree deep.
    fn priority(&self) -> u64 {
        let mixed = self.id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn update(&mut self) {
        let Bytes { start, end, coarse, .. } = self.bytes;
        (self.first, self.last, self.end, self.comb) = (start, start, end, coarse);
        for node in [&self.left, &self.right].into_iter().flatten() {
            self.first = self.first.min(node.first);
            self.last = self.last.max(node.last);
            self.end = self.end.max(node.end);
            self.comb = self.comb.joined(node.comb);
        }
    }
}

/// The borrows in a tree, and the numbers for new ones.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Ordered {
    root: Tree,
    /// The number of the last borrow. Those of slots are smaller.
    last: u64,
    /// The number of borrows to write.
    writers: usize,
}

impl Ordered {
    /// The layout, for [`super::shared`].
    pub(super) const LAYOUT: [usize; 4] = [
        size_of::<Self>(),
        offset_of!(Self, root),
        offset_of!(Self, last),
        offset_of!(Self, writers),
    ];

    /// No borrows. Their numbers begin after `last`.
    pub(super) const fn new(last: u64) -> Self {
        Self { root: None, last, writers: 0 }
    }

    /// Enters a borrow, and returns its number.
    pub(super) fn insert(&mut self, node: Box<Node>) -> u64 {
        self.last += 1;
        self.insert_as(node, self.last)
    }

    /// Enters a borrow with a number that no other one has.
    pub(super) fn insert_as(&mut self, mut node: Box<Node>, number: u64) -> u64 {
        node.id = number;
        self.writers += usize::from(node.kind == Kind::Write);
        insert(&mut self.root, node);
        number
    }

    /// Takes the borrows of another tree, with their numbers. None of them is to write.
    pub(super) fn adopt(&mut self, others: &mut Self) {
        adopt(&mut self.root, others.root.take());
    }

    /// Removes the borrow with this number, whose bytes begin at `start`.
    pub(super) fn remove(&mut self, number: u64, start: usize) -> Option<Box<Node>> {
        let node = remove(&mut self.root, (start, number))?;
        self.writers -= usize::from(node.kind == Kind::Write);
        Some(node)
    }

    /// A borrow of some of the bytes; with `Kind::Read`, only one to write, since readers share.
    #[inline]
    pub(super) fn find(&self, bytes: &Bytes, kind: Kind) -> Option<Other> {
        find(&self.root, bytes, kind)
    }

    /// Whether no borrow of any bytes excludes one of this kind.
    #[inline]
    pub(super) fn has_none(&self, kind: Kind) -> bool {
        self.root.is_none() || (kind == Kind::Read && self.writers == 0)
    }

    #[cfg(test)]
    pub(super) fn depth(&self) -> usize {
        fn depth(tree: &Tree) -> usize {
            tree.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
        }
        depth(&self.root)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none() && self.writers == 0
    }
}

fn insert(tree: &mut Tree, mut node: Box<Node>) {
    match tree {
        Some(root) if root.priority() >= node.priority() => {
            let side = if node.key() < root.key() { &mut root.left } else { &mut root.right };
            insert(side, node);
            root.update();
        }
        _ => {
            (node.left, node.right) = split(tree.take(), node.key());
            node.update();
            *tree = Some(node);
        }
    }
}

fn adopt(tree: &mut Tree, others: Tree) {
    let Some(mut node) = others else { return };
    adopt(tree, node.left.take());
    adopt(tree, node.right.take());
    insert(tree, node);
}

fn remove(tree: &mut Tree, key: Key) -> Tree {
    let root = tree.as_mut()?;
    let side = match key.cmp(&root.key()) {
        Ordering::Less => &mut root.left,
        Ordering::Greater => &mut root.right,
        Ordering::Equal => {
            let mut node = tree.take()?;
            *tree = merge(node.left.take(), node.right.take());
            return Some(node);
        }
    };
    let removed = remove(side, key);
    root.update();
    removed
}

/// The nodes before a key, and those after it.
fn split(tree: Tree, key: Key) -> (Tree, Tree) {
    let Some(mut root) = tree else { return (None, None) };
    if root.key() < key {
        let (left, right) = split(root.right.take(), key);
        root.right = left;
        root.update();
        (Some(root), right)
    } else {
        let (left, right) = split(root.left.take(), key);
        root.left = right;
        root.update();
        (left, Some(root))
    }
}

/// One tree of two, of which the first has the smaller keys.
fn merge(left: Tree, right: Tree) -> Tree {
    match (left, right) {
        (Some(mut left), Some(mut right)) => {
            if left.priority() >= right.priority() {
                left.right = merge(left.right.take(), Some(right));
                left.update();
                Some(left)
            } else {
                right.left = merge(Some(left), right.left.take());
                right.update();
                Some(right)
            }
        }
        (left, right) => left.or(right),
    }
}

fn find(tree: &Tree, bytes: &Bytes, kind: Kind) -> Option<Other> {
    #[cfg(test)]
    tests::VISITS.set(tests::VISITS.get() + 1);
    let node = tree.as_ref().filter(|node| {
        node.end > bytes.start && node.comb.meets_from(node.first, node.last, bytes)
    })?;
    if let Some(other) = find(&node.left, bytes, kind) {
        return Some(other);
    }
    if node.bytes.start >= bytes.end {
        return None;
    }
    if (kind == Kind::Write || node.kind == Kind::Write) && node.bytes.overlaps(bytes) {
        return Some(Other { kind: node.kind, is_kept: node.is_kept, bytes: node.bytes });
    }
    find(&node.right, bytes, kind)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    /// A writer compared 100,000 kept columns of one matrix one by one: 12 ms for each call.
    #[test]
    fn a_column_is_found_among_many_of_its_matrix() {
        const MANY: usize = if cfg!(miri) { 200 } else { 20_000 };
        let column = |at: usize, rows| {
            Bytes::of(4096 + 8 * at, &[rows], &[MANY as i64], 8).expect("elements")
        };
        let mut ordered = Ordered::new(256);
        for at in (0..MANY).filter(|at| at % 100 != 7) {
            ordered.insert(Node::new(&column(at, 3), Kind::Read, true));
        }
        let find = |bytes: Bytes| {
            VISITS.set(0);
            let found = ordered.find(&bytes, Kind::Write).is_some();
            (found, VISITS.get())
        };
        for at in 0..100 {
            let (found, visits) = find(column(at * (MANY / 100), 2));
            assert_eq!(found, at * (MANY / 100) % 100 != 7);
            assert!(visits < 200, "{visits} of column {at}");
        }
        for at in [7, MANY / 2 + 7, MANY - 93] {
            // The same column of the second row on, one element, and the next column with it.
            for (bytes, is_kept) in [
                (column(at + MANY, 2), false),
                (column(at, 1), false),
                (Bytes::of(4096 + 8 * at, &[2, 2], &[MANY as i64, 1], 8).expect("elements"), true),
            ] {
                let (found, visits) = find(bytes);
                assert_eq!(found, is_kept, "{bytes:?}");
                assert!(visits < 200, "{visits} of {bytes:?}");
            }
        }
    }
}
