//! How much work a kernel may be to compile. A few lines of PTX can ask for tables that are as large as the product of two
//! of their numbers; what goes beyond these limits is refused before anything of the kind is made, by the name of the kernel and the limit.

use rgpu_device::{Code, Error, MAX_PARAM_BYTES};
use rgpu_image::ptx::ast::{Function, Module};

use super::flow::{Flow, Liveness};
use super::op::Op;
use super::vars::{Vars, parameter_offsets};

/// Functions and kernels of a module.
const FUNCTIONS: usize = 1 << 16;
/// Bytes of a function's name.
const NAME: usize = 1 << 16;
/// Statements of a kernel with everything that is put into it, and of the functions that it calls, together. The
/// compiler takes about 1 KiB for each.
pub(super) const STATEMENTS: usize = 1 << 20;
/// Registers times basic blocks of one function: the compiler's sets have a bit for each pair, and there are a dozen of them.
const PAIRS: u64 = 1 << 29;
/// Registers that hold a value at the beginning of a block, over all blocks of one function. Each is a value of the
/// compiled form.
const LIVE: u64 = 1 << 22;
/// Functions with fewer pairs than this cannot come near [`LIVE`].
const SMALL: u64 = LIVE;

fn refuse(kernel: &Function, what: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidPtx, format!("Kernel {} is too large to be compiled: {what}", kernel.name))
}

/// Whether a module is one that can be looked at.
pub(super) fn check_module(module: &Module) -> Result<(), Error> {
    let count = module.functions.len();
    if count > FUNCTIONS {
        return Err(Error::new(
            Code::InvalidPtx,
            format!("The module has {count} functions; more than {FUNCTIONS} are not supported"),
        ));
    }
    if let Some(function) = module.functions.iter().find(|function| function.name.len() > NAME) {
        return Err(Error::new(
            Code::InvalidPtx,
            format!("PTX line {}: a name of more than {NAME} bytes is not supported", function.line),
        ));
    }
    Ok(())
}

/// Whether a kernel, given with the functions that it calls, is one that can be compiled.
pub(super) fn check(kernel: &Function, functions: &[&Function], ops: &[Op]) -> Result<(), Error> {
    let bodies = || std::iter::once(&kernel).chain(functions);
    let (_, parameters) = parameter_offsets(&kernel.params);
    if parameters > MAX_PARAM_BYTES {
        return Err(refuse(
            kernel,
            format!("its parameters take {parameters} bytes or more, and the limit is {MAX_PARAM_BYTES}"),
        ));
    }
    let statements: usize = bodies().map(|body| body.body.len()).sum();
    if statements > STATEMENTS {
        return Err(refuse(kernel, format!("it has {statements} statements, and the limit is {STATEMENTS}")));
    }
    bodies().try_for_each(|body| check_function(kernel, body, ops))
}

