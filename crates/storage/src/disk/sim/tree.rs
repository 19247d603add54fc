//! The names of the simulated disk: directories, and which of their changes a power failure takes.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::io::Errno;

use super::file::SimContent;
use super::seed::Seed;

/// A file or directory, whatever its names. Never used twice.
pub(super) type NodeId = usize;

const ROOT: NodeId = 0;

/// What a directory's names lead to.
type Names = BTreeMap<Arc<str>, NodeId>;

#[derive(Clone, Debug)]
enum Node {
    File(SimContent),
    Dir { now: Names, durable: Names },
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum NameChange {
    Link { dir: NodeId, name: Arc<str>, node: NodeId },
    Unlink { dir: NodeId, name: Arc<str> },
    Rename { from: (NodeId, Arc<str>), to: (NodeId, Arc<str>), node: NodeId },
}

impl NameChange {
    /// The names that it changes: a later change of one of them depends on it.
    fn touched(&self) -> [(NodeId, &Arc<str>); 2] {
        match self {
            NameChange::Link { dir, name, .. } | NameChange::Unlink { dir, name } => {
                [(*dir, name), (*dir, name)]
            }
            NameChange::Rename { from, to, .. } => [(from.0, &from.1), (to.0, &to.1)],
        }
    }
}

/// A tree of directories and files. A clone costs a reference per node.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Arc<Node>>,
    /// In the order in which they happened.
    pending: Vec<NameChange>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { nodes: vec![Arc::new(Node::empty_dir())], pending: Vec::new() }
    }
}

impl Node {
    fn empty_dir() -> Node {
        Node::Dir { now: Names::new(), durable: Names::new() }
    }
}

