//! What carries frames.
//!
//! A [`Transport`] moves bytes in order, both ways, between two processes. It never blocks in
//! [`Transport::send`] and [`Transport::recv`]; whoever must wait says so with [`Transport::wait`], and
//! for how long. That leaves the policy (who waits, what else is read meanwhile, when a silent peer
//! counts as dead) to the session, in one place for all transports.
//!
//! How both ends come to have one is the business of its [`Connector`]; [`CONNECTORS`] lists them.

pub mod blocking;
mod connector;
mod connectors;
mod dial;
mod error;
pub(crate) mod fuzzing;
mod interface;
mod kind;
pub mod pass;
mod rdma;
mod settings;
mod shm;
mod spin;
mod stream;
mod tcp;
pub mod tls;

pub use connector::{Accepted, Connector, Connectors, Established, Finish, Offer, Offered, StreamItself};
pub use connectors::{CONNECTORS, Choice, UnknownTransport, features, offered};
pub use dial::{Dial, Encrypt};
pub use error::ConnectError;
pub use interface::{Ready, Transport};
pub use kind::Kind;
pub use pass::{receive_descriptors, send_descriptors};
pub use rdma::Rdma;
pub use settings::{CA_VARIABLE, ENCRYPT_VARIABLE, FINGERPRINT_VARIABLE, TRANSPORT_VARIABLE, local_name};
pub use shm::{Passed, Shm};
pub use stream::{Carrier, Stream};
pub use tcp::{Descriptor, Tcp, dup_above};
pub use tls::Tls;
