//! What the types of all bodies have in common.

/// Types of bodies: what all of them derive, said once.
macro_rules! records {
    ($($(#[$meta:meta])* pub $kind:ident $name:ident { $($body:tt)* })*) => {
        $(#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        $(#[$meta])*
        pub $kind $name { $($body)* })*
    };
}
pub(super) use records;
