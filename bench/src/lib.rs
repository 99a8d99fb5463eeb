//! What forwarding costs: `rgpu bench` measures each figure beside its limit in the same run.
