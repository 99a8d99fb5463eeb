//! Which nodes run on which machine.

use std::collections::{BTreeSet, HashMap};

use super::core::Core;

/// The names of the nodes of each machine that has any.
#[derive(Default)]
pub(crate) struct Machines(HashMap<String, BTreeSet<String>>);

impl Machines {
    /// A node is on another machine than before; `None`: it was not there, or is gone.
    pub(super) fn put(&mut self, node: &str, before: Option<&str>, now: Option<&str>) {
        if before == now {
            return;
        }
        if let Some(machine) = before
            && let Some(nodes) = self.0.get_mut(machine)
        {
            nodes.remove(node);
            if nodes.is_empty() {
                self.0.remove(machine);
            }
        }
        if let Some(machine) = now {
            self.0.entry(machine.to_owned()).or_default().insert(node.to_owned());
        }
    }
}

impl Core {
    /// The node of a machine, of several the first whose devices can be granted.
    pub(super) fn node_on(&self, machine: &str) -> Option<&str> {
        let here = self.machines.0.get(machine)?;
        let is_ready = |name: &&String| self.nodes.get(*name).is_some_and(|node| node.available());
        here.iter().find(is_ready).or_else(|| here.first()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_move_and_go() {
        let mut machines = Machines::default();
        machines.put("a", None, Some("m"));
        machines.put("b", None, Some("m"));
        machines.put("a", Some("m"), Some("m"));
        assert_eq!(machines.0["m"].iter().collect::<Vec<_>>(), ["a", "b"]);
        machines.put("a", Some("m"), Some("n"));
        machines.put("b", Some("m"), None);
        assert_eq!((machines.0.len(), machines.0["n"].len()), (1, 1));
        machines.put("a", Some("n"), None);
        assert!(machines.0.is_empty());
    }
}
