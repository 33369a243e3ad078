//! `Ordered`: tensors that Rust keeps, in the order of their addresses, so that one among many is found in a few steps.
//! It has those for which a list has no place for long.
//!
//! Invariants: left of a node are smaller keys, right of it larger ones (a search tree). No child has
//! a higher priority than its parent (a heap), so that the tree has logarithmic depth. `end` is the largest of
//! the subtree, `first` and `last` are its starts, and `comb` has the teeth of all: many columns of one matrix
//! are left out at once.

use std::cmp::Ordering;

use dlbridge::ffi::{Bytes, Comb};

#[derive(Debug)]
struct Node {
    bytes: Bytes,
    id: usize,
    end: usize,
    first: usize,
    last: usize,
    comb: Comb,
    left: Tree,
    right: Tree,
}

type Tree = Option<Box<Node>>;
type Key = (usize, usize);

impl Node {
    fn key(&self) -> Key {
        (self.bytes.start, self.id)
    }

    /// As good as random, so that no order of addresses makes the tree deep.
    fn priority(&self) -> u64 {
        let mixed = (self.id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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

/// The borrows in a tree.
#[derive(Debug)]
pub(super) struct Ordered {
    root: Tree,
    /// The number of the last borrow.
    last: usize,
}

impl Ordered {
    pub(super) const fn new() -> Self {
        Self { root: None, last: 0 }
    }

    /// Enters a borrow, and returns its number.
    pub(super) fn insert(&mut self, bytes: &Bytes) -> usize {
        self.last += 1;
        let Bytes { start: first, end, coarse: comb, .. } = *bytes;
        let (bytes, id, last, left, right) = (*bytes, self.last, first, None, None);
        insert(&mut self.root, Box::new(Node { bytes, id, end, first, last, comb, left, right }));
        id
    }

    /// Removes the borrow with this number, whose bytes begin at `start`.
    pub(super) fn remove(&mut self, number: usize, start: usize) {
        remove(&mut self.root, (start, number));
    }

    /// The bytes of a borrow that has some of these.
    pub(super) fn find(&self, bytes: &Bytes) -> Option<Bytes> {
        find(&self.root, bytes)
    }

    /// The lowest and the highest address of the bytes; twice 0 without a borrow.
    pub(super) fn span(&self) -> (usize, usize) {
        self.root.as_ref().map_or((0, 0), |root| (root.first, root.end))
    }

    #[cfg(test)]
    pub(super) fn depth(&self) -> usize {
        fn depth(tree: &Tree) -> usize {
            tree.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
        }
        depth(&self.root)
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

fn find(tree: &Tree, bytes: &Bytes) -> Option<Bytes> {
    #[cfg(test)]
    tests::VISITS.set(tests::VISITS.get() + 1);
    let node = tree.as_ref().filter(|node| {
        node.end > bytes.start && node.comb.meets_from(node.first, node.last, bytes)
    })?;
    if let Some(other) = find(&node.left, bytes) {
        return Some(other);
    }
    if node.bytes.start >= bytes.end {
        return None;
    }
    if node.bytes.overlaps(bytes) {
        return Some(node.bytes);
    }
    find(&node.right, bytes)
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
        let mut ordered = Ordered::new();
        for at in (0..MANY).filter(|at| at % 100 != 7) {
            ordered.insert(&column(at, 3));
        }
        let find = |bytes: Bytes| {
            VISITS.set(0);
            let found = ordered.find(&bytes).is_some();
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
