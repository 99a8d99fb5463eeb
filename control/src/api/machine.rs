//! Which machine this is.

/// What identifies this machine, however it is named: a hash of its machine id and its network namespace's identity, so
/// that hosts in namespaces of one machine are different ones.
pub fn this_machine() -> String {
    let id = std::fs::read("/etc/machine-id").unwrap_or_default();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace =
        std::fs::read_link("/proc/self/ns/net").map(|link| link.into_os_string().into_encoded_bytes());
    let mut hash = blake3::Hasher::new();
    for part in [id.as_slice(), &boot, &namespace.unwrap_or_default()] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_stays_itself() {
        assert_eq!(this_machine(), this_machine());
        assert_eq!(this_machine().len(), 32);
    }
}
