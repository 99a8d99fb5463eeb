//! All graphs of a core, their nodes, what was instantiated of them, and user objects.
//!
//! They live behind one lock, which is never held while a node's work is done or dropped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::condition::{Choice, Condition, Conditional, check_inside};
use super::exec::{Exec, Mismatch, Part, Plan, Shape, Step};
use super::op::{HostCall, Kernel, Op, ShownArguments};
use crate::core::error::{Code, Error, Result, invalid};
use crate::core::registry::{NumberMap, Raw, fresh};

/// A node: the graph it is in, and the work it stands for.
struct Node {
    graph: Raw,
    op: Op,
    /// A kernel's arguments, once the program has asked for them.
    shown: Option<ShownArguments>,
}

impl Node {
    fn new(graph: Raw, op: Op) -> Self {
        Self { graph, op, shown: None }
    }

    /// Does something else of its kind; what it did is returned, to be dropped without the lock.
    fn replace(&mut self, op: Op) -> Result<Op> {
        if self.op.kind() != op.kind() {
            return Err(invalid("the node is of another kind"));
        }
        match (&mut self.shown, &op) {
            (Some(shown), Op::Kernel(kernel)) => shown.update(kernel),
            _ => self.shown = None,
        }
        Ok(std::mem::replace(&mut self.op, op))
    }
}

/// A graph: nodes, and the order between them.
#[derive(Default)]
struct Graph {
    nodes: Vec<Raw>,
    /// Pairs of nodes: the second comes after the first.
    edges: Vec<(Raw, Raw)>,
    /// For a clone: which of its nodes stands for which of the original's.
    origin: NumberMap<Raw, Raw>,
    /// Whether it belongs to a node: a child graph, or what is done on a condition.
    is_child: bool,
    /// The conditions that the program has made for its nodes.
    conditions: Vec<Arc<Condition>>,
    /// User objects that it keeps alive, and how many references of each.
    objects: NumberMap<Raw, u32>,
}

/// All graphs, by their handles.
#[derive(Default)]
struct Tables {
    graphs: NumberMap<Raw, Graph>,
    nodes: NumberMap<Raw, Node>,
    execs: NumberMap<Raw, Arc<Exec>>,
    objects: NumberMap<Raw, UserObject>,
}

/// Something of the program's that lives as long as it is referred to.
struct UserObject {
    references: u64,
    destroy: HostCall,
}

/// What has been taken out of the tables.
#[derive(Default)]
struct Removed {
    ops: Vec<Op>,
    conditions: Vec<Arc<Condition>>,
}

impl Removed {
    fn add(&mut self, other: Self) {
        self.ops.extend(other.ops);
        self.conditions.extend(other.conditions);
    }
}

fn no_graph(raw: Raw) -> Error {
    invalid(format!("{raw:#x} is not a graph"))
}

impl Tables {
    fn graph(&mut self, raw: Raw) -> Result<&mut Graph> {
        self.graphs.get_mut(&raw).ok_or_else(|| no_graph(raw))
    }

    fn node(&mut self, raw: Raw) -> Result<&mut Node> {
        self.nodes.get_mut(&raw).ok_or_else(|| invalid(format!("{raw:#x} is not a node")))
    }

    /// The graph of a node, which must be alive.
    fn graph_of(&mut self, node: Raw) -> Result<&mut Graph> {
        let graph = self.node(node)?.graph;
        self.graph(graph)
    }

    fn add_node(&mut self, graph: Raw, dependencies: &[Raw], op: Op) -> Result<Raw> {
        let mut seen = HashSet::new();
        for dependency in dependencies {
            if self.node(*dependency)?.graph != graph || !seen.insert(*dependency) {
                return Err(invalid("a dependency is in another graph, or given twice"));
            }
        }
        let raw = fresh();
        let target = self.graph(graph)?;
        target.nodes.push(raw);
        target.edges.extend(dependencies.iter().map(|from| (*from, raw)));
        self.nodes.insert(raw, Node::new(graph, op));
        Ok(raw)
    }

    /// Removes a graph with everything in it; what was in it is returned, to be dropped without the lock.
    fn remove_graph(&mut self, raw: Raw) -> Removed {
        let mut removed = Removed::default();
        let Some(graph) = self.graphs.remove(&raw) else { return removed };
        removed.conditions = graph.conditions;
        for node in graph.nodes {
            removed.add(self.remove_node(node));
        }
        removed
    }

