//! Launches in clusters of blocks, and what blocks cannot do in them.

use rgpu_device::{Code, Device, Launch, Result};
use rgpu_softgpu::Config;

use super::{LEGACY, Rig, kept_code};

const MODULE: u64 = 8;

/// `rank`: each block leaves its rank, its cluster and the words that the others' first threads have put into its shared memory.
/// `reach`: reads a word of the shared memory of a rank, at a place. `alone`: one thread waits for its
/// block, and all others for the cluster. `plain`: knows nothing of clusters.
const TEXT: &str = ".version 8.0\n.target sm_90\n.address_size 64\n
    .visible .entry rank(.param .u64 memory) {
        .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<4>; .shared .align 4 .b32 box[16];
        ld.param.u64 %rd1, [memory]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %tid.x;
        setp.ge.u32 %p1, %r3, 16; @%p1 bra CLEAR; shl.b32 %r4, %r3, 2; mov.u32 %r5, box; add.u32 %r5, %r5, %r4; st.shared.u32 [%r5], 0;
    CLEAR:
        barrier.cluster.arrive; barrier.cluster.wait;
        setp.ge.u32 %p1, %r3, %r2; @%p1 bra PUT;
        mov.u32 %r5, box; shl.b32 %r4, %r1, 2; add.u32 %r5, %r5, %r4; mapa.shared::cluster.u32 %r6, %r5, %r3; add.u32 %r7, %r1, 1; st.shared::cluster.u32 [%r6], %r7;
    PUT:
        barrier.cluster.arrive; barrier.cluster.wait;
        setp.ne.u32 %p1, %r3, 0; @%p1 bra DONE;
        mov.u32 %r8, 0; mov.u32 %r9, 0; mov.u32 %r5, box;
    SUM:
        ld.shared.u32 %r10, [%r5]; add.u32 %r9, %r9, %r10; add.u32 %r5, %r5, 4; add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 16; @%p2 bra SUM;
        mov.u32 %r11, %ctaid.y; mov.u32 %r12, %nctaid.x; mov.u32 %r13, %ctaid.x; mad.lo.u32 %r11, %r11, %r12, %r13;
        mad.wide.u32 %rd2, %r11, 8, %rd1; mov.u32 %r14, %clusterid.y; mov.u32 %r15, %nclusterid.x; mov.u32 %r16, %clusterid.x; mad.lo.u32 %r14, %r14, %r15, %r16;
        mad.lo.u32 %r14, %r14, 100, %r1; st.global.u32 [%rd2], %r14; st.global.u32 [%rd2+4], %r9;
    DONE: ret;
    }
    .visible .entry reach(.param .u64 memory, .param .u32 rank, .param .u32 at) {
        .reg .b32 %r<20>; .reg .b64 %rd<10>; .shared .align 4 .b32 word;
        ld.param.u64 %rd1, [memory]; ld.param.u32 %r1, [rank]; ld.param.u32 %r2, [at]; mov.u32 %r5, %cluster_ctarank;
        add.u32 %r5, %r5, 40; st.shared.u32 [word], %r5; barrier.cluster.arrive; barrier.cluster.wait;
        mapa.shared::cluster.u32 %r3, word, %r1; add.u32 %r3, %r3, %r2; ld.shared::cluster.u32 %r4, [%r3]; st.global.u32 [%rd1], %r4;
        barrier.cluster.arrive; barrier.cluster.wait; ret;
    }
    .visible .entry alone(.param .u64 memory) {
        .reg .b32 %r<4>; .reg .pred %p<2>;
        mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %tid.x; shl.b32 %r2, %r2, 8; or.b32 %r1, %r1, %r2; setp.eq.u32 %p1, %r1, 1;
        @%p1 barrier.sync 1; barrier.cluster.arrive; barrier.cluster.wait; ret;
    }
    .visible .entry plain(.param .u64 memory) {
        .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b32 word;
        ld.param.u64 %rd1, [memory]; mov.u32 %r1, %ctaid.x; st.shared.u32 [word], %r1; ld.shared.u32 %r2, [word]; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r2; ret;
    }
    .visible .entry own(.param .u64 memory) .explicitcluster .reqnctapercluster 2 { ret; }
    .visible .entry must(.param .u64 memory) .explicitcluster .maxclusterrank 4 { ret; }
    .visible .entry counts(.param .u64 memory) .reqntid 32 .reqnctapercluster 2 .blocksareclusters { ret; }
    .visible .entry generic(.param .u64 memory) {
        .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<2>; .shared .align 4 .b32 word[2];
        ld.param.u64 %rd1, [memory]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %ctaid.x; mad.wide.u32 %rd1, %r3, 8, %rd1;
        add.u32 %r4, %r3, 70; mov.u64 %rd2, word; cvta.shared.u64 %rd2, %rd2; st.shared.u32 [%rd2+4], %r4;
        cvt.u32.u64 %r5, %rd2; ld.shared.u32 %r6, [%r5+4]; st.global.u32 [%rd1], %r6;
        barrier.cluster.arrive; barrier.cluster.wait;
        add.u32 %r7, %r1, 1; rem.u32 %r7, %r7, %r2; shl.b32 %r7, %r7, 24; cvt.u64.u32 %rd3, %r7; and.b64 %rd4, %rd2, 0xfffffffff0ffffff; add.u64 %rd4, %rd4, %rd3;
        ld.u32 %r8, [%rd4+4]; st.global.u32 [%rd1+4], %r8; barrier.cluster.arrive; barrier.cluster.wait; ret;
    }";

