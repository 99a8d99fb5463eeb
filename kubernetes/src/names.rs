//! What Kubernetes objects call things of this driver.

/// The driver, and the domain of what it names.
pub const DRIVER: &str = "rgpu.dev";
/// The pool of all devices. It is not bound to a node.
pub const POOL: &str = "rgpu";
/// The binding condition: a pod is bound once it is `True` for all devices of its claims.
pub const GRANTED: &str = "LeaseGranted";
/// The binding failure condition: the scheduler gives up the claim's allocation where it is `True`.
pub const REFUSED: &str = "LeaseRefused";
/// Keeps a claim until its lease is given back.
pub const FINALIZER: &str = "rgpu.dev/lease";
/// The capacity of memory, in bytes.
pub const MEMORY: &str = "memory";
/// The capacity of device time: 1 is a whole device.
pub const SHARE: &str = "share";
/// The resource of the device plugin.
pub const RESOURCE: &str = "rgpu.dev/gpu";

/// A name that Kubernetes takes for a device: lower-case letters, digits and hyphens, at most `most` of them.
pub fn label(text: &str, most: usize) -> String {
    let mut name = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_lowercase()),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(most);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "gpu".into() } else { name.into() }
}

/// The name of a partition, of which there are several of a kind. No [`label`] has two hyphens side by side.
pub fn partition(kind: &str, number: usize) -> String {
    format!("{kind}--{number}")
}

/// The kind of a device of the pool, by its name: its model, as a [`label`].
pub fn kind(device: &str) -> &str {
    device.split_once("--").map_or(device, |(kind, _)| kind)
}

/// Whether a UID can be a part of a file's name, as those of Kubernetes can.
pub fn is_plain(uid: &str) -> bool {
    (1..=64).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_become_labels() {
        assert_eq!(label("NVIDIA H100 80GB HBM3", 40), "nvidia-h100-80gb-hbm3");
        assert_eq!(label("  A100-SXM4 (MIG 1g.10gb) ", 40), "a100-sxm4-mig-1g-10gb");
        assert_eq!((label("…", 40), label("abcd efgh", 5)), ("gpu".to_owned(), "abcd".to_owned()));
        assert!(is_plain("0f2c-9") && !is_plain("../x") && !is_plain("") && !is_plain("a/b"));
    }
}
