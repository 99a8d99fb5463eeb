//! Modules.

use crate::Open;
use crate::bench::{Bench, IMAGE, LEGACY, MODULE, OTHER, code};
use rgpu_device::{Code, GlobalKind, Launch, Region};

/// A module tells its kernels and variables.
pub fn modules_describe_themselves(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let of =
        |name: &str| info.functions.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no {name}"));
    for (name, bytes, count) in
        [("store", 12, 2), ("successor", 16, 2), ("sum", 8, 1), ("strict", 8, 1), ("narrow", 0, 0)]
    {
        assert_eq!((of(name).param_bytes(), of(name).params.len()), (bytes, count), "{name}");
    }
    assert_eq!(of("strict").required_block, [32, 1, 1]);
    let global =
        |name: &str| info.globals.iter().find(|g| g.name == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((global("start").size, global("start").kind), (4, GlobalKind::Global));
    assert_eq!((global("fixed").size, global("fixed").kind), (4, GlobalKind::Constant));
    assert_ne!(global("start").addr, global("fixed").addr);
    assert!(info.functions.iter().all(|f| f.name != "nothing"));
}

/// Variables are memory: they have their initial values, and can be written and read.
pub fn variables_are_memory(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let addr = info.globals.iter().find(|g| g.name == "start").unwrap().addr;
    assert_eq!(bench.words(addr, 1), [41]);
    bench.write(addr, &7u32.to_le_bytes());
    assert_eq!(bench.words(addr, 1), [7]);
    bench.refused(bench.device.memset(LEGACY, Region::linear(addr, 1 << 20), 0, 1), Code::InvalidValue);
    bench.device.module_unload(MODULE).unwrap();
    bench.refused(bench.device.memset(LEGACY, Region::linear(addr, 4), 0, 1), Code::InvalidValue);
}

/// A module's handle is the caller's choice, is taken while the module is there, and free afterwards.
pub fn module_handles_are_taken_and_free(open: Open) {
    let bench = Bench::new(open);
    let load = || bench.device.module_load(0, MODULE, IMAGE, &[]);
    load().unwrap();
    bench.refused(load(), Code::InvalidValue);
    bench.device.module_unload(MODULE).unwrap();
    bench.refused(bench.device.module_unload(MODULE), Code::InvalidHandle);
    bench.refused(bench.device.module_unload(OTHER), Code::InvalidHandle);
    load().unwrap();
    bench.sync().unwrap();
}

/// What is no image, or none for this device, is refused, and its handle stays free.
pub fn bad_images_are_refused(open: Open) {
    let bench = Bench::new(open);
    for (image, expected) in [
        (&b""[..], Code::InvalidImage),
        (b"\x00\x01\x02\x03 neither this nor that", Code::InvalidImage),
        (
            b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { what is this }\n",
            Code::InvalidPtx,
        ),
    ] {
        let refused = bench.device.module_load(0, MODULE, image, &[]);
        assert_eq!(code(refused), Some(expected), "{:?}", String::from_utf8_lossy(image));
    }
    bench.load();
    bench.sync().unwrap();
}

/// A kernel that the device cannot execute is told from the others by whatever describes the module, with its name, and is
/// refused for the same reason when it is launched. The others run.
pub fn kernels_that_cannot_run_are_refused_alone(open: Open) {
    const TEXTURED: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry textured(.param .u64 out) {\n.reg .f32 %f<6>; .reg .b64 %rd<2>;\n\
        ld.param.u64 %rd1, [out];\ntex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}];\nret; }\n\
        .visible .entry plain(.param .u64 out) {\n.reg .b64 %rd<2>;\n\
        ld.param.u64 %rd1, [out];\nst.global.u32 [%rd1], 21;\nret; }\n\0";
    let bench = Bench::new(open);
    let device = &bench.device;
    let info = if device.module_begin(0, MODULE, TEXTURED, true).unwrap() {
        device.module_info(MODULE).unwrap()
    } else {
        device.module_load(0, MODULE, TEXTURED, &[]).unwrap()
    };
    device.module_load(0, OTHER, TEXTURED, &[]).map(|again| assert_eq!(again, info)).unwrap();
    let of = |name: &str| info.functions.iter().find(|f| f.name == name).unwrap();
    assert_eq!(of("plain").refusal, None);
    let out = bench.alloc(4096);
    let params = out.to_le_bytes();
    let launch = |name| Launch { module: OTHER, ..bench.launch(&info, name, &params) };
    device.launch(launch("plain")).unwrap();
    assert_eq!(bench.words(out, 1), [21]);
    // A device that has textures has nothing to refuse.
    if let Some(refusal) = &of("textured").refusal {
        for word in ["textured", "tex.2d.v4.f32.f32"] {
            assert!(refusal.message.contains(word), "{word} is missing: {refusal}");
        }
        bench.refused(device.launch(launch("textured")), refusal.code);
        device.launch(launch("plain")).unwrap();
        bench.sync().unwrap();
    }
}

/// A module can be begun without waiting; then its kernels have numbers of the caller's choice. A device that has no such
/// shortcut says so.
pub fn modules_can_be_begun(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    if !device.module_begin(0, MODULE, IMAGE, true).unwrap() {
        assert_eq!(code(device.module_info(MODULE)), Some(Code::NotSupported));
        assert_eq!(code(device.module_function(MODULE, 0, "sum")), Some(Code::NotSupported));
        return;
    }
    device.module_function(MODULE, 5, "sum").unwrap();
    let out = bench.alloc(4096);
    let info = device.module_info(MODULE).unwrap();
    let params = out.to_le_bytes();
    let launch = rgpu_device::Launch { function: 5, ..bench.launch(&info, "sum", &params) };
    device.launch(launch).unwrap();
    assert_eq!(bench.words(out, 1), [48]);
    device.module_unload(MODULE).unwrap();
    bench.sync().unwrap();
}
