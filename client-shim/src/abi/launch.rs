//! What a launch's attributes ask for, in both APIs.

use super::types::{AttributeValue, EventRef, LaunchAttribute, launch_attribute as id};
use super::{In, KernelArguments};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Core, Params, Result, Stream};

/// What the attributes of `cudaLaunchKernelExC` and `cuLaunchKernelEx` ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchAttributes {
    /// Whether the blocks wait for each other.
    pub(crate) cooperative: bool,
    /// Blocks of a cluster in x, y, z; zeros where nothing is said of them.
    pub(crate) cluster: [u32; 3],
    /// Events to be recorded once the kernel is done: earlier would do, where the program asks for that.
    events: Vec<EventRef>,
}

impl LaunchAttributes {
    /// Reads a configuration's attributes. What cannot be ignored without changing results is refused.
    ///
    /// # Safety
    /// There are `count` attributes, if any.
    pub(crate) unsafe fn read(attributes: In<LaunchAttribute>, count: u32) -> Result<Self> {
        let mut found = Self::default();
        // SAFETY: the caller's promise.
        for attribute in unsafe { attributes.list(count as usize) }? {
            match attribute.id {
                id::COOPERATIVE => found.cooperative = attribute.first() != 0,
                id::CLUSTER_DIMENSION => found.cluster = cluster_of(&attribute.value),
                id::DEVICE_UPDATABLE => check_updatable(&attribute.value)?,
                id::PROGRAMMATIC_EVENT | id::LAUNCH_COMPLETION_EVENT => {
                    found.events.push(attribute.value[0] as EventRef);
                }
                id::IGNORE
                | id::ACCESS_POLICY_WINDOW
                | id::SYNCHRONIZATION_POLICY
                | id::CLUSTER_SCHEDULING
                | id::PROGRAMMATIC_SERIALIZATION
                | id::PRIORITY
                | id::MEM_SYNC_DOMAIN_MAP
                | id::MEM_SYNC_DOMAIN
                | id::PREFERRED_CLUSTER_DIMENSION
                | id::PREFERRED_CARVEOUT
                | id::NVLINK_SCHEDULING => {}
                other => return Err(not_implemented(&format!("launch attribute {other}"))),
            }
        }
        Ok(found)
    }

    /// Records the events after the launch.
    pub(crate) fn record_events(&self, core: &Core, stream: &Stream) -> Result<()> {
        for &event in &self.events {
            core.event_record(&*core.event(event)?, stream)?;
        }
        Ok(())
    }

    /// Whether events are to be recorded.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
}

/// The blocks of a cluster in x, y, z that an attribute asks for; zeros if it is all zeros. Sides that are left out are 1.
pub(crate) fn cluster_of(value: &AttributeValue) -> [u32; 3] {
    let [xy, z, ..] = *value;
    let sides = [xy as u32, (xy >> 32) as u32, z as u32];
    if sides == [0; 3] { sides } else { sides.map(|side| side.max(1)) }
}

/// Such an attribute.
pub(crate) fn cluster_value([x, y, z]: [u32; 3]) -> AttributeValue {
    [u64::from(x) | u64::from(y) << 32, z.into(), 0, 0, 0, 0, 0, 0]
}

/// Refuses nodes that kernels change while a graph runs.
pub(crate) fn check_updatable(value: &AttributeValue) -> Result<()> {
    match value[0] as u32 {
        0 => Ok(()),
        _ => Err(not_implemented("a kernel node that the device updates")),
    }
}

/// A kernel's arguments in either of the two ways in which a launch or a kernel node may give them.
pub(crate) fn kernel_params(list: KernelArguments, extra: KernelArguments) -> Result<Params> {
    match (list.is_null(), extra.is_null()) {
        (_, true) => Ok(Params::Pointers(list.as_ptr())),
        (true, false) => Ok(Params::Extra(extra.as_ptr())),
        (false, false) => Err(invalid("a launch has both parameters and extra")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(id: u32, first: u64) -> LaunchAttribute {
        LaunchAttribute { id, pad: 0, value: [first, 0, 0, 0, 0, 0, 0, 0] }
    }

    fn read(attributes: &[LaunchAttribute]) -> Result<LaunchAttributes> {
        // SAFETY: the slice has so many.
        unsafe { LaunchAttributes::read(In::new(attributes.as_ptr()), attributes.len() as u32) }
    }

    #[test]
    fn attributes_that_matter_are_heeded_or_refused() {
        assert_eq!(read(&[]).unwrap(), LaunchAttributes::default());
        assert!(read(&[attribute(id::COOPERATIVE, 1)]).unwrap().cooperative);
        let cluster = |first| read(&[attribute(id::CLUSTER_DIMENSION, first)]).unwrap().cluster;
        assert_eq!((cluster(0), cluster(0x2_0000_0003)), ([0; 3], [3, 2, 1]));
        assert_eq!(cluster_of(&cluster_value([4, 1, 2])), [4, 1, 2]);
        assert!(read(&[attribute(4711, 0)]).is_err());
        assert!(read(&[attribute(id::DEVICE_UPDATABLE, 0)]).is_ok());
        assert!(read(&[attribute(id::DEVICE_UPDATABLE, 1)]).is_err());
        let with_events =
            read(&[attribute(id::LAUNCH_COMPLETION_EVENT, 7), attribute(id::PROGRAMMATIC_EVENT, 8)]);
        assert_eq!(with_events.unwrap().events, [7, 8]);
        // SAFETY: null is an error before anything is read.
        assert!(unsafe { LaunchAttributes::read(In::null(), 1) }.is_err());
    }
}