fn check_function(kernel: &Function, function: &Function, ops: &[Op]) -> Result<(), Error> {
    let registers = function.registers.len() as u64;
    // There are not more blocks than statements, and mostly far fewer: small functions need no closer look.
    if registers * function.body.len() as u64 <= SMALL {
        return Ok(());
    }
    let flow = Flow::new(function, ops);
    let blocks = flow.blocks.len() as u64;
    let pairs = registers * blocks;
    if pairs > PAIRS {
        return Err(refuse(
            kernel,
            format!(
                "{} has {registers} registers and {blocks} basic blocks; their product may be {PAIRS} at most",
                function.name
            ),
        ));
    }
    if pairs <= SMALL {
        return Ok(());
    }
    let vars = Vars::new(function, ops);
    let live = Liveness::new(&flow, function, ops, &vars).total();
    if live > LIVE {
        return Err(refuse(
            kernel,
            format!(
                "{} keeps {live} values from one basic block to the next, and the limit is {LIVE}",
                function.name
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use crate::compile::Program;

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

    /// The refusal of the first kernel of a module.
    fn refusal(text: &str) -> String {
        let module = match rgpu_image::ptx::parse(text) {
            Ok(module) => module,
            Err(error) => return error.to_string(),
        };
        match Program::new(module, 80) {
            Ok(program) => {
                program.infos[0].refusal.as_ref().map_or_else(String::new, |error| error.message.clone())
            }
            Err(error) => error.message,
        }
    }

    fn blocks(count: usize) -> String {
        (0..count).map(|n| format!("L{n}: @%p bra L{};\n", (n * 7 + 1) % count)).collect()
    }

    #[test]
    fn registers_times_blocks_are_limited() {
        let kernel = |registers: usize, count: usize| {
            format!(
                "{HEAD}.visible .entry big() {{ .reg .b32 %r<{registers}>; .reg .pred %p;\n{} ret; }}",
                blocks(count)
            )
        };
        assert_eq!(refusal(&kernel(20_000, 2_000)), "");
        let text = refusal(&kernel(2_000_000, 1_000));
        assert!(
            text.starts_with("Kernel big is too large to be compiled: big has 2000001 registers and"),
            "{text}"
        );
        // The functions that a kernel calls count as it does.
        let called = kernel(2_000_000, 1_000).replace(".visible .entry big()", ".func inner()")
            + "\n.visible .entry outer() { call inner; ret; }";
        assert!(refusal(&called).starts_with("Kernel outer is too large to be compiled: inner has"));
    }

    #[test]
    fn values_that_live_long_are_limited() {
        let kernel = |values: usize, count: usize| {
            let mut text = format!(
                "{HEAD}.visible .entry wide(.param .u64 a) {{ .reg .b32 %r<{values}>; .reg .pred %p; .reg .b64 %d;\n"
            );
            (0..values).for_each(|n| writeln!(text, "mov.u32 %r{n}, %clock;").unwrap());
            text += &blocks(count);
            (0..values).for_each(|n| writeln!(text, "st.global.u32 [%d], %r{n};").unwrap());
            text + "ret; }"
        };
        assert_eq!(refusal(&kernel(1_000, 1_000)), "");
        let text = refusal(&kernel(3_000, 3_000));
        assert!(text.contains("Kernel wide") && text.contains("values from one basic block"), "{text}");
    }

    #[test]
    fn parameters_are_limited_however_their_sizes_are_written() {
        let kernel = |size: u64| {
            format!(
                "{HEAD}.visible .entry k(.param .align 8 .b8 p[{size}]) {{ .reg .b64 %d; ld.param.b64 %d, [p+8]; ret; }}"
            )
        };
        assert_eq!(refusal(&kernel(32_760)), "");
        for size in [32_768, (1 << 32) + 64, 1 << 40] {
            let text = refusal(&kernel(size));
            assert!(text.contains("its parameters take"), "{size}: {text}");
        }
    }

    #[test]
    fn what_inlining_makes_large_is_refused() {
        let body = "add.u32 %r1, %r1, 1;\n".repeat(1_000);
        let calls = "call inner;\n".repeat(2_000);
        let text = refusal(&format!(
            "{HEAD}.func inner() {{ .reg .b32 %r<3>; bar.sync 0; {body} ret; }}\n.visible .entry k() {{ {calls} ret; }}"
        ));
        assert!(text.contains("too large by inlining"), "{text}");
    }

    #[test]
    fn modules_have_limits_of_their_own() {
        let kernels: String = (0..70_000).map(|n| format!(".entry k{n}() {{ ret; }}\n")).collect();
        let text = refusal(&format!("{HEAD}{kernels}"));
        assert!(text.contains("70000 functions"), "{text}");
        let name = "n".repeat(100_000);
        let text = refusal(&format!("{HEAD}.entry {name}() {{ ret; }}"));
        assert!(text.contains("a name of more than 65536 bytes"), "{text}");
        let functions: String =
            (0..4).map(|n| format!(".func f{n}() {{ .reg .b32 %r<2000000>; ret; }}\n")).collect();
        let text = refusal(&format!("{HEAD}{functions}.entry k() {{ ret; }}"));
        assert!(text.contains("too many registers"), "{text}");
    }
}