struct Bench(Rig);

impl Bench {
    fn new(compute_capability: (u32, u32)) -> Self {
        let rig = Rig::of(kept_code::Code::default(), Config { compute_capability, ..Config::default() });
        rig.gpu.module_load(0, MODULE, TEXT.as_bytes(), &[]).unwrap();
        rig.write(rig.memory, &[-1; 256]);
        Self(rig)
    }

    fn launch(&self, function: u32, grid: [u32; 3], cluster: [u32; 3], more: &[u32]) -> Result<()> {
        let rig = &self.0;
        let mut params = rig.memory.to_le_bytes().to_vec();
        params.extend(more.iter().flat_map(|word| word.to_le_bytes()));
        let (module, shared_bytes, cooperative, params) = (MODULE, 0, false, &params[..]);
        let block = [33, 1, 1];
        rig.gpu.launch(Launch {
            stream: LEGACY,
            module,
            function,
            grid,
            block,
            shared_bytes,
            cooperative,
            cluster,
            params,
        })?;
        rig.sync()
    }
}

#[test]
fn blocks_of_a_cluster_reach_each_other() {
    let bench = Bench::new((9, 0));
    for (grid, cluster) in [
        ([8, 3], [1, 1]),
        ([8, 3], [2, 1]),
        ([8, 4], [2, 4]),
        ([6, 4], [3, 2]),
        ([16, 2], [16, 1]),
        ([8, 3], [1, 3]),
    ] {
        bench.launch(0, [grid[0], grid[1], 1], [cluster[0], cluster[1], 1], &[]).unwrap();
        let blocks = cluster[0] * cluster[1];
        let got = bench.0.read(bench.0.memory, (grid[0] * grid[1] * 2) as usize);
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                let rank = y % cluster[1] * cluster[0] + x % cluster[0];
                let id = y / cluster[1] * (grid[0] / cluster[0]) + x / cluster[0];
                let at = ((y * grid[0] + x) * 2) as usize;
                let expected = [id * 100 + rank, blocks * (blocks + 1) / 2].map(|word| word as i32);
                assert_eq!(got[at..at + 2], expected, "block ({x}, {y}) in clusters of {cluster:?}");
            }
        }
    }
    // A kernel that knows nothing of them, in clusters and without.
    for cluster in [[0; 3], [4, 1, 1]] {
        bench.launch(3, [8, 1, 1], cluster, &[]).unwrap();
        assert_eq!(bench.0.read(bench.0.memory, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

/// As on devices: the low half of a generic address in shared memory is the address there, and its bits 24 to 27 are the block's rank in the cluster.
#[test]
fn generic_addresses_of_shared_memory_are_those_of_devices() {
    let bench = Bench::new((9, 0));
    for blocks in [1, 2, 4, 16] {
        bench.launch(7, [32, 1, 1], [blocks, 1, 1], &[]).unwrap();
        let next = |block: u32| block / blocks * blocks + (block + 1) % blocks;
        let expected = (0..32).flat_map(|block| [block, next(block)]).map(|block| 70 + block as i32);
        assert_eq!(bench.0.read(bench.0.memory, 64), expected.collect::<Vec<_>>(), "clusters of {blocks}");
    }
}

#[test]
fn only_the_memory_of_a_clusters_blocks_is_reached() {
    const END: u32 = 256 << 10;
    // First a larger cluster, whose last blocks' memory must not be there any more afterwards.
    for (rank, at, expected) in [
        (0, 0, Some(40)),
        (1, 0, Some(41)),
        (2, 0, None),
        (3, 0, None),
        (15, 0, None),
        (16, 0, None),
        (255, 0, None),
        (1, END, None),
        (0, (1 << 24) - 4, None),
        (1, 1 << 31, None),
        (0, u32::MAX - 3, None),
        (0, 2, None),
    ] {
        let bench = Bench::new((9, 0));
        bench.launch(0, [8, 1, 1], [8, 1, 1], &[]).unwrap();
        let result = bench.launch(1, [2, 1, 1], [2, 1, 1], &[rank, at]);
        match expected {
            Some(word) => {
                assert_eq!(
                    (result, bench.0.read(bench.0.memory, 1)[0]),
                    (Ok(()), word),
                    "rank {rank}, {at:#x}"
                );
            }
            None => {
                let code = if at == 2 { Code::MisalignedAddress } else { Code::IllegalAddress };
                assert_eq!(result.map_err(|e| e.code), Err(code), "rank {rank}, {at:#x}");
            }
        }
    }
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let bench = Bench::new((9, 0));
    let code = |function, grid: u32, cluster: [u32; 3]| {
        bench.launch(function, [grid, 1, 1], cluster, &[]).map_err(|error| error.code)
    };
    let wrong = Err(Code::InvalidClusterSize);
    assert_eq!(code(0, 6, [4, 1, 1]), wrong);
    assert_eq!(code(0, 32, [32, 1, 1]), wrong);
    assert_eq!(code(0, 4, [2, 0, 1]), wrong);
    assert_eq!((code(4, 4, [0; 3]), code(4, 4, [2, 1, 1])), (Ok(()), Ok(())));
    assert_eq!((code(4, 3, [0; 3]), code(4, 4, [4, 1, 1])), (wrong, wrong));
    assert_eq!((code(5, 4, [0; 3]), code(5, 8, [8, 1, 1]), code(5, 8, [4, 1, 1])), (wrong, wrong, Ok(())));
    assert_eq!(code(6, 4, [0; 3]), Err(Code::InvalidPtx));
    // Those who wait for ever are told so.
    let error = bench.launch(2, [2, 1, 1], [2, 1, 1], &[]).unwrap_err();
    assert_eq!(error.code, Code::LaunchFailed);
    assert!(error.message.contains("Deadlock") && error.message.contains("ClusterWait"), "{error}");
    let old = Bench::new((8, 0));
    assert_eq!(old.launch(0, [2, 1, 1], [2, 1, 1], &[]).map_err(|e| e.code), Err(Code::NotSupported));
    assert_eq!(old.launch(0, [2, 1, 1], [1, 1, 1], &[]), Ok(()));
}
