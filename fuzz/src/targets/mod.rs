//! What is fuzzed: each decoder that reads what another party sends.

mod collectives;
mod control;
mod images;
mod libraries;
mod peers;
mod session;

use crate::input::Material;
use crate::random::Random;

/// A decoder.
#[derive(Debug)]
pub struct Target {
    /// By what it is called.
    pub name: &'static str,
    /// What it is, and who sends what it reads.
    pub about: &'static str,
    /// What inputs are made of.
    pub material: fn() -> Material,
    /// Makes a valid input, where that is better done than by damaging examples.
    pub generate: Option<fn(&mut Random, &mut Vec<u8>)>,
    /// Decodes. Says whether the input was accepted.
    ///
    /// # Errors
    /// Something came of it that must not.
    pub run: fn(&[u8]) -> Result<bool, String>,
    /// So much may be held whatever the input, in bytes.
    pub memory: usize,
    /// So much may be held for each byte of the input.
    pub memory_per_byte: usize,
}

impl Target {
    const fn new(name: &'static str, about: &'static str, run: fn(&[u8]) -> Result<bool, String>) -> Self {
        Self {
            name,
            about,
            material: Material::default,
            generate: None,
            run,
            memory: 64 << 10,
            memory_per_byte: 64,
        }
    }

    const fn with(self, material: fn() -> Material) -> Self {
        Self { material, ..self }
    }

    const fn generated(self, generate: fn(&mut Random, &mut Vec<u8>)) -> Self {
        Self { generate: Some(generate), ..self }
    }

    const fn memory(self, memory: usize, memory_per_byte: usize) -> Self {
        Self { memory, memory_per_byte, ..self }
    }

    /// What its inputs are made of.
    pub fn material(&self) -> Material {
        (self.material)()
    }

    /// The target with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// All of them.
pub static TARGETS: &[Target] = &[
    Target::new("hello", "a connection's first words, of a client", session::hello).with(session::hellos),
    Target::new("hello-answer", "their answer, of a server", session::hello_answer)
        .with(session::hello_answers),
    Target::new("frames", "frames as they come off a connection in pieces, of either side", session::frames)
        .with(session::frame_examples)
        // A body's buffer grows by a frame's payload, of 1 MiB at most, as bytes arrive.
        .memory(3 << 20, 64),
    Target::new("calls", "every call's arguments, of a client", session::calls).generated(session::some_call),
    Target::new("answers", "every call's answer, of a server", session::answers)
        .with(session::answer_examples),
    Target::new("notices", "what a server says unasked", session::notices).with(session::notice_examples),
    Target::new("shm-ring", "the indices of a ring in shared memory, of either side", session::shm_ring)
        .generated(session::role_and_moves)
        .memory(4 << 20, 64),
    Target::new("rdma", "the numbers of an RDMA connection, of either side", session::rdma)
        .generated(session::moves),
    Target::new("peers", "introductions and orders of copies between servers", peers::peers)
        .with(peers::peer_examples),
    Target::new("orders", "what the daemon hands to a process", peers::orders).with(peers::order_examples),
    Target::new(
        "handshake",
        "what a process that speaks TLS asks of the daemon, and the answers",
        peers::handshake,
    )
    .with(peers::handshake_examples),
    Target::new("signing", "what a process wants signed", peers::signing).with(peers::to_be_signed),
    Target::new("fingerprints", "lists of certificates' fingerprints", peers::fingerprints)
        .with(peers::fingerprint_texts),
    Target::new("tokens", "tokens of a broker, of whoever comes", control::tokens).with(control::token_texts),
    Target::new("proofs", "credentials with a proof, of a client", control::proofs)
        .with(control::proof_texts),
    Target::new("tickets", "the file that tells a program its lease", control::tickets)
        .with(control::ticket_texts),
    Target::new("requests", "bodies of requests to the broker, and of its answers", control::requests)
        .with(control::request_texts)
        .generated(control::some_json)
        .memory(64 << 10, 256),
    Target::new("units", "sizes, times, rates and shares in settings", control::units)
        .with(control::unit_texts),
    Target::new("ptx", "the parser of PTX, of a program", images::ptx)
        .with(images::ptx_texts)
        .memory(1 << 20, 2048),
    Target::new("linker", "the linker of PTX, of a program", images::linker)
        .with(images::linker_texts)
        .memory(1 << 20, 2048),
    Target::new("images", "fat binaries and what is compressed in them, of a program", images::images)
        .with(images::containers)
        .memory(2 << 20, 4096),
    Target::new(
        "libraries",
        "operations of mathematical libraries and what they come to, of a client",
        libraries::operations,
    )
    .with(libraries::examples)
    .generated(libraries::some_operation),
    Target::new(
        "collectives",
        "what the ranks of a collective operation say to each other",
        collectives::said,
    )
    .with(collectives::examples),
    Target::new("elf", "the files of the objects that a program loads", images::elf).with(images::objects),
];
