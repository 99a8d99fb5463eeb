//! Plans are set up and executed.

use super::CUFFT;
use super::plan::{FORWARD, Plan, Shape, get};
use crate::libraries::math::{Kind, Out, Queue, Result, fail, invalid, math};

/// Posts what a plan does with what lies at two addresses.
fn execute(plan: &Plan, from: usize, to: usize, direction: i32) -> Result<()> {
    let Some(made) = &plan.made else {
        return fail(Kind::InvalidHandle, "The plan was created but not made");
    };
    let operation = made.operation(from as u64, to as u64, direction)?;
    Queue::of(plan.stream)?.post(&operation)
}

/// [`execute`] for a plan that must be of this type.
fn execute_as(handle: i32, shape: Shape, double: bool, from: usize, to: usize, direction: i32) -> Result<()> {
    let plan = get(handle)?;
    let plan = plan.lock();
    if plan.made.as_ref().is_some_and(|made| made.of.shape != shape || made.of.double != double) {
        return fail(Kind::InvalidType, "The plan is for transforms of another type");
    }
    execute(&plan, from, to, direction)
}

math! {
    CUFFT;

    fn cufftSetStream(handle: i32, stream: usize) {
        get(handle)?.lock().stream = stream;
        Ok(())
    }

    /// No work area is used, so it does not matter who makes it.
    fn cufftSetAutoAllocation(handle: i32, _on: i32) {
        get(handle).map(drop)
    }

    /// No work area is used.
    fn cufftSetWorkArea(handle: i32, _area: usize) {
        get(handle).map(drop)
    }

    /// No work area is used, so all policies are alike.
    fn cufftXtSetWorkAreaPolicy(handle: i32, policy: u32, work_size: Out<usize>) {
        get(handle)?;
        if policy > 2 {
            return invalid(format!("There is no policy {policy}"));
        }
        work_size.set_if_wanted(0);
        Ok(())
    }

    /// How a plan is to be computed changes nothing here; it is remembered.
    fn cufftSetPlanPropertyInt64(handle: i32, property: u32, value: i64) {
        if !(1..=4).contains(&property) {
            return invalid(format!("There is no property {property} of a plan"));
        }
        get(handle)?.lock().properties.insert(property, value);
        Ok(())
    }

    fn cufftGetPlanPropertyInt64(handle: i32, property: u32, value: Out<i64>) {
        if !(1..=4).contains(&property) {
            return invalid(format!("There is no property {property} of a plan"));
        }
        value.set(get(handle)?.lock().properties.get(&property).copied().unwrap_or(0))
    }

    fn cufftResetPlanProperty(handle: i32, property: u32) {
        if !(1..=4).contains(&property) {
            return invalid(format!("There is no property {property} of a plan"));
        }
        get(handle)?.lock().properties.remove(&property);
        Ok(())
    }

    fn cufftExecC2C(handle: i32, from: usize, to: usize, direction: i32) {
        execute_as(handle, Shape::Complex, false, from, to, direction)
    }

    fn cufftExecZ2Z(handle: i32, from: usize, to: usize, direction: i32) {
        execute_as(handle, Shape::Complex, true, from, to, direction)
    }

    fn cufftExecR2C(handle: i32, from: usize, to: usize) {
        execute_as(handle, Shape::FromReal, false, from, to, FORWARD)
    }

    fn cufftExecD2Z(handle: i32, from: usize, to: usize) {
        execute_as(handle, Shape::FromReal, true, from, to, FORWARD)
    }

    fn cufftExecC2R(handle: i32, from: usize, to: usize) {
        execute_as(handle, Shape::ToReal, false, from, to, FORWARD)
    }

    fn cufftExecZ2D(handle: i32, from: usize, to: usize) {
        execute_as(handle, Shape::ToReal, true, from, to, FORWARD)
    }

    fn cufftXtExec(handle: i32, from: usize, to: usize, direction: i32) {
        let plan = get(handle)?;
        execute(&plan.lock(), from, to, direction)
    }
}
