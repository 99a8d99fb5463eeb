//! Tests of images, with containers built here.

use proptest::prelude::*;
use rgpu_device::Code;

use super::*;

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
const FLAG_A: u64 = 0x10_0000;

fn ptx(target: &str) -> String {
    format!("//\n// by hand\n//\n\n.version 8.0\n.target {target}\n.address_size 64\n\0\0")
}

fn entry_bytes(kind: u16, architecture: u32, flags: u64, plain: &[u8]) -> Vec<u8> {
    let mut payload = match flags & (FLAG_LZ4 | FLAG_ZSTD) {
        FLAG_LZ4 => lz4_flex::block::compress(plain),
        FLAG_ZSTD => ::zstd::encode_all(plain, 3).unwrap(),
        _ => plain.to_vec(),
    };
    let compressed = if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 { 0 } else { payload.len() as u32 };
    while payload.len() % 8 != 0 {
        payload.push(0);
    }
    let mut out = Vec::new();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&0x101u16.to_le_bytes());
    out.extend_from_slice(&64u32.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&compressed.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&8u16.to_le_bytes());
    out.extend_from_slice(&architecture.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&(flags | 0x11).to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&(plain.len() as u64).to_le_bytes());
    out.extend_from_slice(&payload);
    out
}

fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let all = entries.concat();
    let mut out = CONTAINER_MAGIC.to_le_bytes().to_vec();
    out.extend_from_slice(&[1, 0, 16, 0]);
    out.extend_from_slice(&(all.len() as u64).to_le_bytes());
    out.extend_from_slice(&all);
    out
}

#[test]
fn the_newest_ptx_that_the_device_can_run_is_chosen() {
    let image = container(&[
        entry_bytes(2, 80, 0, b"\x7fELF"),
        entry_bytes(1, 52, 0, ptx("sm_52").as_bytes()),
        entry_bytes(1, 75, FLAG_LZ4, ptx("sm_75").as_bytes()),
        entry_bytes(1, 80, FLAG_ZSTD, ptx("sm_80").as_bytes()),
        entry_bytes(1, 90, FLAG_A, ptx("sm_90a").as_bytes()),
    ]);
    for (capability, target) in
        [(60, "sm_52"), (75, "sm_75"), (80, "sm_80"), (89, "sm_80"), (90, "sm_90a"), (100, "sm_80")]
    {
        let text = ptx_for(&image, capability).unwrap();
        assert!(text.contains(&format!(".target {target}\n")), "{capability}: {text}");
        assert!(!text.contains('\0'));
    }
    // Where all is newer, the oldest; what is for one architecture alone comes last.
    assert!(ptx_for(&image, 50).unwrap().contains(".target sm_52\n"));
    let newer = container(&[
        entry_bytes(1, 90, FLAG_A, ptx("sm_90a").as_bytes()),
        entry_bytes(1, 120, 0, ptx("sm_120").as_bytes()),
        entry_bytes(1, 100, 0, ptx("sm_100").as_bytes()),
    ]);
    assert!(ptx_for(&newer, 80).unwrap().contains(".target sm_100\n"));
    let none = container(&[entry_bytes(2, 80, 0, b"\x7fELF")]);
    let error = ptx_for(&none, 80).unwrap_err();
    assert_eq!(error.code, Code::NoBinaryForGpu);
    assert!(error.message.contains("machine code for sm_80"), "{error}");
}

#[test]
fn containers_back_to_back_are_one_image() {
    let mut image = container(&[entry_bytes(2, 80, 0, b"\x7fELF")]);
    image.extend(container(&[entry_bytes(1, 70, 0, ptx("sm_70").as_bytes())]));
    assert_eq!(entries(&image).unwrap().len(), 2);
    assert!(ptx_for(&image, 80).unwrap().contains("sm_70"));
}

#[test]
fn only_what_a_device_can_use_is_sent() {
    let image = container(&[
        entry_bytes(2, 80, 0, b"\x7fELF"),
        entry_bytes(1, 52, 0, ptx("sm_52").as_bytes()),
        entry_bytes(1, 80, FLAG_ZSTD, ptx("sm_80").as_bytes()),
    ]);
    let kinds = |accepts| {
        let kept = for_device(&image, accepts).unwrap();
        entries(&kept).unwrap().iter().map(|e| (e.kind, e.architecture)).collect::<Vec<_>>()
    };
    let ptx_only = Accepts { ptx: true, cubin: false, capability: None };
    assert_eq!(kinds(ptx_only), [(EntryKind::Ptx, 52), (EntryKind::Ptx, 80)]);
    assert_eq!(kinds(Accepts { capability: Some(86), ..ptx_only }), [(EntryKind::Ptx, 80)]);
    assert_eq!(kinds(Accepts { capability: Some(75), ..ptx_only }), [(EntryKind::Ptx, 52)]);
    assert_eq!(kinds(Accepts { ptx: false, cubin: true, capability: Some(86) }), [(EntryKind::Cubin, 80)]);
    // Without NVIDIA's compiler what is newer is taken where there is nothing else; with it, never.
    assert_eq!(kinds(Accepts { capability: Some(50), ..ptx_only }), [(EntryKind::Ptx, 52)]);
    assert!(for_device(&image, Accepts { ptx: true, cubin: true, capability: Some(50) }).is_err());
    let error = for_device(&image, Accepts { ptx: false, cubin: true, capability: Some(90) }).unwrap_err();
    assert_eq!(error.code, Code::NoBinaryForGpu);
    // What is kept can be used as before.
    let kept = for_device(&image, ptx_only).unwrap();
    assert!(ptx_for(&kept, 80).unwrap().contains("sm_80"));
}

