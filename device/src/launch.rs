//! Launches, and the rules by which one is possible.

use crate::{ClusterInfo, Code, DeviceInfo, Error, FunctionInfo, Handle, Result, attribute};

/// One kernel launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch<'a> {
    /// The stream it is put on.
    pub stream: Handle,
    /// The module that the kernel is in.
    pub module: Handle,
    /// Index into [`crate::ModuleInfo::functions`].
    pub function: u32,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    /// Blocks of a cluster in x, y, z; zeros where the launch says nothing of clusters.
    pub cluster: [u32; 3],
    /// The parameters laid out as [`FunctionInfo::params`] says.
    pub params: &'a [u8],
}

/// A launch that an implementation has put into a form of its own, to be repeated with other parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedLaunch {
    /// Whatever the implementation needs.
    pub form: [u8; 64],
}

impl PreparedLaunch {
    /// A launch as it is, without its parameters.
    pub fn plain(launch: &Launch<'_>) -> Self {
        let mut form = [0; 64];
        form[..8].copy_from_slice(&launch.stream.to_le_bytes());
        form[8..16].copy_from_slice(&launch.module.to_le_bytes());
        let [gx, gy, gz] = launch.grid;
        let [bx, by, bz] = launch.block;
        let cooperative = u32::from(launch.cooperative);
        let [cx, cy, cz] = launch.cluster;
        let words = [launch.function, gx, gy, gz, bx, by, bz, launch.shared_bytes, cooperative, cx, cy, cz];
        for (place, word) in form[16..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Self { form }
    }

    /// What [`PreparedLaunch::plain`] made, with parameters.
    pub fn with<'a>(&self, params: &'a [u8]) -> Launch<'a> {
        let word = |at: usize| {
            let f = &self.form;
            u32::from_le_bytes([f[at], f[at + 1], f[at + 2], f[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Launch {
            stream: long(0),
            module: long(8),
            function: word(16),
            grid: [word(20), word(24), word(28)],
            block: [word(32), word(36), word(40)],
            shared_bytes: word(44),
            cooperative: word(48) != 0,
            cluster: [word(52), word(56), word(60)],
            params,
        }
    }
}

/// The longest parameter block of a kernel in bytes: CUDA's limit since 12.1 is 32,764.
pub const MAX_PARAM_BYTES: u32 = 32_764;

/// What a device can launch at most, and the rules that follow from it: whoever checks a launch, on whichever side of a
/// connection, asks here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchLimits {
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a grid in x, y, z.
    pub grid: [u32; 3],
    /// Registers of a block.
    pub registers_per_block: u32,
    /// Bytes of shared memory of a block, unless the program asks for more.
    pub shared_per_block: u32,
    /// Bytes of shared memory of a block at most.
    pub shared_per_block_optin: u32,
    /// How many multiprocessors the device has.
    pub multiprocessors: u32,
    /// Whether it has clusters of more than one block.
    pub clusters: bool,
}

/// The most blocks of a cluster on every device that has clusters.
pub const PORTABLE_CLUSTER: u32 = 8;
/// The most blocks of a cluster on any device; more than [`PORTABLE_CLUSTER`] where the program allows it.
pub const MAX_CLUSTER: u32 = 16;

impl LaunchLimits {
    /// From the device's attributes; one that it does not tell limits nothing.
    pub fn new(info: &DeviceInfo) -> Self {
        let get = |number: u32, missing: u32| match info.attribute(number) {
            n if n > 0 => n as u32,
            _ => missing,
        };
        let shared_per_block = get(attribute::MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10);
        Self {
            threads_per_block: get(attribute::MAX_THREADS_PER_BLOCK, 1024),
            block: [
                get(attribute::MAX_BLOCK_DIM_X, 1024),
                get(attribute::MAX_BLOCK_DIM_Y, 1024),
                get(attribute::MAX_BLOCK_DIM_Z, 64),
            ],
            grid: [
                get(attribute::MAX_GRID_DIM_X, 0x7fff_ffff),
                get(attribute::MAX_GRID_DIM_Y, 0xffff),
                get(attribute::MAX_GRID_DIM_Z, 0xffff),
            ],
            registers_per_block: get(attribute::MAX_REGISTERS_PER_BLOCK, 64 << 10),
            shared_per_block,
            shared_per_block_optin: get(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, shared_per_block),
            multiprocessors: get(attribute::MULTIPROCESSOR_COUNT, 1),
            clusters: info.attribute(attribute::CLUSTER_LAUNCH) > 0,
        }
    }

    /// Checks everything about a launch that does not depend on what else runs; says how many bytes of its parameters the
    /// kernel takes, from the first one on. (What lies behind them means nothing.)
    ///
    /// # Errors
    /// Those of [`FunctionInfo::check_executable`], [`LaunchLimits::check_shape`], [`LaunchLimits::check_cluster`],
    /// [`LaunchLimits::check_shared`] and [`check_params`], in this order.
    pub fn check(&self, function: &FunctionInfo, launch: &Launch<'_>) -> Result<usize> {
        function.check_executable()?;
        self.check_shape(function, launch.grid, launch.block)?;
        self.check_cluster(function, launch.grid, launch.cluster, MAX_CLUSTER)?;
        self.check_shared(function, launch.shared_bytes)?;
        check_params(function, launch.params.len())
    }

    /// Checks a grid and its blocks.
    ///
    /// # Errors
    /// [`Code::InvalidConfiguration`], which is `CUDA_ERROR_INVALID_VALUE` to users of the driver API, where something is 0,
    /// too large for the device, or not what the kernel requires (`.reqntid`). Where a block has more threads than the kernel
    /// was compiled for, [`Code::LaunchOutOfResources`] if its registers do not suffice, and else, because the program said
    /// so (`.maxntid`, `__launch_bounds__`), [`Code::InvalidValue`].
    #[inline]
    pub fn check_shape(&self, function: &FunctionInfo, grid: [u32; 3], block: [u32; 3]) -> Result<()> {
        let within = |what: [u32; 3], most: [u32; 3]| (0..3).all(|i| what[i] != 0 && what[i] <= most[i]);
        // No overflow: the sides are 32 bits wide, and their product is only looked at where they are small.
        let threads = block.iter().fold(1u64, |n, side| n.saturating_mul(u64::from(*side)));
        let possible = within(grid, self.grid)
            && within(block, self.block)
            && threads <= u64::from(self.threads_per_block)
            && (function.max_threads == 0 || threads <= u64::from(function.max_threads))
            && fits_required(function, block);
        if possible { Ok(()) } else { Err(self.impossible_shape(function, grid, block, threads)) }
    }

    #[cold]
    fn impossible_shape(
        &self,
        function: &FunctionInfo,
        grid: [u32; 3],
        block: [u32; 3],
        threads: u64,
    ) -> Error {
        let larger = |what: [u32; 3], most: [u32; 3]| (0..3).any(|i| what[i] > most[i]);
        let (code, why) = if grid.contains(&0) || block.contains(&0) {
            (Code::InvalidConfiguration, "there is a 0".to_owned())
        } else if larger(grid, self.grid) {
            (Code::InvalidConfiguration, format!("the largest grid is {:?}", self.grid))
        } else if larger(block, self.block) {
            (Code::InvalidConfiguration, format!("the largest block is {:?}", self.block))
        } else if threads > u64::from(self.threads_per_block) {
            let why = format!("a block has at most {} threads", self.threads_per_block);
            (Code::InvalidConfiguration, why)
        } else if function.max_threads != 0 && threads > u64::from(function.max_threads) {
            let why = format!("a block of this kernel has at most {} threads", function.max_threads);
            // Registers are given to warps, eight to each of their threads at a time.
            let registers = u64::from(function.registers.next_multiple_of(8)) * threads.next_multiple_of(32);
            let enough = registers <= u64::from(self.registers_per_block);
            (if enough { Code::InvalidValue } else { Code::LaunchOutOfResources }, why)
        } else {
            (Code::InvalidConfiguration, format!("it requires blocks of {:?}", function.required_block))
        };
        let name = &function.name;
        Error::new(code, format!("{name} cannot be launched with grid {grid:?}, block {block:?}: {why}"))
    }

    /// Checks what a launch says of clusters (zeros where it says nothing), which may have so many blocks at most, against the grid
    /// and what the kernel says. The blocks of a cluster in x, y, z; none where there are no clusters.
    ///
    /// # Errors
    /// [`Code::InvalidClusterSize`] where they have too many blocks, do not divide the grid, or are not what the kernel prescribes;
    /// [`Code::NotSupported`] where the device has none of more than one block.
    #[inline]
    pub fn check_cluster(
        &self,
        function: &FunctionInfo,
        grid: [u32; 3],
        cluster: [u32; 3],
        most: u32,
    ) -> Result<Option<[u32; 3]>> {
        if cluster == [0; 3] && function.cluster == ClusterInfo::default() {
            return Ok(None);
        }
        self.check_clusters(function, grid, cluster, most)
    }

    #[cold]
    fn check_clusters(
        &self,
        function: &FunctionInfo,
        grid: [u32; 3],
        cluster: [u32; 3],
        most: u32,
    ) -> Result<Option<[u32; 3]>> {
        let (name, prescribed) = (&function.name, function.cluster.prescribed());
        let refused = |why: String| {
            let text =
                format!("{name} cannot be launched with grid {grid:?} in clusters of {cluster:?}: {why}");
            Err(Error::new(Code::InvalidClusterSize, text))
        };
        let sides = match (cluster, prescribed) {
            ([0, 0, 0], None) if function.cluster.must_be_set => {
                return refused("the launch has to say how large clusters are".to_owned());
            }
            ([0, 0, 0], None) => return Ok(None),
            ([0, 0, 0], Some(own)) => own,
            (given, Some(own)) if given != own => {
                return refused(format!("the kernel prescribes clusters of {own:?}"));
            }
            (given, _) => given,
        };
        let blocks = sides.iter().fold(1u64, |n, side| n.saturating_mul(u64::from(*side)));
        let most = match function.cluster.most {
            0 => most,
            own => most.min(own),
        };
        if blocks == 0 {
            return refused("there is a 0".to_owned());
        }
        if blocks > 1 && !self.clusters {
            let text = format!(
                "{name} cannot be launched in clusters of {sides:?}: the device has none of more than one block (compute \
                 capability 9.0 has)"
            );
            return Err(Error::new(Code::NotSupported, text));
        }
        if blocks > u64::from(most) {
            return refused(format!("{blocks} blocks are too many, {most} are possible"));
        }
        if (0..3).any(|i| !grid[i].is_multiple_of(sides[i])) {
            return refused(format!("clusters of {sides:?} do not divide it"));
        }
        Ok(Some(sides))
    }

    /// Checks a block's shared memory, static and dynamic, against the most that the device can give.
    ///
    /// # Errors
    /// [`Code::InvalidValue`].
    #[inline]
    pub fn check_shared(&self, function: &FunctionInfo, dynamic: u32) -> Result<()> {
        let (own, most) = (u64::from(function.static_shared), u64::from(self.shared_per_block_optin));
        if own + u64::from(dynamic) <= most {
            return Ok(());
        }
        let text = format!(
            "{} cannot be launched: {own} bytes of static and {dynamic} bytes of dynamic shared memory are more than {most}",
            function.name
        );
        Err(Error::new(Code::InvalidValue, text))
    }

    /// Checks that all blocks of a cooperative launch can be resident at once, where each multiprocessor can hold so many
    /// blocks like these.
    ///
    /// # Errors
    /// [`Code::CooperativeLaunchTooLarge`].
    pub fn check_cooperative(
        &self,
        function: &FunctionInfo,
        grid: [u32; 3],
        blocks_per_multiprocessor: u32,
    ) -> Result<()> {
        let most = u64::from(blocks_per_multiprocessor) * u64::from(self.multiprocessors);
        let blocks = grid.iter().fold(1u64, |n, side| n.saturating_mul(u64::from(*side)));
        if blocks <= most {
            return Ok(());
        }
        let text = format!("{blocks} blocks of {} cannot all be resident, {most} can", function.name);
        Err(Error::new(Code::CooperativeLaunchTooLarge, text))
    }
}

/// Whether a block is as the kernel's `.reqntid` wants it. Sides that the kernel leaves out are 1.
#[inline]
fn fits_required(function: &FunctionInfo, block: [u32; 3]) -> bool {
    let required = function.required_block;
    required == [0; 3] || required.map(|side| side.max(1)) == block
}

/// Checks the length of a parameter block; says how many bytes of it the kernel takes.
///
/// # Errors
/// [`Code::InvalidValue`] where bytes are missing, or the block is longer than [`MAX_PARAM_BYTES`].
#[inline]
pub fn check_params(function: &FunctionInfo, given: usize) -> Result<usize> {
    let wanted = function.param_bytes() as usize;
    if wanted <= given && given <= MAX_PARAM_BYTES as usize {
        return Ok(wanted);
    }
    let text = format!("Kernel {} has {wanted} bytes of parameters, not {given}", function.name);
    Err(Error::new(Code::InvalidValue, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_launches_are_repeated_with_other_parameters() {
        let launch = Launch {
            stream: 1 << 40 | 3,
            module: u64::MAX - 1,
            function: 7,
            grid: [1, 2, 3],
            block: [4, 5, u32::MAX],
            shared_bytes: 9,
            cooperative: true,
            cluster: [10, 11, 12],
            params: &[1, 2],
        };
        assert_eq!(PreparedLaunch::plain(&launch).with(&[3]), Launch { params: &[3], ..launch });
    }

    fn limits() -> LaunchLimits {
        LaunchLimits::new(&DeviceInfo { attributes: vec![(16, 2), (97, 99 << 10)], ..DeviceInfo::default() })
    }

    fn code<T>(result: Result<T>) -> Option<Code> {
        result.err().map(|e| e.code)
    }

    #[test]
    fn what_a_device_does_not_tell_is_what_all_can() {
        let expected = LaunchLimits {
            threads_per_block: 1024,
            block: [1024, 1024, 64],
            grid: [0x7fff_ffff, 65535, 65535],
            registers_per_block: 64 << 10,
            shared_per_block: 48 << 10,
            shared_per_block_optin: 99 << 10,
            multiprocessors: 2,
            clusters: false,
        };
        assert_eq!(limits(), expected);
    }

    #[test]
    fn impossible_grids_and_blocks_are_refused() {
        let limits = limits();
        let kernel = FunctionInfo { max_threads: 512, ..FunctionInfo::default() };
        let shape = |grid, block| code(limits.check_shape(&kernel, grid, block));
        assert_eq!(shape([0x7fff_ffff, 65535, 65535], [512, 1, 1]), None);
        assert_eq!(shape([1, 1, 1], [2, 4, 64]), None);
        for i in 0..3 {
            let with = |n: u32| {
                let mut sides = [1; 3];
                sides[i] = n;
                sides
            };
            assert_eq!(shape(with(0), [1; 3]), Some(Code::InvalidConfiguration));
            assert_eq!(shape([1; 3], with(0)), Some(Code::InvalidConfiguration));
            assert_eq!(shape([1; 3], with(limits.block[i] + 1)), Some(Code::InvalidConfiguration));
            assert_eq!(shape([1; 3], with(u32::MAX)), Some(Code::InvalidConfiguration));
            assert_eq!(shape(with(u32::MAX), [1; 3]), Some(Code::InvalidConfiguration));
        }
        assert_eq!(shape([1; 3], [1024, 1, 2]), Some(Code::InvalidConfiguration));
        assert_eq!(shape([1; 3], [u32::MAX; 3]), Some(Code::InvalidConfiguration));
        assert_eq!(shape([1; 3], [513, 1, 1]), Some(Code::InvalidValue));
        let large = FunctionInfo { registers: 128, ..kernel.clone() };
        assert_eq!(limits.check_shape(&large, [1; 3], [512, 1, 1]), Ok(()));
        assert_eq!(code(limits.check_shape(&large, [1; 3], [513, 1, 1])), Some(Code::LaunchOutOfResources));
        let strict = FunctionInfo { required_block: [32, 0, 0], ..FunctionInfo::default() };
        assert_eq!(limits.check_shape(&strict, [1; 3], [32, 1, 1]), Ok(()));
        assert_eq!(code(limits.check_shape(&strict, [1; 3], [16, 2, 1])), Some(Code::InvalidConfiguration));
    }

    #[test]
    fn shared_memory_counts_whole() {
        let kernel = FunctionInfo { static_shared: 1 << 10, ..FunctionInfo::default() };
        assert_eq!(limits().check_shared(&kernel, 98 << 10), Ok(()));
        assert_eq!(code(limits().check_shared(&kernel, (98 << 10) + 1)), Some(Code::InvalidValue));
        assert_eq!(code(limits().check_shared(&kernel, u32::MAX)), Some(Code::InvalidValue));
    }

    #[test]
    fn clusters_divide_the_grid_and_are_what_the_kernel_prescribes() {
        let limits = LaunchLimits { clusters: true, ..limits() };
        let with = |kernel: &FunctionInfo, cluster, most| {
            limits.check_cluster(kernel, [12, 4, 2], cluster, most).map_err(|e| e.code)
        };
        let wrong = Err(Code::InvalidClusterSize);
        let plain = FunctionInfo::default();
        assert_eq!(with(&plain, [0; 3], 8), Ok(None));
        assert_eq!(with(&plain, [2, 2, 2], 8), Ok(Some([2, 2, 2])));
        assert_eq!(with(&plain, [4, 4, 1], 8), wrong);
        assert_eq!(with(&plain, [4, 4, 1], 16), Ok(Some([4, 4, 1])));
        assert_eq!(with(&plain, [5, 1, 1], 8), wrong);
        assert_eq!(with(&plain, [2, 0, 1], 8), wrong);
        assert_eq!(with(&plain, [u32::MAX; 3], u32::MAX), wrong);
        let cluster = ClusterInfo { required: [3, 2, 0], ..ClusterInfo::default() };
        let own = FunctionInfo { cluster, ..FunctionInfo::default() };
        assert_eq!(with(&own, [0; 3], 8), Ok(Some([3, 2, 1])));
        assert_eq!(with(&own, [3, 2, 1], 8), Ok(Some([3, 2, 1])));
        assert_eq!(with(&own, [2, 2, 1], 8), wrong);
        let cluster = ClusterInfo { must_be_set: true, most: 2, ..ClusterInfo::default() };
        let explicit = FunctionInfo { cluster, ..FunctionInfo::default() };
        assert_eq!(with(&explicit, [0; 3], 8), wrong);
        assert_eq!(with(&explicit, [1, 2, 1], 8), Ok(Some([1, 2, 1])));
        assert_eq!(with(&explicit, [2, 2, 1], 8), wrong);
        let old = LaunchLimits { clusters: false, ..limits };
        let on_old = |cluster| old.check_cluster(&plain, [12, 4, 2], cluster, 8).map_err(|e| e.code);
        assert_eq!(on_old([1, 1, 1]), Ok(Some([1, 1, 1])));
        assert_eq!(on_old([2, 1, 1]), Err(Code::NotSupported));
    }

    #[test]
    fn parameters_may_be_too_many_but_not_too_few() {
        let params = vec![crate::ParamInfo { offset: 0, size: 8 }, crate::ParamInfo { offset: 8, size: 4 }];
        let kernel = FunctionInfo { params, ..FunctionInfo::default() };
        assert_eq!(check_params(&kernel, 12), Ok(12));
        assert_eq!(check_params(&kernel, 16), Ok(12));
        assert_eq!(code(check_params(&kernel, 11)), Some(Code::InvalidValue));
        assert_eq!(code(check_params(&kernel, MAX_PARAM_BYTES as usize + 1)), Some(Code::InvalidValue));
    }

    #[test]
    fn cooperative_launches_must_fit_whole() {
        let (limits, kernel) = (limits(), FunctionInfo::default());
        assert_eq!(limits.check_cooperative(&kernel, [2, 2, 2], 4), Ok(()));
        assert_eq!(
            code(limits.check_cooperative(&kernel, [9, 1, 1], 4)),
            Some(Code::CooperativeLaunchTooLarge)
        );
        assert!(limits.check_cooperative(&kernel, [u32::MAX; 3], u32::MAX).is_err());
    }
}