    /// Removes a node with the graphs that belong to it.
    fn remove_node(&mut self, raw: Raw) -> Removed {
        let mut removed = Removed::default();
        let Some(node) = self.nodes.remove(&raw) else { return removed };
        for &graph in node.op.graphs() {
            removed.add(self.remove_graph(graph));
        }
        removed.ops.push(node.op);
        removed
    }

    /// Whether there are conditional nodes in a graph or its child graphs.
    fn has_conditional(&mut self, raw: Raw) -> Result<bool> {
        for node in self.graph(raw)?.nodes.clone() {
            let found = match self.node(node)?.op {
                Op::Conditional(_) => true,
                Op::Child(child) => self.has_conditional(child)?,
                _ => false,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a graph can be made a child of another one as it is.
    fn can_move(&mut self, child: Raw, parent: Raw) -> Result<()> {
        if self.graph(child)?.is_child {
            return Err(invalid("a child graph belongs to its node, and cannot be moved to another graph"));
        }
        if self.has_conditional(child)? {
            return Err(Error::new(
                Code::NotSupported,
                "graphs with conditional nodes cannot be child graphs",
            ));
        }
        let mut open = vec![child];
        while let Some(graph) = open.pop() {
            if graph == parent {
                return Err(invalid("a graph cannot be moved into itself"));
            }
            for node in self.graph(graph)?.nodes.clone() {
                if let Op::Child(inner) = self.node(node)?.op {
                    open.push(inner);
                }
            }
        }
        Ok(())
    }

    fn clone_graph(&mut self, raw: Raw, is_child: bool) -> Result<Raw> {
        if self.has_conditional(raw)? {
            return Err(Error::new(Code::NotSupported, "graphs with conditional nodes cannot be cloned"));
        }
        let source = self.graph(raw)?;
        let (nodes, edges) = (source.nodes.clone(), source.edges.clone());
        let copy = fresh();
        let mut origin = NumberMap::default();
        let mut copies = Vec::new();
        for node in nodes {
            let op = match self.node(node)?.op.clone() {
                Op::Child(child) => Op::Child(self.clone_graph(child, true)?),
                op => op,
            };
            let raw = fresh();
            origin.insert(node, raw);
            copies.push(raw);
            self.nodes.insert(raw, Node::new(copy, op));
        }
        let edges = edges.iter().map(|(from, to)| (origin[from], origin[to])).collect();
        let graph = Graph { nodes: copies, edges, origin, is_child, ..Graph::default() };
        self.graphs.insert(copy, graph);
        Ok(copy)
    }

    /// The nodes in an order that honours the edges and otherwise that of their creation.
    fn order(&mut self, raw: Raw) -> Result<Vec<Raw>> {
        let graph = self.graph(raw)?;
        let mut waits: HashMap<Raw, usize> = graph.nodes.iter().map(|n| (*n, 0)).collect();
        let mut next: HashMap<Raw, Vec<Raw>> = HashMap::new();
        for (from, to) in &graph.edges {
            *waits.entry(*to).or_default() += 1;
            next.entry(*from).or_default().push(*to);
        }
        let mut ready: VecDeque<Raw> = graph.nodes.iter().copied().filter(|n| waits[n] == 0).collect();
        let mut order = Vec::with_capacity(graph.nodes.len());
        while let Some(node) = ready.pop_front() {
            order.push(node);
            for to in next.get(&node).into_iter().flatten() {
                if let Some(left) = waits.get_mut(to) {
                    *left -= 1;
                    if *left == 0 {
                        ready.push_back(*to);
                    }
                }
            }
        }
        if order.len() == graph.nodes.len() { Ok(order) } else { Err(invalid("the graph has a cycle")) }
    }

    /// What the graph does, child graphs included.
    fn plan(&mut self, raw: Raw) -> Result<Plan> {
        let mut plan = Plan::default();
        plan.shape = self.flatten(raw, &mut plan, false)?;
        Ok(plan)
    }

    /// Appends what the graph does; its shape. Less is allowed in what is done on a condition (`inside`).
    fn flatten(&mut self, raw: Raw, plan: &mut Plan, inside: bool) -> Result<Shape> {
        let order = self.order(raw)?;
        let graph = self.graph(raw)?;
        let numbers: HashMap<Raw, usize> =
            graph.nodes.iter().enumerate().map(|(n, node)| (*node, n)).collect();
        let mut edges: Vec<_> = graph.edges.iter().map(|(from, to)| (numbers[from], numbers[to])).collect();
        edges.sort_unstable();
        let (mut children, mut conditional) = (Vec::new(), Vec::new());
        for node in order {
            let op = self.node(node)?.op.clone();
            if inside {
                check_inside(op.kind())?;
            }
            let place = plan.steps.len();
            match op {
                Op::Child(child) => {
                    let shape = self.flatten(child, plan, inside)?;
                    plan.parts.push(Part { node, steps: place..plan.steps.len(), shape: shape.clone() });
                    children.push((numbers[&node], shape));
                }
                Op::Conditional(work) => {
                    let (mut branches, mut shapes) = (Vec::new(), Vec::new());
                    let op = Op::Conditional(work.clone());
                    plan.steps.push(Step { node, op, branches: Vec::new(), enabled: true });
                    for &graph in &work.graphs {
                        let first = plan.steps.len();
                        shapes.push(self.flatten(graph, plan, true)?);
                        branches.push(first..plan.steps.len());
                    }
                    plan.steps[place].branches = branches;
                    conditional.push((numbers[&node], work.choice, shapes));
                }
                op => plan.steps.push(Step { node, op, branches: Vec::new(), enabled: true }),
            }
        }
        children.sort_unstable_by_key(|child| child.0);
        conditional.sort_unstable_by_key(|node| node.0);
        Ok(Shape { nodes: numbers.len(), edges, children, conditional })
    }

    /// Whether `to` is `from` or comes after it.
    fn reaches(&mut self, from: Raw, to: &HashSet<Raw>) -> bool {
        let Ok(graph) = self.graph_of(from) else { return false };
        let (mut open, mut seen) = (vec![from], HashSet::new());
        while let Some(node) = open.pop() {
            if to.contains(&node) {
                return true;
            }
            if seen.insert(node) {
                open.extend(graph.edges.iter().filter(|e| e.0 == node).map(|e| e.1));
            }
        }
        false
    }
}

/// All graphs of a core.
#[derive(Default)]
pub(crate) struct GraphStore(Mutex<Tables>);

impl GraphStore {
    /// Runs `f` with the tables.
    fn with<T>(&self, f: impl FnOnce(&mut Tables) -> T) -> T {
        f(&mut self.0.lock())
    }

    /// Whether one of the nodes `to` is `from` or comes after it.
    pub(super) fn reaches(&self, from: Raw, to: &HashSet<Raw>) -> bool {
        self.with(|tables| tables.reaches(from, to))
    }

    /// `cudaGraphCreate`
    pub(crate) fn create(&self) -> Raw {
        let raw = fresh();
        self.with(|tables| tables.graphs.insert(raw, Graph::default()));
        raw
    }

    /// `cudaGraphDestroy`
    pub(crate) fn destroy(&self, graph: Raw) -> Result<()> {
        let (removed, objects) = self.with(|tables| {
            let found = tables.graph(graph)?;
            if found.is_child {
                return Err(invalid("a child graph belongs to its node"));
            }
            let objects = std::mem::take(&mut found.objects);
            Ok((tables.remove_graph(graph), objects))
        })?;
        drop(removed);
        for (object, count) in objects {
            self.object_release(object, count)?;
        }
        Ok(())
    }

    /// `cudaGraphClone`
    pub(crate) fn clone_graph(&self, graph: Raw) -> Result<Raw> {
        self.with(|tables| tables.clone_graph(graph, false))
    }

    /// `cudaGraphNodeFindInClone`
    pub(crate) fn find_in_clone(&self, node: Raw, clone: Raw) -> Result<Raw> {
        self.with(|tables| {
            let found = tables.graph(clone)?.origin.get(&node).copied();
            found.ok_or_else(|| invalid("the graph is no clone of the node's"))
        })
    }

    /// Whether there is a graph of this handle.
    pub(crate) fn check(&self, graph: Raw) -> Result<()> {
        self.with(|tables| tables.graph(graph).map(drop))
    }

    /// Adds a node to a graph, after the nodes it depends on: the node's handle. Dependencies of another graph, or given
    /// twice, are an invalid value.
    pub(crate) fn add(&self, graph: Raw, dependencies: &[Raw], op: Op) -> Result<Raw> {
        self.with(|tables| tables.add_node(graph, dependencies, op))
    }

    /// `cudaGraphAddChildGraphNode`: the child is copied, or belongs to the node from now on where it is `moved`.
    pub(crate) fn add_child(&self, graph: Raw, dependencies: &[Raw], child: Raw, moved: bool) -> Result<Raw> {
        self.with(|tables| {
            if moved {
                tables.can_move(child, graph)?;
                let added = tables.add_node(graph, dependencies, Op::Child(child))?;
                let found = tables.graph(child)?;
                found.is_child = true;
                let objects = std::mem::take(&mut found.objects);
                let kept = &mut tables.graph(graph)?.objects;
                objects.into_iter().for_each(|(object, count)| *kept.entry(object).or_default() += count);
                return Ok(added);
            }
            let copy = tables.clone_graph(child, true)?;
            let added = tables.add_node(graph, dependencies, Op::Child(copy));
            if added.is_err() {
                tables.remove_graph(copy);
            }
            added
        })
    }

    /// `cudaGraphConditionalHandleCreate`: the graph keeps the condition.
    pub(crate) fn add_condition(&self, graph: Raw, condition: Arc<Condition>) -> Result<()> {
        self.with(|tables| {
            tables.graph(graph)?.conditions.push(condition);
            Ok(())
        })
    }

    /// Adds a node that does what so many new graphs do, as the condition of a handle says: its handle, and where the graphs' are.
    pub(crate) fn add_conditional(
        &self,
        graph: Raw,
        dependencies: &[Raw],
        handle: u64,
        choice: Choice,
        graphs: u32,
    ) -> Result<(Raw, usize)> {
        self.with(|tables| {
            let conditions = &tables.graph(graph)?.conditions;
            let condition = conditions.iter().find(|condition| condition.word.addr == handle).cloned();
            let condition = condition
                .ok_or_else(|| invalid(format!("{handle:#x} is no handle of the graph's conditions")))?;
            let graphs = (0..graphs).map(|_| fresh()).collect();
            let work = Arc::new(Conditional { condition, choice, graphs });
            let node = tables.add_node(graph, dependencies, Op::Conditional(work.clone()))?;
            for &graph in &work.graphs {
                tables.graphs.insert(graph, Graph { is_child: true, ..Graph::default() });
            }
            // The node keeps the list where it is.
            Ok((node, work.graphs.as_ptr() as usize))
        })
    }

    /// `cudaGraphDestroyNode`: the node's edges go with it.
    pub(crate) fn destroy_node(&self, node: Raw) -> Result<()> {
        let removed = self.with(|tables| {
            let graph = tables.graph_of(node)?;
            graph.nodes.retain(|n| *n != node);
            graph.edges.retain(|e| e.0 != node && e.1 != node);
            Ok::<_, Error>(tables.remove_node(node))
        })?;
        drop(removed);
        Ok(())
    }

    /// What a node does.
    pub(crate) fn op(&self, node: Raw) -> Result<Op> {
        self.with(|tables| Ok(tables.node(node)?.op.clone()))
    }

    /// Makes a node do something else of its kind. A kernel's attributes stay what they are.
    pub(crate) fn set_op(&self, node: Raw, op: Op) -> Result<()> {
        let old = self.with(|tables| {
            let node = tables.node(node)?;
            let op = op.with_attributes_of(&node.op);
            node.replace(op)
        })?;
        drop(old);
        Ok(())
    }

    /// Changes a kernel node's attributes.
    pub(crate) fn change_kernel(&self, node: Raw, change: &dyn Fn(&mut Kernel)) -> Result<()> {
        self.with(|tables| {
            let Op::Kernel(kernel) = &mut tables.node(node)?.op else {
                return Err(invalid("this is no kernel node"));
            };
            change(kernel);
            Ok(())
        })
    }

    /// A kernel node's kernel, and where copies of its arguments are: a list of pointers that stays as long as the node
    /// is there and launches the same kernel.
    pub(crate) fn shown_kernel(&self, node: Raw) -> Result<(Kernel, usize)> {
        self.with(|tables| {
            let node = tables.node(node)?;
            let Op::Kernel(kernel) = &node.op else {
                return Err(invalid("this is no kernel node"));
            };
            let shown = node.shown.get_or_insert_with(|| ShownArguments::new(kernel));
            shown.update(kernel);
            Ok((kernel.clone(), shown.list() as usize))
        })
    }

    /// `cudaGraphAddDependencies`
    pub(crate) fn add_edges(&self, graph: Raw, edges: &[(Raw, Raw)]) -> Result<()> {
        self.with(|tables| {
            for (from, to) in edges {
                if tables.node(*from)?.graph != graph || tables.node(*to)?.graph != graph || from == to {
                    return Err(invalid("an edge's nodes are not two of this graph's"));
                }
            }
            let found = tables.graph(graph)?;
            if edges.iter().any(|edge| found.edges.contains(edge)) {
                return Err(invalid("there is such an edge already"));
            }
            found.edges.extend(edges);
            Ok(())
        })
    }

    /// `cudaGraphRemoveDependencies`
    pub(crate) fn remove_edges(&self, graph: Raw, edges: &[(Raw, Raw)]) -> Result<()> {
        self.with(|tables| {
            let found = tables.graph(graph)?;
            if edges.iter().any(|edge| !found.edges.contains(edge)) {
                return Err(invalid("there is no such edge"));
            }
            found.edges.retain(|edge| !edges.contains(edge));
            Ok(())
        })
    }

    /// `cudaGraphGetNodes`
    pub(crate) fn nodes(&self, graph: Raw) -> Result<Vec<Raw>> {
        self.with(|tables| Ok(tables.graph(graph)?.nodes.clone()))
    }

    /// `cudaGraphGetRootNodes`
    pub(crate) fn roots(&self, graph: Raw) -> Result<Vec<Raw>> {
        self.with(|tables| {
            let graph = tables.graph(graph)?;
            let roots = graph.nodes.iter().filter(|n| graph.edges.iter().all(|e| e.1 != **n));
            Ok(roots.copied().collect())
        })
    }

    /// `cudaGraphGetEdges`
    pub(crate) fn edges(&self, graph: Raw) -> Result<Vec<(Raw, Raw)>> {
        self.with(|tables| Ok(tables.graph(graph)?.edges.clone()))
    }

    /// `cudaGraphNodeGetDependencies`
    pub(crate) fn dependencies(&self, node: Raw) -> Result<Vec<Raw>> {
        self.with(|tables| {
            Ok(tables.graph_of(node)?.edges.iter().filter(|e| e.1 == node).map(|e| e.0).collect())
        })
    }

    /// `cudaGraphNodeGetDependentNodes`
    pub(crate) fn dependents(&self, node: Raw) -> Result<Vec<Raw>> {
        self.with(|tables| {
            Ok(tables.graph_of(node)?.edges.iter().filter(|e| e.0 == node).map(|e| e.1).collect())
        })
    }

    /// `cudaGraphInstantiate`: the handle of what can be launched.
    pub(crate) fn instantiate(&self, graph: Raw, flags: u64) -> Result<Raw> {
        self.with(|tables| {
            let plan = tables.plan(graph)?;
            let raw = fresh();
            tables.execs.insert(raw, Arc::new(Exec::new(plan, flags)));
            Ok(raw)
        })
    }

    /// The executable graph behind a handle.
    pub(crate) fn exec(&self, raw: Raw) -> Result<Arc<Exec>> {
        self.with(|tables| tables.execs.get(&raw).cloned())
            .ok_or_else(|| invalid(format!("{raw:#x} is not an executable graph")))
    }

    /// `cudaGraphExecDestroy`
    pub(crate) fn exec_destroy(&self, raw: Raw) -> Result<()> {
        let removed = self.with(|tables| tables.execs.remove(&raw));
        removed.map(drop).ok_or_else(|| invalid(format!("{raw:#x} is not an executable graph")))
    }

    /// `cudaGraphExecUpdate`: the outer error is about the handles, the inner one about the graphs.
    pub(crate) fn exec_update(&self, exec: Raw, graph: Raw) -> Result<std::result::Result<(), Mismatch>> {
        let exec = self.exec(exec)?;
        let plan = self.with(|tables| tables.plan(graph))?;
        Ok(exec.update(&plan))
    }

    /// `cudaGraphExecChildGraphNodeSetParams`
    pub(crate) fn exec_set_child(&self, exec: Raw, node: Raw, child: Raw) -> Result<()> {
        let exec = self.exec(exec)?;
        let plan = self.with(|tables| tables.plan(child))?;
        exec.set_child(node, &plan)
    }

    /// `cudaUserObjectCreate`
    pub(crate) fn object_create(&self, destroy: HostCall, references: u32) -> Raw {
        let raw = fresh();
        self.with(|tables| {
            tables.objects.insert(raw, UserObject { references: u64::from(references), destroy })
        });
        raw
    }

    /// `cudaUserObjectRetain`
    pub(crate) fn object_retain(&self, object: Raw, count: u32) -> Result<()> {
        self.with(|tables| {
            let found =
                tables.objects.get_mut(&object).ok_or_else(|| invalid("this is not a user object"))?;
            found.references += u64::from(count);
            Ok(())
        })
    }

    /// `cudaUserObjectRelease`: the last reference destroys it.
    pub(crate) fn object_release(&self, object: Raw, count: u32) -> Result<()> {
        let destroyed = self.with(|tables| {
            let found =
                tables.objects.get_mut(&object).ok_or_else(|| invalid("this is not a user object"))?;
            found.references = found.references.checked_sub(u64::from(count)).ok_or(Code::InvalidValue)?;
            Ok::<_, Error>(if found.references == 0 { tables.objects.remove(&object) } else { None })
        })?;
        if let Some(object) = destroyed {
            object.destroy.call();
        }
        Ok(())
    }

    /// `cudaGraphRetainUserObject`; with `moved` the caller's references become the graph's.
    pub(crate) fn retain_object(&self, graph: Raw, object: Raw, count: u32, moved: bool) -> Result<()> {
        self.check(graph)?;
        self.object_retain(object, if moved { 0 } else { count })?;
        self.with(|tables| {
            *tables.graph(graph)?.objects.entry(object).or_default() += count;
            Ok(())
        })
    }

    /// `cudaGraphReleaseUserObject`
    pub(crate) fn release_object(&self, graph: Raw, object: Raw, count: u32) -> Result<()> {
        self.with(|tables| {
            let held = tables.graph(graph)?.objects.get_mut(&object).ok_or_else(|| invalid("not held"))?;
            *held = held.checked_sub(count).ok_or_else(|| invalid("the graph has fewer references"))?;
            Ok::<_, Error>(())
        })?;
        self.object_release(object, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(store: &GraphStore, graph: Raw, len: usize) -> Vec<Raw> {
        let mut nodes: Vec<Raw> = Vec::new();
        for _ in 0..len {
            let last: Vec<Raw> = nodes.last().copied().into_iter().collect();
            nodes.push(store.add(graph, &last, Op::Empty).unwrap());
        }
        nodes
    }

    #[test]
    fn edges_and_order() {
        let store = GraphStore::default();
        let graph = store.create();
        let nodes = chain(&store, graph, 3);
        let first = store.add(graph, &[], Op::Empty).unwrap();
        store.add_edges(graph, &[(first, nodes[0])]).unwrap();
        assert!(store.add_edges(graph, &[(first, nodes[0])]).is_err());
        assert_eq!(store.with(|s| s.order(graph)).unwrap(), [first, nodes[0], nodes[1], nodes[2]]);
        assert_eq!(store.roots(graph).unwrap(), [first]);
        assert_eq!(store.dependencies(nodes[0]).unwrap(), [first]);
        assert_eq!(store.dependents(nodes[0]).unwrap(), [nodes[1]]);
        store.add_edges(graph, &[(nodes[2], first)]).unwrap();
        assert!(store.instantiate(graph, 0).is_err());
        store.remove_edges(graph, &[(nodes[2], first)]).unwrap();
        store.destroy_node(nodes[1]).unwrap();
        assert_eq!(store.edges(graph).unwrap(), [(first, nodes[0])]);
        store.destroy(graph).unwrap();
        assert!(store.op(first).is_err() && store.destroy(graph).is_err());
    }

    #[test]
    fn children_are_copies() {
        let store = GraphStore::default();
        let (outer, inner) = (store.create(), store.create());
        let nodes = chain(&store, inner, 2);
        let child = store.add_child(outer, &[], inner, false).unwrap();
        chain(&store, inner, 5);
        store.destroy(inner).unwrap();
        let exec = store.exec(store.instantiate(outer, 0).unwrap()).unwrap();
        assert_eq!(exec.steps().len(), 2);
        let Op::Child(copy) = store.op(child).unwrap() else { panic!("not a child") };
        assert!(store.find_in_clone(nodes[1], copy).is_ok());
        assert!(store.destroy(copy).is_err());
        store.destroy(outer).unwrap();
        assert!(store.check(copy).is_err());
    }

    #[test]
    fn updates_need_the_same_shape() {
        let store = GraphStore::default();
        let (a, b, c) = (store.create(), store.create(), store.create());
        chain(&store, a, 2);
        chain(&store, b, 2);
        chain(&store, c, 3);
        let exec = store.instantiate(a, 0).unwrap();
        assert!(store.exec_update(exec, b).unwrap().is_ok());
        assert!(matches!(store.exec_update(exec, c).unwrap(), Err(Mismatch::Topology)));
        // As many nodes of the same kinds, but in another order.
        let d = store.create();
        let node = store.add(d, &[], Op::Empty).unwrap();
        let other = store.add(d, &[], Op::Empty).unwrap();
        assert!(matches!(store.exec_update(exec, d).unwrap(), Err(Mismatch::Topology)));
        store.add_edges(d, &[(node, other)]).unwrap();
        assert!(store.exec_update(exec, d).unwrap().is_ok());
        store.exec_destroy(exec).unwrap();
        assert!(store.exec_update(exec, b).is_err());
    }

    #[test]
    fn a_moved_child_is_the_graph_itself() {
        let store = GraphStore::default();
        let (outer, middle, inner) = (store.create(), store.create(), store.create());
        let nodes = chain(&store, inner, 2);
        let child = store.add_child(middle, &[], inner, true).unwrap();
        assert!(matches!(store.op(child), Ok(Op::Child(graph)) if graph == inner));
        // It belongs to its node, and no graph is part of itself.
        for parent in [outer, middle, inner] {
            assert!(store.add_child(parent, &[], inner, true).is_err());
        }
        assert!(store.add_child(middle, &[], middle, true).is_err());
        assert!(store.add_child(inner, &[], middle, true).is_err());
        assert!(store.destroy(inner).is_err());
        store.add_child(outer, &[], middle, true).unwrap();
        let exec = store.exec(store.instantiate(outer, 0).unwrap()).unwrap();
        assert_eq!(exec.steps().iter().map(|step| step.node).collect::<Vec<_>>(), nodes);
        store.destroy(outer).unwrap();
        assert!(store.check(middle).is_err() && store.check(inner).is_err());
    }

    #[test]
    fn a_child_graph_of_an_executable_graph_can_be_exchanged() {
        let store = GraphStore::default();
        let free = |graph, after: &[Raw], addr| store.add(graph, after, Op::Free(addr)).unwrap();
        let inner = |first, second| {
            let graph = store.create();
            let node = free(graph, &[], first);
            free(graph, &[node], second);
            graph
        };
        let (outer, middle) = (store.create(), store.create());
        let before = free(middle, &[], 1);
        let nested = store.add_child(middle, &[before], inner(2, 3), false).unwrap();
        let child = store.add_child(outer, &[], middle, false).unwrap();
        let last = free(outer, &[child], 4);
        let raw = store.instantiate(outer, 0).unwrap();
        let does = || -> Vec<u64> {
            let steps = store.exec(raw).unwrap().steps();
            steps.iter().map(|step| if let Op::Free(addr) = step.op { addr } else { 0 }).collect()
        };
        assert_eq!(does(), [1, 2, 3, 4]);
        let other = store.create();
        let node = free(other, &[], 5);
        store.add_child(other, &[node], inner(6, 7), false).unwrap();
        store.exec_set_child(raw, child, other).unwrap();
        assert_eq!(does(), [5, 6, 7, 4]);
        // The graph's own copy of the nested child is what its node's handle is found in.
        let Op::Child(copy) = store.op(child).unwrap() else { panic!("not a child") };
        let nested = store.find_in_clone(nested, copy).unwrap();
        store.exec_set_child(raw, nested, inner(8, 9)).unwrap();
        assert_eq!(does(), [5, 8, 9, 4]);
        // Another shape, another kind, no child, no node.
        assert!(store.exec_set_child(raw, child, inner(1, 1)).is_err());
        let kinds = store.create();
        let node = store.add(kinds, &[], Op::Empty).unwrap();
        free(kinds, &[node], 1);
        assert!(store.exec_set_child(raw, nested, kinds).is_err());
        assert!(store.exec_set_child(raw, last, other).is_err());
        assert!(store.exec_set_child(raw, 1, other).is_err());
        assert_eq!(does(), [5, 8, 9, 4]);
    }
}