#[test]
fn code_of_another_architecture_is_not_the_texts() {
    let code = |architecture, flags| entry_bytes(2, architecture, flags, b"\x7fELF");
    let text =
        |architecture: u32| entry_bytes(1, architecture, 0, ptx(&format!("sm_{architecture}")).as_bytes());
    let both = container(&[code(80, 0), code(90, 0), text(80)]);
    assert!(is_text_of_code(&both, 80) && is_text_of_code(&both, 86));
    assert!(!is_text_of_code(&both, 90));
    // The text is compiled for what there is no code for.
    assert!(is_text_of_code(&both, 100));
    assert!(is_text_of_code(&container(&[code(80, 0), code(90, 0), text(80), text(90)]), 90));
    const FLAG_ARCHITECTURE: u64 = 0x10_0000;
    assert!(!is_text_of_code(&container(&[code(90, FLAG_ARCHITECTURE), text(90)]), 90));
    assert!(is_text_of_code(ptx("sm_80").as_bytes(), 90));
}

#[test]
fn images_are_told_apart() {
    assert_eq!(sniff(&container(&[])), Some(ImageKind::Container));
    assert_eq!(sniff(b"\x7fELF\x02\x01"), Some(ImageKind::Cubin));
    assert_eq!(sniff(ptx("sm_80").as_bytes()), Some(ImageKind::Ptx));
    assert_eq!(sniff(b"/* a */ # 1 \"x\"\n.version 8.0"), Some(ImageKind::Ptx));
    assert_eq!(sniff(b""), None);
    assert_eq!(sniff(b"// only a comment"), None);
    assert_eq!(sniff(b"MZ"), None);
    assert_eq!(ptx_for(b"MZ", 80).unwrap_err().code, Code::InvalidImage);
}

#[test]
fn newer_ptx_is_taken_and_a_newer_language_is_not() {
    let text = ptx("sm_90");
    assert!(ptx_for(text.as_bytes(), 80).is_ok());
    assert!(ptx_for(ptx("sm_90a").as_bytes(), 86).is_ok());
    let text = text.replace("8.0", "10.0");
    assert_eq!(ptx_for(text.as_bytes(), 90).unwrap_err().code, Code::UnsupportedPtxVersion);
}

#[test]
fn sizes_come_from_headers() {
    let image = container(&[entry_bytes(1, 52, 0, ptx("sm_52").as_bytes())]);
    assert_eq!(size_of_container(&image[..16]), Some(image.len()));
    assert_eq!(size_of_container(&image[..15]), None);
    assert_eq!(size_of_container(b"\x7fELF............"), None);
}

#[test]
fn a_claimed_size_is_not_believed() {
    let mut entry = entry_bytes(1, 52, FLAG_ZSTD, ptx("sm_52").as_bytes());
    entry[56..64].copy_from_slice(&(1u64 << 29).to_le_bytes());
    assert_eq!(ptx_for(&container(&[entry]), 80).unwrap_err().code, Code::InvalidImage);
    let mut entry = entry_bytes(1, 52, FLAG_LZ4, ptx("sm_52").as_bytes());
    entry[56..64].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(ptx_for(&container(&[entry]), 80).unwrap_err().code, Code::InvalidImage);
    // A bomb: much more comes out than is claimed.
    let mut bomb = entry_bytes(1, 52, FLAG_ZSTD, &vec![b' '; 1 << 24]);
    bomb[56..64].copy_from_slice(&1000u64.to_le_bytes());
    assert_eq!(ptx_for(&container(&[bomb]), 80).unwrap_err().code, Code::InvalidImage);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = ptx_for(&bytes, 80);
        let mut image = CONTAINER_MAGIC.to_le_bytes().to_vec();
        image.extend(bytes);
        let _ = ptx_for(&image, 80);
        let _ = for_device(&image, Accepts { ptx: true, cubin: true, capability: Some(80) });
        let _ = (size_of_container(&image), size_of_cubin(&image));
    }

    #[test]
    fn mutated_containers_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut image = container(&[
            entry_bytes(2, 80, 0, b"\x7fELF"),
            entry_bytes(1, 75, FLAG_LZ4, ptx("sm_75").as_bytes()),
            entry_bytes(1, 80, FLAG_ZSTD, ptx("sm_80").as_bytes()),
        ]);
        for (at, value) in changes {
            let at = at.index(image.len());
            image[at] = value;
        }
        for image in [&image[..], &image[..cut.index(image.len())]] {
            let _ = ptx_for(image, 80);
            let _ = ptx_for(image, 75);
            let _ = for_device(image, Accepts { ptx: true, cubin: true, capability: None });
        }
    }
}
