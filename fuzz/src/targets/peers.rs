//! What a server's processes and other servers say.

use crate::input::Material;
use rgpu_protocol::calls::PeerKey;
use rgpu_protocol::transport::tls::{Fingerprint, is_certificate_verify};
use rgpu_server::fuzzing;
use rgpu_server::peer::{Ask, Introduction, Tell};

pub(super) fn peers(bytes: &[u8]) -> Result<bool, String> {
    let mut good = false;
    if let Some(introduction) = Introduction::parse(bytes) {
        good = true;
        let again = Introduction::parse(&introduction.to_credential());
        if again.as_ref() != Some(&introduction) {
            return Err(format!("{introduction:?} comes back as {again:?}"));
        }
        if introduction.knows(&PeerKey::default()) {
            return Err("it knows a key that nobody has told it".into());
        }
    }
    if let Ok(ask) = Ask::parse(bytes) {
        good = true;
        if ask.to_bytes() != bytes {
            return Err(format!("{ask:?} does not come back"));
        }
    }
    if let Ok(tell) = Tell::parse(bytes) {
        good = true;
        if Tell::parse(&tell.to_bytes()).as_ref() != Ok(&tell) {
            return Err(format!("{tell:?} does not come back"));
        }
    }
    Ok(good)
}

pub(super) fn peer_examples() -> Material {
    let key = PeerKey { session: [1; 16], number: 2, secret: [3; 32] };
    let ask = Ask { link: 1, node: "node".into(), address: "10.0.0.1:7070".into(), key: key.clone() };
    let examples = vec![
        Introduction::new(&key, [4; 16]).to_credential(),
        ask.to_bytes(),
        Tell::Connected { link: 1 }.to_bytes(),
        Tell::Failed { link: 2, text: "no".into() }.to_bytes(),
        Tell::Arrived { number: 3, nonce: [5; 16] }.to_bytes(),
    ];
    Material { examples, words: Vec::new() }
}

pub(super) fn orders(bytes: &[u8]) -> Result<bool, String> {
    Ok(fuzzing::begin(bytes))
}

pub(super) fn order_examples() -> Material {
    Material { examples: fuzzing::beginnings(), words: Vec::new() }
}

pub(super) fn handshake(bytes: &[u8]) -> Result<bool, String> {
    Ok(fuzzing::ask(bytes)? | fuzzing::tell(bytes)?)
}

pub(super) fn handshake_examples() -> Material {
    Material { examples: fuzzing::messages(), words: Vec::new() }
}

pub(super) fn signing(bytes: &[u8]) -> Result<bool, String> {
    let good = is_certificate_verify(bytes);
    let begin = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0"].concat();
    if good != (bytes.starts_with(&begin) && [98 + 32, 98 + 48].contains(&bytes.len())) {
        return Err(format!("it is said to be {good} that this is to be signed"));
    }
    Ok(good)
}

pub(super) fn to_be_signed() -> Material {
    let of = |hash: usize| [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &vec![1; hash]].concat();
    let words = [&b"TLS 1.3, client CertificateVerify\0"[..], b"server", b"client", b" ", &[b' '; 64]];
    Material { examples: vec![of(32), of(48)], words: words.map(<[u8]>::to_vec).to_vec() }
}

pub(super) fn fingerprints(bytes: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let Ok(list) = Fingerprint::list(text) else { return Ok(false) };
    for one in &list {
        if one.to_string().parse().as_ref() != Ok(one) {
            return Err(format!("{one} does not come back"));
        }
    }
    Ok(!list.is_empty())
}

pub(super) fn fingerprint_texts() -> Material {
    let one = format!("sha256:{}", "07".repeat(32));
    let colons = "AB:".repeat(31) + "CD";
    let both = format!(" {one}, SHA256:{colons}");
    Material::texts(&[&one, &colons, &both], &["sha256:", ":", ",", "é", "00"])
}
