//! What a device and a module tell about themselves.

use crate::{Error, Result};

/// One value of [`DeviceInfo::attributes`]: a `CUdevice_attribute` number and its value.
pub type Attribute = (u32, i32);

/// Everything about a device that cannot change, fetched once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceInfo {
    /// Its name, as `cudaDeviceProp::name` shows it.
    pub name: String,
    /// The device's UUID, by which programs tell devices apart.
    pub uuid: [u8; 16],
    /// Memory in bytes that this application may use in all.
    pub total_memory: u64,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// The driver's version as CUDA counts it (13000 is 13.0).
    pub driver_version: u32,
    /// Which images [`crate::Device::module_load`] can use: PTX text.
    pub accepts_ptx: bool,
    /// Which images [`crate::Device::module_load`] can use: machine code (cubins).
    pub accepts_cubin: bool,
    /// `CUdevice_attribute` numbers and values, ascending by number. Numbers not listed are 0.
    pub attributes: Vec<Attribute>,
}

impl DeviceInfo {
    /// The value of a `CUdevice_attribute`; 0 where it is not listed.
    pub fn attribute(&self, number: u32) -> i32 {
        match self.attributes.binary_search_by_key(&number, |a| a.0) {
            Ok(i) => self.attributes[i].1,
            Err(_) => 0,
        }
    }
}

/// Where one kernel parameter lies in the parameter block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParamInfo {
    /// Bytes from the block's start.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

/// What a kernel says of the clusters of blocks that it is launched in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterInfo {
    /// Blocks of a cluster in x, y, z, where it prescribes them (`.reqnctapercluster`); sides that it leaves out are 0 or 1. Or zeros.
    pub required: [u32; 3],
    /// Whether a launch has to say how large clusters are (`.explicitcluster`, and nothing else).
    pub must_be_set: bool,
    /// The most blocks that a cluster may have (`.maxclusterrank`), or 0.
    pub most: u32,
}

impl ClusterInfo {
    /// The clusters that it prescribes, with every side.
    pub fn prescribed(&self) -> Option<[u32; 3]> {
        (self.required != [0; 3]).then(|| self.required.map(|side| side.max(1)))
    }
}

/// A kernel, as `cuFuncGetAttribute` and a launch need it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FunctionInfo {
    /// Its (mangled) name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<ParamInfo>,
    /// Most threads a block may have.
    pub max_threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory in bytes.
    pub static_shared: u32,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
    /// Constant memory of the module in bytes.
    pub const_bytes: u32,
    /// PTX version times ten of the target it was compiled for (80 for compute_80).
    pub ptx_version: u32,
    /// Binary version times ten of the architecture.
    pub binary_version: u32,
    /// `.reqntid`, or zeros.
    pub required_block: [u32; 3],
    /// What it says of clusters of blocks.
    pub cluster: ClusterInfo,
    /// Why the device cannot execute it, where it cannot. The other kernels of its module can be launched all the same.
    pub refusal: Option<Error>,
}

impl FunctionInfo {
    /// Size of the parameter block in bytes.
    pub fn param_bytes(&self) -> u32 {
        self.params.iter().map(|p| p.offset + p.size).max().unwrap_or(0)
    }

    /// Checks that the device can execute it.
    ///
    /// # Errors
    /// [`FunctionInfo::refusal`].
    pub fn check_executable(&self) -> Result<()> {
        self.refusal.clone().map_or(Ok(()), Err)
    }
}

/// The state space of a module-level variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum GlobalKind {
    /// `.global`
    #[default]
    Global = 0,
    /// `.const`
    Constant = 1,
    /// `.global .attribute(.managed)`
    Managed = 2,
    /// `.global .texref`: a header of [`texture`](crate::texture), which whoever binds something to it writes.
    Texture = 3,
    /// `.global .surfref`, likewise.
    Surface = 4,
}

impl GlobalKind {
    /// By its number; `None` where there is none with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Global, Self::Constant, Self::Managed, Self::Texture, Self::Surface]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }

    /// Whether it is a texture or surface reference, which to a program is no variable.
    pub fn is_reference(self) -> bool {
        matches!(self, Self::Texture | Self::Surface)
    }
}

/// A module-level variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GlobalInfo {
    /// Its (mangled) name.
    pub name: String,
    /// Its device address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its state space.
    pub kind: GlobalKind,
}

/// What loading a module yields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleInfo {
    /// Its kernels; a launch names one by its index.
    pub functions: Vec<FunctionInfo>,
    /// Its module-level variables.
    pub globals: Vec<GlobalInfo>,
}
