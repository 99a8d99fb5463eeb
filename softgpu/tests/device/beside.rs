//! Accesses beside allocations: as a GPU has them, whose pages are of 2 MiB, and with exact bounds.

use rgpu_device::{Code, Device, Launch, MemoryKind, Result};

use super::{LEGACY, MODULE, Rig, kept_code};

const MIB: u64 = 1 << 20;

/// `out[i] = in[i - row] + in[i] + in[i + row]`, as stencils are written that trust in what lies round their arrays; and one access to
/// an address: a value is written there if it is not 0, and then read.
const TEXT: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n
    .global .u32 variable = 7;
    .visible .entry stencil(.param .u64 in, .param .u64 out, .param .u64 row) {
      .reg .b64 %rd<9>; .reg .b32 %r<9>;
      ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, [row];
      mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
      mul.wide.u32 %rd4, %r1, 4; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4;
      shl.b64 %rd3, %rd3, 2; sub.u64 %rd5, %rd1, %rd3; add.u64 %rd6, %rd1, %rd3;
      ld.global.u32 %r4, [%rd5]; ld.global.u32 %r5, [%rd1]; ld.global.u32 %r6, [%rd6];
      add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4; ret; }
    .visible .entry access(.param .u64 at, .param .u64 out, .param .u64 value) {
      .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<2>;
      ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, [value];
      cvt.u32.u64 %r1, %rd3; setp.ne.u32 %p1, %r1, 0;
      @%p1 st.global.u32 [%rd1], %r1; ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd2], %r2; ret; }\0";

impl Rig {
    fn run(&self, function: u32, blocks: u32, threads: u32, params: [u64; 3]) -> Result<()> {
        let params: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        self.gpu.launch(Launch {
            stream: LEGACY,
            module: MODULE + 1,
            function,
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        })?;
        self.sync()
    }

    /// Writes a value unless it is 0, and reads.
    fn access(&self, at: u64, value: u64) -> Result<i32> {
        self.run(1, 1, 1, [at, self.memory, value])?;
        Ok(self.read(self.memory, 1)[0])
    }
}

/// A device with 1 MiB of memory at the beginning of its addresses.
fn rig(exact_bounds: bool) -> (Rig, u64) {
    let rig = Rig::with(kept_code::Code::default(), exact_bounds);
    let module = rig.gpu.module_load(0, MODULE + 1, TEXT, &[]).unwrap();
    (rig, module.globals[0].addr)
}

#[test]
fn a_stencil_may_read_a_row_before_its_first_array() {
    let (rig, _) = rig(false);
    let (row, count) = (1024u64, 64 << 10);
    let out = rig.memory + (512 << 10);
    rig.write(rig.memory, &vec![1; count]);
    rig.run(0, 64, 1024, [rig.memory, out, row]).unwrap();
    let sums = rig.read(out, count);
    assert!(sums[..row as usize].iter().all(|sum| *sum == 2), "before the array there are zeros");
    assert!(sums[row as usize..count - row as usize].iter().all(|sum| *sum == 3));
}

#[test]
fn what_is_written_beside_memory_stays_there_and_harms_nothing() {
    let (rig, variable) = rig(false);
    rig.write(rig.memory, &vec![5; 1 << 18]);
    let (before, behind, far) = (rig.memory - 4, rig.memory + MIB, rig.memory + 2 * MIB - 4);
    for at in [before, behind, far] {
        assert_eq!(rig.access(at, 0).unwrap(), 0, "{at:#x}");
        assert_eq!(rig.access(at, at).unwrap(), at as i32);
        assert_eq!(rig.access(at, 0).unwrap(), at as i32);
    }
    assert!(rig.read(rig.memory, 1 << 18)[1..].iter().all(|word| *word == 5));
    assert_eq!((rig.access(variable + 8192, 9).unwrap(), rig.access(variable, 0).unwrap()), (9, 7));
    // Copies look at allocations.
    assert_eq!(
        rig.gpu.memset(LEGACY, rgpu_device::Region::linear(behind, 4), 0, 4).unwrap_err().code,
        Code::InvalidValue
    );
    // Memory that comes there is its own.
    rig.gpu.mem_alloc(0, behind, MIB / 2, MemoryKind::Device).unwrap();
    rig.write(behind, &vec![6; 1 << 17]);
    assert_eq!(rig.access(far, 8).unwrap(), 8);
    assert!(rig.read(behind, 1 << 17).iter().all(|word| *word == 6));
    rig.gpu.mem_free(0, behind, None).unwrap();
    rig.sync().unwrap();
    assert_eq!(rig.access(behind, 0).unwrap(), 0, "what was freed is not seen");
}

#[test]
fn farther_away_there_is_nothing() {
    for distance in [-4 * MIB as i64, -2 * MIB as i64 - 4, 2 * MIB as i64, 4 * MIB as i64, 1 << 40] {
        let (rig, _) = rig(false);
        let at = rig.memory.wrapping_add_signed(distance);
        assert_eq!(rig.access(at, 0).unwrap_err().code, Code::IllegalAddress, "{distance:#x}");
    }
}

#[test]
fn beside_memory_that_was_freed_there_is_nothing() {
    let (rig, _) = rig(false);
    let place = rig.memory + 8 * MIB;
    rig.gpu.mem_alloc(0, place, 4096, MemoryKind::Device).unwrap();
    assert_eq!(rig.access(place + 8192, 3).unwrap(), 3);
    rig.gpu.mem_free(0, place, None).unwrap();
    rig.sync().unwrap();
    assert_eq!(rig.access(place + 8192, 0).unwrap_err().code, Code::IllegalAddress);
}

#[test]
fn exact_bounds_are_those_of_allocations() {
    for distance in [-4, MIB as i64, 2 * MIB as i64 - 4] {
        let (rig, _) = rig(true);
        assert_eq!(rig.access(rig.memory + MIB - 4, 0).unwrap(), 0);
        let at = rig.memory.wrapping_add_signed(distance);
        assert_eq!(rig.access(at, 0).unwrap_err().code, Code::IllegalAddress, "{distance:#x}");
    }
}
