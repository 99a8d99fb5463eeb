//! A test case: a few instructions, where their operands come from, and what they must compute.

use std::fmt::Write;

use rgpu_softgpu::compile::vector;

use super::gpu::{Run, gpu};
use super::values::{Domain, Random, mask};

/// How an operand is held in a register and in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    B16,
    B32,
    B64,
    F32,
    F64,
    Pred,
    /// Outputs only: the instructions write the eight bytes at `[pout+8*n]` themselves.
    Raw,
}

impl Class {
    fn register(self) -> &'static str {
        match self {
            Self::B16 => ".b16",
            Self::B32 => ".b32",
            Self::B64 | Self::Raw => ".b64",
            Self::F32 => ".f32",
            Self::F64 => ".f64",
            Self::Pred => ".pred",
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::B16 => 16,
            Self::B32 | Self::F32 | Self::Pred => 32,
            Self::B64 | Self::F64 | Self::Raw => 64,
        }
    }
}

/// What an output must be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Want {
    /// Exactly these bits.
    Bits(u64),
    /// Any NaN.
    NanF16,
    NanBf16,
    NanF32,
    NanF64,
    /// An `f32` within these bounds.
    F32(f64, f64),
    /// An `f64` within these bounds.
    F64(f64, f64),
    /// The low and the high 16 bits.
    Halves(Box<Want>, Box<Want>),
    /// One of these.
    OneOf(Vec<Want>),
    /// Not specified.
    Any,
}

impl Want {
    fn is_met(&self, got: u64) -> bool {
        match self {
            Self::Bits(bits) => got == *bits,
            Self::NanF16 => got & 0x7FFF > 0x7C00,
            Self::NanBf16 => got & 0x7FFF > 0x7F80,
            Self::NanF32 => f32::from_bits(got as u32).is_nan(),
            Self::NanF64 => f64::from_bits(got).is_nan(),
            Self::F32(low, high) => (*low..=*high).contains(&f64::from(f32::from_bits(got as u32))),
            Self::F64(low, high) => (*low..=*high).contains(&f64::from_bits(got)),
            Self::Halves(low, high) => low.is_met(got & 0xFFFF) && high.is_met(got >> 16 & 0xFFFF),
            Self::OneOf(wants) => wants.iter().any(|want| want.is_met(got)),
            Self::Any => true,
        }
    }
}

/// From the operands of one thread to its outputs.
pub(crate) type LaneModel = Box<dyn Fn(&[u64]) -> Vec<Want> + Send + Sync>;
/// From the operands of the threads of a group to their outputs.
pub(crate) type GroupModel = Box<dyn Fn(&[Vec<u64>]) -> Vec<Vec<Want>> + Send + Sync>;

/// What a case must compute.
pub(crate) enum Model {
    /// Each thread for itself.
    Lane(LaneModel),
    /// Threads of a warp or block together: how many, and the model.
    Group(u32, GroupModel),
}

/// A test case.
pub(crate) struct Case {
    /// The opcodes with modifiers that it tests.
    pub covers: Vec<String>,
    /// The instructions. `a0`… are the inputs, `d0`… the outputs; `pin` and `pout` point to the thread's
    /// own inputs and outputs (8 bytes each); `gid` is its number, `tid` that within the block; `extra` is
    /// a parameter of 64 bytes, the numbers from 1 to 64.
    pub body: String,
    /// Module-level declarations.
    pub prelude: String,
    /// `.target`.
    pub target: &'static str,
    /// Inputs.
    pub ins: Vec<(Class, Domain)>,
    /// Outputs.
    pub outs: Vec<Class>,
    /// What must come out.
    pub model: Model,
    /// Dynamic shared memory.
    pub shared: u32,
    /// Blocks of a cluster, or 0.
    pub cluster: u32,
    /// Whether PTX's text has it and NVIDIA's compiler refuses it.
    pub is_refused_by_ptxas: bool,
}

/// What output slots hold before the kernel runs.
pub(crate) const FILL: u64 = 0xA5A5_A5A5_A5A5_A5A5;
const BLOCK: u32 = 128;
const MAX_PRODUCT: usize = 2500;
const RANDOM: usize = 600;

