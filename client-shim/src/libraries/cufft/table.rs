//! Every function of cuFFT, in the [form of all doors](crate::doors::table). Files of the library tell their versions apart by name, so a
//! row's version says nothing but that the library is the first of its name.

use super::{exec, make};
use crate::doors::table::entry_points;

entry_points! {
    /// The functions, ascending by name.
    static TABLE refusing by super::refuse;
    cufftCreate 1 [make::cufftCreate];
    cufftDestroy 1 [make::cufftDestroy];
    cufftEstimate1d 1 [make::cufftEstimate1d];
    cufftEstimate2d 1 [make::cufftEstimate2d];
    cufftEstimate3d 1 [make::cufftEstimate3d];
    cufftEstimateMany 1 [make::cufftEstimateMany];
    cufftExecC2C 1 [exec::cufftExecC2C];
    cufftExecC2R 1 [exec::cufftExecC2R];
    cufftExecD2Z 1 [exec::cufftExecD2Z];
    cufftExecR2C 1 [exec::cufftExecR2C];
    cufftExecZ2D 1 [exec::cufftExecZ2D];
    cufftExecZ2Z 1 [exec::cufftExecZ2Z];
    cufftGetPlanPropertyInt64 1 [exec::cufftGetPlanPropertyInt64];
    cufftGetProperty 1 [make::cufftGetProperty];
    cufftGetSize 1 [make::cufftGetSize];
    cufftGetSize1d 1 [make::cufftGetSize1d];
    cufftGetSize2d 1 [make::cufftGetSize2d];
    cufftGetSize3d 1 [make::cufftGetSize3d];
    cufftGetSizeMany 1 [make::cufftGetSizeMany];
    cufftGetSizeMany64 1 [make::cufftGetSizeMany64];
    cufftGetVersion 1 [make::cufftGetVersion];
    cufftMakePlan1d 1 [make::cufftMakePlan1d];
    cufftMakePlan2d 1 [make::cufftMakePlan2d];
    cufftMakePlan3d 1 [make::cufftMakePlan3d];
    cufftMakePlanMany 1 [make::cufftMakePlanMany];
    cufftMakePlanMany64 1 [make::cufftMakePlanMany64];
    cufftPlan1d 1 [make::cufftPlan1d];
    cufftPlan2d 1 [make::cufftPlan2d];
    cufftPlan3d 1 [make::cufftPlan3d];
    cufftPlanMany 1 [make::cufftPlanMany];
    cufftResetPlanProperty 1 [exec::cufftResetPlanProperty];
    cufftSetAutoAllocation 1 [exec::cufftSetAutoAllocation];
    cufftSetPlanPropertyInt64 1 [exec::cufftSetPlanPropertyInt64];
    cufftSetStream 1 [exec::cufftSetStream];
    cufftSetWorkArea 1 [exec::cufftSetWorkArea];
    cufftXtClearCallback 1 [unsupported];
    cufftXtExec 1 [exec::cufftXtExec];
    cufftXtExecDescriptor 1 [unsupported];
    cufftXtExecDescriptorC2C 1 [unsupported];
    cufftXtExecDescriptorC2R 1 [unsupported];
    cufftXtExecDescriptorD2Z 1 [unsupported];
    cufftXtExecDescriptorR2C 1 [unsupported];
    cufftXtExecDescriptorZ2D 1 [unsupported];
    cufftXtExecDescriptorZ2Z 1 [unsupported];
    cufftXtFree 1 [unsupported];
    cufftXtGetSizeMany 1 [make::cufftXtGetSizeMany];
    cufftXtMakePlanMany 1 [make::cufftXtMakePlanMany];
    cufftXtMalloc 1 [unsupported];
    cufftXtMemcpy 1 [unsupported];
    cufftXtQueryPlan 1 [unsupported];
    cufftXtSetCallback 1 [unsupported];
    cufftXtSetCallbackSharedSize 1 [unsupported];
    cufftXtSetGPUs 1 [unsupported];
    cufftXtSetJITCallback 1 [unsupported];
    cufftXtSetWorkArea 1 [unsupported];
    cufftXtSetWorkAreaPolicy 1 [exec::cufftXtSetWorkAreaPolicy];
}
