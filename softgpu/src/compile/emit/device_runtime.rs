//! Calls of CUDA's device runtime.

use cranelift_codegen::ir::{InstBuilder, types};

use super::{Emitter, Result, class};
use crate::abi::device_runtime::{ARGUMENTS, DeviceCall, Kind};
use rgpu_image::ptx::ast::{Operand, Type};

/// Bytes of a `dim3`.
const DIMENSIONS: u64 = 12;

impl<'a> Emitter<'a, '_> {
    /// Calls the executor for a function of the device runtime. All that it gets are numbers: it believes no address.
    pub(super) fn call_device_runtime(
        &mut self,
        call: DeviceCall,
        returns: &'a [Operand],
        arguments: &'a [Operand],
    ) -> Result<()> {
        if call.arguments().len() != arguments.len() || returns.len() > 1 {
            return Err(self.refuse("A call of CUDA's device runtime with other arguments"));
        }
        let number = self.iconst(types::I64, call as i64);
        let mut args = vec![self.block, number];
        for (kind, operand) in call.arguments().iter().zip(arguments) {
            let value = match kind {
                Kind::Word => {
                    let value = self.argument(Type::B32, operand)?;
                    self.b.ins().uextend(types::I64, value)
                }
                Kind::Long => self.argument(Type::B64, operand)?,
                Kind::Dimensions => self.bytes_of_argument(operand, DIMENSIONS)?,
            };
            args.push(value);
        }
        let none = self.iconst(types::I64, 0);
        args.resize(2 + ARGUMENTS, none);
        let result = self.call_helper(self.cx.env.helpers.device_runtime, Some(types::I64), &args);
        if let (Some(value), [operand]) = (result, returns) {
            let (ty, value) = match call.result() {
                Kind::Word => (Type::B32, self.b.ins().ireduce(class(Type::B32), value)),
                Kind::Long | Kind::Dimensions => (Type::B64, value),
            };
            self.store_result(ty, operand, value)?;
        }
        Ok(())
    }
}