impl Case {
    /// A case in which each thread works for itself.
    pub(crate) fn new(
        opcode: &str,
        body: &str,
        ins: &[(Class, Domain)],
        outs: &[Class],
        model: impl Fn(&[u64]) -> Vec<Want> + Send + Sync + 'static,
    ) -> Self {
        Self {
            covers: vec![opcode.to_owned()],
            body: body.to_owned(),
            prelude: String::new(),
            target: "sm_80",
            ins: ins.to_vec(),
            outs: outs.to_vec(),
            model: Model::Lane(Box::new(model)),
            shared: 0,
            cluster: 0,
            is_refused_by_ptxas: false,
        }
    }

    /// A case of a single instruction `opcode d0, a0, a1, …;`.
    pub(crate) fn simple(
        opcode: &str,
        ins: &[(Class, Domain)],
        out: Class,
        model: impl Fn(&[u64]) -> Want + Send + Sync + 'static,
    ) -> Self {
        let mut body = format!("{opcode} d0");
        for index in 0..ins.len() {
            write!(body, ", a{index}").unwrap();
        }
        body.push(';');
        Self::new(opcode, &body, ins, &[out], move |a| vec![model(a)])
    }

    /// A case in which `size` threads work together.
    pub(crate) fn group(
        opcode: &str,
        body: &str,
        ins: &[(Class, Domain)],
        outs: &[Class],
        size: u32,
        model: impl Fn(&[Vec<u64>]) -> Vec<Vec<Want>> + Send + Sync + 'static,
    ) -> Self {
        let mut case = Self::new(opcode, body, ins, outs, |_| Vec::new());
        case.model = Model::Group(size, Box::new(model));
        case
    }

    /// Another opcode that the case tests, too.
    pub(crate) fn and(mut self, opcode: &str) -> Self {
        self.covers.push(opcode.to_owned());
        self
    }

    /// Module-level declarations that the body needs.
    pub(crate) fn with(mut self, prelude: &str) -> Self {
        self.prelude = prelude.to_owned();
        self
    }

    /// A newer target.
    pub(crate) fn target(mut self, target: &'static str) -> Self {
        self.target = target;
        self
    }

    /// What NVIDIA's compiler refuses, though PTX's text has it: no hardware is asked.
    pub(crate) fn refused_by_ptxas(mut self) -> Self {
        self.is_refused_by_ptxas = true;
        self
    }

    /// In clusters of so many blocks, of which each is a group of its own.
    pub(crate) fn in_clusters(mut self, blocks: u32) -> Self {
        self.cluster = blocks;
        self.target("sm_90")
    }

