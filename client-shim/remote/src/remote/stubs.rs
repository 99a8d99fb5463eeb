//! A method of [`Link`] for each row of the table of calls.

use super::link::Link;
use super::outgoing::Payload;
use rgpu_device::Result;
use rgpu_protocol::calls::*;

macro_rules! stub {
    ($(#[$doc:meta])* posted plain $name:ident $record:ident ($($field:ident: $type:ty),*) $answer:ty) => {
        $(#[$doc])*
        pub(super) fn $name(&self, $($field: $type),*) -> Result<()> {
            self.post(&$record { $($field),* }, Payload::NONE)
        }
    };
    ($(#[$doc:meta])* posted bulk $name:ident $record:ident ($($field:ident: $type:ty),*) $answer:ty) => {
        $(#[$doc])*
        pub(super) fn $name(&self, $($field: $type,)* payload: Payload<'_>) -> Result<()> {
            self.post(&$record { $($field),* }, payload)
        }
    };
    ($(#[$doc:meta])* asked plain $name:ident $record:ident ($($field:ident: $type:ty),*) $answer:ty) => {
        $(#[$doc])*
        pub(super) fn $name(&self, $($field: $type),*) -> Result<$answer> {
            self.ask(&$record { $($field),* }, Payload::NONE)
        }
    };
    ($(#[$doc:meta])* asked bulk $name:ident $record:ident ($($field:ident: $type:ty),*) $answer:ty) => {
        $(#[$doc])*
        pub(super) fn $name(&self, $($field: $type,)* payload: Payload<'_>) -> Result<$answer> {
            self.ask(&$record { $($field),* }, payload)
        }
    };
}

macro_rules! stubs {
    ($($(#[$doc:meta])* $number:literal $name:ident $record:ident $mode:ident $payload:ident
       since $since:literal ($($field:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[allow(clippy::too_many_arguments)]
        #[expect(dead_code, reason = "one stub for each row; a few rows are posted or asked by other ways")]
        impl Link {
            $(stub! { $(#[$doc])* $mode $payload $name $record ($($field: $type),*) $answer })*
        }
    };
}
rgpu_protocol::for_each_call!(stubs);
