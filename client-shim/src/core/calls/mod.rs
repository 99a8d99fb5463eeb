//! What the doors ask of [`Core`](super::Core), in the driver API's terms.
//!
//! Each thing has its owner, which knows nothing of the core: devices, contexts, streams and events, memory, modules,
//! libraries, graphs, captures. A call that concerns one owner alone is forwarded to it. What concerns several is put
//! together here: whether a stream is captured before work is put on it, in what order a context's belongings go, which
//! memory a copy is between.

mod context;
mod copy;
mod device;
mod graph;
pub(super) mod ipc_event;
mod launch;
mod math;
mod memory;
mod module;
mod occupancy;
pub(crate) mod relaunch;
mod stream;
mod tensor_map;
mod texture;
mod virtual_memory;

/// Methods of the core that are one owner's, under the same name.
macro_rules! forward {
    ($owner:ident: $($(#[$doc:meta])* fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        impl Core {
            $($(#[$doc])* #[inline] pub(crate) fn $name(&self $(, $arg: $type)*) -> $result {
                self.$owner.$name($($arg),*)
            })*
        }
    };
}
use forward;