impl Tree {
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        parts(path).try_fold(ROOT, |dir, name| self.child(dir, &name))
    }

    fn child(&self, dir: NodeId, name: &str) -> io::Result<NodeId> {
        self.names(dir)?.get(name).copied().ok_or_else(|| Errno::NOENT.into())
    }

    fn names(&self, dir: NodeId) -> io::Result<&Names> {
        match &*self.nodes[dir] {
            Node::Dir { now, .. } => Ok(now),
            Node::File(_) => Err(Errno::NOTDIR.into()),
        }
    }

    pub(super) fn file(&self, node: NodeId) -> io::Result<&SimContent> {
        match &*self.nodes[node] {
            Node::File(file) => Ok(file),
            Node::Dir { .. } => Err(Errno::ISDIR.into()),
        }
    }

    pub(super) fn file_mut(&mut self, node: NodeId) -> &mut SimContent {
        match Arc::make_mut(&mut self.nodes[node]) {
            Node::File(file) => file,
            Node::Dir { .. } => panic!("a directory was opened as a file"),
        }
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = self.names(self.find(dir)?)?;
        Ok(names.keys().map(|name| name.to_string()).collect())
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<NodeId> {
        let (dir, name) = self.place(path)?;
        Ok(self.add(dir, name, Node::File(SimContent::default())))
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        let mut at = ROOT;
        for name in parts(dir) {
            at = match self.child(at, &name) {
                Ok(node) => node,
                Err(_) => self.add(at, name, Node::empty_dir()),
            };
            self.names(at)?;
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let node = self.child(from.0, &from.1)?;
        if let Ok(replaced) = self.child(to.0, &to.1)
            && self.names(replaced).is_ok_and(|names| !names.is_empty())
        {
            return Err(Errno::NOTEMPTY.into());
        }
        self.change(NameChange::Rename { from, to, node });
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        self.file(self.child(dir, &name)?)?;
        self.change(NameChange::Unlink { dir, name });
        Ok(())
    }

    pub(super) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.place(path)?;
        let dir = self.child(parent, &name)?;
        for inner in self.names(dir)?.clone().into_keys() {
            let inner_path = path.join(&*inner);
            match *self.nodes[self.child(dir, &inner)?] {
                Node::File(_) => self.remove_file(&inner_path)?,
                Node::Dir { .. } => self.remove_dir_all(&inner_path)?,
            }
        }
        self.change(NameChange::Unlink { dir: parent, name });
        Ok(())
    }

    /// The directory that holds `path`, which is there, and the name in it, which need not be.
    fn place(&self, path: &Path) -> io::Result<(NodeId, Arc<str>)> {
        let name = parts(path).next_back().ok_or(Errno::INVAL)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.names(dir)?;
        Ok((dir, name))
    }

    fn add(&mut self, dir: NodeId, name: Arc<str>, node: Node) -> NodeId {
        let id = self.nodes.len();
        self.nodes.push(Arc::new(node));
        self.change(NameChange::Link { dir, name, node: id });
        id
    }

    fn change(&mut self, change: NameChange) {
        self.apply(&change, |node| match node {
            Node::Dir { now, .. } => now,
            Node::File(_) => panic!("only directories hold names"),
        });
        self.pending.push(change);
    }

    fn make_durable(&mut self, change: &NameChange) {
        self.apply(change, |node| match node {
            Node::Dir { durable, .. } => durable,
            Node::File(_) => panic!("only directories hold names"),
        });
    }

    fn apply(&mut self, change: &NameChange, side: fn(&mut Node) -> &mut Names) {
        let nodes = &mut self.nodes;
        match change {
            NameChange::Link { dir, name, node } => {
                side(Arc::make_mut(&mut nodes[*dir])).insert(name.clone(), *node);
            }
            NameChange::Unlink { dir, name } => {
                side(Arc::make_mut(&mut nodes[*dir])).remove(name);
            }
            NameChange::Rename { from, to, node } => {
                side(Arc::make_mut(&mut nodes[from.0])).remove(&from.1);
                side(Arc::make_mut(&mut nodes[to.0])).insert(to.1.clone(), *node);
            }
        }
    }

    /// Makes the names in `dir` durable, and what they depend on.
    pub(super) fn sync_names(&mut self, dir: NodeId) {
        let mut needed = BTreeSet::new();
        // Backwards: what a needed change touches must be as it was when that change came.
        for change in self.pending.iter().rev() {
            let touched = change.touched();
            if touched.iter().any(|(d, name)| *d == dir || needed.contains(&(*d, (*name).clone())))
            {
                needed.extend(touched.map(|(d, name)| (d, name.clone())));
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if change.touched().iter().any(|(d, name)| needed.contains(&(*d, (*name).clone()))) {
                self.make_durable(&change);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Makes contents and names below `node` durable.
    pub(super) fn sync_all_below(&mut self, node: NodeId) {
        for node in self.nodes_below(node) {
            match &*self.nodes[node] {
                Node::File(_) => self.file_mut(node).sync(),
                Node::Dir { .. } => self.sync_names(node),
            }
        }
    }

    /// A sync of everything below `node` failed: nothing of what was not durable need ever be.
    pub(super) fn lose_pending_below(&mut self, node: NodeId) {
        for node in self.nodes_below(node) {
            if matches!(&*self.nodes[node], Node::File(_)) {
                self.file_mut(node).lose_pending();
            }
        }
    }

    /// `node` and all that its names lead to.
    fn nodes_below(&self, node: NodeId) -> Vec<NodeId> {
        let mut nodes = vec![node];
        if let Node::Dir { now, .. } = &*self.nodes[node] {
            nodes.extend(now.values().flat_map(|node| self.nodes_below(*node)));
        }
        nodes
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes_below(ROOT)
    }

    fn used_bytes_below(&self, node: NodeId) -> u64 {
        match &*self.nodes[node] {
            Node::File(file) => file.allocated_bytes(),
            Node::Dir { now, .. } => now.values().map(|node| self.used_bytes_below(*node)).sum(),
        }
    }

    /// The tree as a machine finds it that comes up after a power failure.
    pub(super) fn after_crash(&self, seed: &mut Seed) -> Tree {
        let mut crashed = self.clone();
        crashed.keep_some_names(seed);
        for node in &mut crashed.nodes {
            *node = match &**node {
                Node::File(file) if file.is_durable() => continue,
                Node::File(file) => Arc::new(Node::File(file.after_crash(seed))),
                Node::Dir { durable, .. } => {
                    Arc::new(Node::Dir { now: durable.clone(), durable: durable.clone() })
                }
            };
        }
        crashed
    }

    /// Makes some pending changes durable and forgets the others. A change is lost with any that it
    /// depends on, so what is left could have happened.
    fn keep_some_names(&mut self, seed: &mut Seed) {
        let pending = std::mem::take(&mut self.pending);
        let loss_in_eight = [0, 1, 4, 8][seed.below(4)];
        let mut lost = BTreeSet::new();
        for change in &pending {
            let touched = change.touched().map(|(dir, name)| (dir, name.clone()));
            let depends = touched.iter().any(|name| lost.contains(name));
            if depends || seed.below(8) < loss_in_eight {
                lost.extend(touched);
            } else {
                self.make_durable(change);
            }
        }
    }
}

/// The names along a path; roots and dots lead nowhere.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = Arc<str>> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_str().expect("our names are UTF-8").into()),
        _ => None,
    })
}
