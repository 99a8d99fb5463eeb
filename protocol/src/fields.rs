//! Records that the wire shares with the interface behind it, field for field.

/// Makes a record of one side out of the other side's record of the same name: `same_fields!(Range, value => path)`.
/// Fields that differ are given after that, by name and value.
#[macro_export]
macro_rules! same_fields {
    (Range, $value:expr => $to:path) => {
        $crate::same_fields!(@ $value => $to { base size })
    };
    (Region, $value:expr => $to:path) => {
        $crate::same_fields!(@ $value => $to { addr row_pitch slice_pitch width height depth })
    };
    (DeviceInfo, $value:expr => $to:path) => {
        $crate::same_fields!(@ $value => $to {
            name uuid total_memory compute_capability driver_version accepts_ptx accepts_cubin attributes
        })
    };
    (FunctionInfo, $value:expr => $to:path, $($other:ident: $with:expr),*) => {
        $crate::same_fields!(@ $value => $to {
            name max_threads registers static_shared local_bytes const_bytes ptx_version binary_version
            required_block $(, $other: $with)*
        })
    };
    (GlobalInfo, $value:expr => $to:path, $($other:ident: $with:expr),*) => {
        $crate::same_fields!(@ $value => $to { name addr size $(, $other: $with)* })
    };
    (@ $value:expr => $to:path { $($field:ident)* $(, $other:ident: $with:expr)* }) => {{
        let value = $value;
        $to { $($field: value.$field,)* $($other: $with,)* }
    }};
}
