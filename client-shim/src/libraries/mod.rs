//! Doors for NVIDIA's libraries above the driver: each a folder here with a table in the [form of all doors](crate::doors::table).

pub(crate) mod common;
pub(crate) mod cufft;
pub(crate) mod curand;
pub(crate) mod cusolver;
pub(crate) mod cusparse;
