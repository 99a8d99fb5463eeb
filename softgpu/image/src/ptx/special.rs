//! Names of special registers.

use super::ast::Special;

/// The special register with this name (`%tid` and component `x`).
pub(super) fn special(name: &str, component: Option<&str>) -> Option<Special> {
    use Special::*;
    if let Some(component) = component {
        let index = match component {
            "x" | "r" => 0,
            "y" | "g" => 1,
            "z" | "b" => 2,
            _ => return None,
        };
        let all = match name {
            "%tid" => [TidX, TidY, TidZ],
            "%ntid" => [NtidX, NtidY, NtidZ],
            "%ctaid" => [CtaidX, CtaidY, CtaidZ],
            "%nctaid" => [NctaidX, NctaidY, NctaidZ],
            "%clusterid" => [ClusterIdX, ClusterIdY, ClusterIdZ],
            "%nclusterid" => [NclusterIdX, NclusterIdY, NclusterIdZ],
            "%cluster_ctaid" => [ClusterCtaidX, ClusterCtaidY, ClusterCtaidZ],
            "%cluster_nctaid" => [ClusterNctaidX, ClusterNctaidY, ClusterNctaidZ],
            _ => return None,
        };
        return Some(all[index]);
    }
    Some(match name {
        "%laneid" => LaneId,
        "%warpid" => WarpId,
        "%nwarpid" => NwarpId,
        "%smid" => SmId,
        "%nsmid" => NsmId,
        "%gridid" => GridId,
        "%lanemask_eq" => LanemaskEq,
        "%lanemask_le" => LanemaskLe,
        "%lanemask_lt" => LanemaskLt,
        "%lanemask_ge" => LanemaskGe,
        "%lanemask_gt" => LanemaskGt,
        "%clock" => Clock,
        "%clock_hi" => ClockHi,
        "%clock64" => Clock64,
        "%globaltimer" => GlobalTimer,
        "%globaltimer_lo" => GlobalTimerLo,
        "%globaltimer_hi" => GlobalTimerHi,
        "%dynamic_smem_size" => DynamicSmemSize,
        "%total_smem_size" => TotalSmemSize,
        "%aggr_smem_size" => AggrSmemSize,
        "%cluster_ctarank" => ClusterCtaRank,
        "%cluster_nctarank" => ClusterNctaRank,
        "%is_explicit_cluster" => IsExplicitCluster,
        "%reserved_smem_offset_begin" => ReservedSmemBegin,
        "%reserved_smem_offset_end" => ReservedSmemEnd,
        "%reserved_smem_offset_cap" => ReservedSmemCap,
        "%reserved_smem_offset_0" => ReservedSmemOffset(0),
        "%reserved_smem_offset_1" => ReservedSmemOffset(1),
        "%current_graph_exec" => CurrentGraphExec,
        _ => {
            if let Some(number) = name.strip_prefix("%envreg") {
                return number.parse().ok().filter(|n| *n < 32).map(EnvReg);
            }
            let number = name.strip_prefix("%pm")?;
            return number.strip_suffix("_64").unwrap_or(number).parse().ok().filter(|n| *n < 8).map(Pm);
        }
    })
}
