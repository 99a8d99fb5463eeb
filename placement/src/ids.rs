//! The numbers by which things are named: small, dense, and different types for different things.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into a vector.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(/** A node (machine) of a [`Cluster`](crate::Cluster), in the order in which nodes were added. */ NodeId);
id!(/** A device of a [`Cluster`](crate::Cluster); one node's devices have consecutive numbers. */ DeviceId);
id!(/** A switch of a [`Cluster`](crate::Cluster). */ SwitchId);
id!(
    /** A link of a [`Cluster`](crate::Cluster): link `n` below the number of nodes is node `n`'s NIC, and the
    others are the switches' uplinks (see [`Cluster::uplink`](crate::Cluster::uplink)). */
    LinkId
);
id!(
    /** A job, numbered by the caller. Numbers should be dense (0, 1, 2, …): a [`ClusterState`](crate::ClusterState) keeps a
    vector of them. */
    JobId
);
id!(/** A profile of a [`Profiles`](crate::Profiles) table. */ ProfileId);

/// The kinds of resources that can be disaggregated, one phase of the flow model each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// Non-volatile memory (storage).
    Nvme,
}

impl DeviceKind {
    /// Every kind, in the order of the phases.
    pub const ALL: [DeviceKind; 2] = [DeviceKind::Gpu, DeviceKind::Nvme];
    /// How many kinds there are.
    pub const COUNT: usize = Self::ALL.len();

    /// As an index into an array of `[_; DeviceKind::COUNT]`.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DeviceKind::Gpu => "GPU",
            DeviceKind::Nvme => "NVMe",
        })
    }
}

/// A device model, by its number in [`Cluster::models`](crate::Cluster::models).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u8);

/// A set of device models: what a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelSet(u64);

impl ModelSet {
    /// How many models a cluster may have.
    pub const LIMIT: usize = 64;
    /// The set of all models: a request that takes whatever there is.
    pub const ANY: ModelSet = ModelSet(u64::MAX);
    /// The set without any model, to which models are added.
    pub const EMPTY: ModelSet = ModelSet(0);

    /// The set with `model` added.
    #[must_use]
    pub fn with(self, model: ModelId) -> ModelSet {
        ModelSet(self.0 | 1 << (model.0 & 63))
    }

    /// Whether `model` is in the set.
    pub fn contains(self, model: ModelId) -> bool {
        self.0 >> (model.0 & 63) & 1 == 1
    }

    /// Whether nothing is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A set of capabilities of nodes, such as to encrypt connections: what a node offers, or what a request needs. The names are
/// the cluster's ([`Cluster::capability`](crate::Cluster::capability)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilitySet(u64);

impl CapabilitySet {
    /// How many capabilities a cluster may know.
    pub const LIMIT: usize = 64;
    /// The set without any capability: a request that needs none.
    pub const NONE: CapabilitySet = CapabilitySet(0);

    /// The set of the capability with that number alone.
    pub(crate) fn only(number: usize) -> CapabilitySet {
        CapabilitySet(1 << (number & 63))
    }

    /// What is in either set.
    #[must_use]
    pub fn with(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 | other.0)
    }

    /// Whether everything in `needs` is in this set.
    pub fn has_all(self, needs: CapabilitySet) -> bool {
        needs.0 & !self.0 == 0
    }

    /// The numbers of what is in `needs` and not in this set.
    pub(crate) fn lacking(self, needs: CapabilitySet) -> impl Iterator<Item = usize> {
        let left = needs.0 & !self.0;
        (0..Self::LIMIT).filter(move |number| left >> number & 1 == 1)
    }
}

impl Default for ModelSet {
    fn default() -> ModelSet {
        ModelSet::ANY
    }
}