    /// The module.
    pub(crate) fn ptx(&self) -> String {
        let mut text = format!(".version 8.6\n.target {}\n.address_size 64\n{}\n", self.target, self.prelude);
        text.push_str(
            ".visible .entry test(.param .u64 in, .param .u64 out, .param .u32 threads, .param .align 16 .b8 extra[64])\n",
        );
        if self.cluster != 0 {
            writeln!(text, ".explicitcluster .reqnctapercluster {}", self.cluster).unwrap();
        }
        text.push_str(
            "{\n\
             .reg .b64 pin, pout, offset; .reg .b32 gid, tid, block, limit, scratch; .reg .pred beyond;\n",
        );
        for (index, (class, _)) in self.ins.iter().enumerate() {
            writeln!(text, ".reg {} a{index};", class.register()).unwrap();
        }
        for (index, class) in self.outs.iter().enumerate() {
            writeln!(text, ".reg {} d{index};", class.register()).unwrap();
        }
        writeln!(
            text,
            "ld.param.u64 pin, [in]; ld.param.u64 pout, [out]; ld.param.u32 limit, [threads];\n\
             cvta.to.global.u64 pin, pin; cvta.to.global.u64 pout, pout;\n\
             mov.u32 tid, %tid.x; mov.u32 block, %ctaid.x; mov.u32 gid, %ntid.x; mad.lo.s32 gid, gid, block, tid;\n\
             setp.ge.u32 beyond, gid, limit; @beyond bra DONE;\n\
             mul.wide.u32 offset, gid, {}; add.s64 pin, pin, offset; mul.wide.u32 offset, gid, {}; add.s64 pout, pout, offset;",
            8 * self.ins.len(),
            8 * self.outs.len(),
        )
        .unwrap();
        for (index, (class, _)) in self.ins.iter().enumerate() {
            let at = 8 * index;
            match class {
                Class::Pred => {
                    writeln!(text, "ld.global.u32 scratch, [pin+{at}]; setp.ne.u32 a{index}, scratch, 0;")
                        .unwrap();
                }
                Class::B16 => writeln!(text, "ld.global.b16 a{index}, [pin+{at}];").unwrap(),
                Class::B32 | Class::F32 => writeln!(text, "ld.global.b32 a{index}, [pin+{at}];").unwrap(),
                Class::B64 | Class::F64 | Class::Raw => {
                    writeln!(text, "ld.global.b64 a{index}, [pin+{at}];").unwrap()
                }
            }
        }
        text.push_str("// What is tested:\n");
        text.push_str(&self.body);
        text.push('\n');
        for (index, class) in self.outs.iter().enumerate() {
            let at = 8 * index;
            match class {
                Class::Pred => {
                    writeln!(text, "selp.u32 scratch, 1, 0, d{index}; st.global.u32 [pout+{at}], scratch;")
                        .unwrap();
                }
                Class::B16 => writeln!(text, "st.global.b16 [pout+{at}], d{index};").unwrap(),
                Class::B32 | Class::F32 => writeln!(text, "st.global.b32 [pout+{at}], d{index};").unwrap(),
                Class::B64 | Class::F64 => writeln!(text, "st.global.b64 [pout+{at}], d{index};").unwrap(),
                Class::Raw => {}
            }
        }
        text.push_str("DONE: ret;\n}\n");
        text
    }

    /// The operands of all threads.
    fn operands(&self) -> Vec<Vec<u64>> {
        let mut random =
            Random(self.covers[0].bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into())));
        let edges: Vec<Vec<u64>> = self.ins.iter().map(|(_, domain)| domain.edges()).collect();
        let product = edges.iter().try_fold(1usize, |n, e| n.checked_mul(e.len())).unwrap_or(usize::MAX);
        let mut all = Vec::new();
        for index in 0..product.min(MAX_PRODUCT) {
            let mut rest = index;
            let pick = |values: &Vec<u64>| {
                if product > MAX_PRODUCT {
                    return values[random.below(values.len())];
                }
                let at = rest % values.len();
                rest /= values.len();
                values[at]
            };
            all.push(edges.iter().map(pick).collect());
        }
        for _ in 0..RANDOM {
            all.push(self.ins.iter().map(|(_, domain)| domain.random(&mut random)).collect());
        }
        if let Model::Group(..) = self.model {
            // Neighbours should differ, and blocks be full.
            for index in (1..all.len()).rev() {
                all.swap(index, random.below(index + 1));
            }
            all.truncate(1024);
            let whole = (BLOCK * self.cluster.max(1)) as usize;
            all.truncate(all.len() / whole * whole);
        }
        all
    }

    /// Runs the case; an error says what was wrong.
    pub(crate) fn run(&self) -> Result<(), String> {
        let operands = self.operands();
        let name = self.covers.join(", ");
        let input: Vec<u8> = operands.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
        let output = FILL.to_le_bytes().repeat(operands.len() * self.outs.len());
        let ptx = self.ptx();
        let run = Run {
            ptx: &ptx,
            input: &input,
            output: &output,
            count: operands.len() as u32,
            extra: std::array::from_fn(|i| i as u8 + 1),
            grid: (operands.len() as u32).div_ceil(BLOCK),
            block: BLOCK,
            shared: self.shared,
        };
        let mut gpu = gpu();
        let got = if self.is_refused_by_ptxas { gpu.run_bound(&run, &[]) } else { gpu.run(&run) };
        let got = got.map_err(|error| format!("{name}: {error}"))?;
        drop(gpu);
        let got: Vec<u64> = got.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let wants: Vec<Vec<Want>> = match &self.model {
            Model::Lane(model) => operands.iter().map(|a| model(a)).collect(),
            Model::Group(size, model) => operands.chunks(*size as usize).flat_map(model).collect(),
        };
        let mut wrong = Vec::new();
        for (thread, want) in wants.iter().enumerate() {
            for (index, want) in want.iter().enumerate() {
                let bits = self.outs[index].bits();
                let slot = got[thread * self.outs.len() + index];
                let value = slot & mask(bits);
                let spilled = slot & !mask(bits) != FILL & !mask(bits);
                if spilled || !want.is_met(value) {
                    wrong.push(format!(
                        "thread {thread}, operands {:x?}: d{index} is {value:#x}, not {want:x?}",
                        operands[thread]
                    ));
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let count = wrong.len();
        wrong.truncate(4);
        Err(format!("{name}: {count} of {} wrong\n    {}", wants.len(), wrong.join("\n    ")))
    }
}

/// Runs all cases and fails with what was wrong with any.
pub(crate) fn run_all(cases: Vec<Case>) {
    assert!(!cases.is_empty());
    let each = std::env::var(EACH).map_or(1, |each| each.parse().unwrap());
    let tried: Vec<&Case> = cases.iter().step_by(each).collect();
    let failures: Vec<String> = tried.iter().filter_map(|case| case.run().err()).collect();
    let (failed, total) = (failures.len(), tried.len());
    assert!(failures.is_empty(), "{failed} of {total} cases failed:\n  {}", failures.join("\n  "));
    println!("{total} cases, {VECTORS}{}", vector::kernels());
}

/// Tells this program to try only the first of so many cases, and the first of the next so many.
const EACH: &str = "OPCODE_CASES_EACH";
/// What stands before the number of kernels that were compiled for vectors of threads.
const VECTORS: &str = "kernels for vectors so far: ";

/// One case of twenty, and at least one of each group. All of them are tried by
/// `RGPU_VECTORS=first cargo test -p rgpu-softgpu --test opcodes`, which takes many minutes.
#[test]
fn a_part_of_the_cases_in_the_second_tier() {
    if let Err(why) = vector::possible() {
        return println!("not tried: {why}");
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    // Those that are no lists of cases have nothing to leave out.
    command.args(["--nocapture", "--skip", "::"]).env(EACH, "20");
    command.env(vector::VARIABLE, "first").env_remove("RGPU_TEST_DRIVER");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let kernels = said.lines().filter_map(|line| line.split_once(VECTORS)?.1.parse::<u64>().ok());
    assert!(kernels.max().unwrap_or(0) > 100, "hardly any kernel was compiled for vectors: {said}");
}

#[test]
fn a_wrong_result_is_noticed() {
    let int = (Class::B32, Domain::Int(32));
    let case = |wrong: u64| {
        Case::simple("add.u32", &[int, int], Class::B32, move |a| {
            // Right but for one pair of operands.
            let sum = a[0] + a[1] & mask(32);
            Want::Bits(if a[0] == 7 && a[1] == 0x7FFF_FFFF { sum ^ wrong } else { sum })
        })
    };
    assert_eq!(case(0).run(), Ok(()));
    let error = case(1).run().unwrap_err();
    assert!(error.contains("add.u32: 1 of ") && error.contains("d0 is 0x80000006"), "{error}");
    // So is a store of too many bytes, and one that is missing.
    let wide = Case::new(
        "st.global.u64",
        "mov.u32 d0, 1; st.global.u64 [pout], pin;",
        &[int],
        &[Class::B32],
        |_| vec![Want::Bits(1)],
    );
    assert!(wide.run().is_err());
    let none = Case::new("mov.u32", "mov.u32 scratch, 1;", &[int], &[Class::Raw], |_| vec![Want::Bits(1)]);
    assert!(none.run().is_err());
}
