//! An access whose address is no multiple of its size ends the kernel with CUDA's error 716, as on a GPU, and one whose
//! address is does what it should: in every state space, for every size, for loads, stores, atomics and copies.

use rgpu_device::{Code, Device, Launch, MemoryKind, Result};

use super::{LEGACY, MODULE, Rig};

/// An instruction, and the size of its access. `[a]` is where it goes.
struct Form {
    text: &'static str,
    size: u64,
}

const fn form(size: u64, text: &'static str) -> Form {
    Form { text, size }
}

/// `SPACE` stands for the state space, or nothing.
const FORMS: &[Form] = &[
    form(1, "ldSPACE.u8 %r1, [a];"),
    form(2, "ldSPACE.u16 %h1, [a];"),
    form(2, "stSPACE.b16 [a], %h1;"),
    form(4, "ldSPACE.u32 %r1, [a];"),
    form(4, "ldSPACE.f32 %f1, [a+4];"),
    form(4, "ld.volatileSPACE.u32 %r1, [a];"),
    form(4, "stSPACE.u32 [a+12], %r1;"),
    form(8, "ldSPACE.u64 %rd4, [a];"),
    form(8, "stSPACE.f64 [a+16], %fd1;"),
    form(8, "ldSPACE.v2.u32 {%r1, %r2}, [a];"),
    form(8, "ldSPACE.v4.u16 {%h1, %h2, %h3, %h4}, [a+8];"),
    form(16, "ldSPACE.v4.f32 {%f1, %f2, %f3, %f4}, [a];"),
    form(16, "ldSPACE.v2.u64 {%rd4, %rd5}, [a+16];"),
    form(16, "stSPACE.v4.u32 [a], {%r1, %r2, %r3, %r4};"),
    form(16, "ld.volatileSPACE.v2.u64 {%rd4, %rd5}, [a];"),
];
const ATOMS: &[Form] = &[
    form(4, "atomSPACE.add.u32 %r1, [a], %r2;"),
    form(4, "redSPACE.add.f32 [a+8], %f1;"),
    form(4, "atomSPACE.cas.b32 %r1, [a], %r2, %r3;"),
    form(8, "atomSPACE.exch.b64 %rd4, [a], %rd5;"),
    form(8, "redSPACE.max.u64 [a], %rd5;"),
];
const COPIES: &[Form] = &[
    form(4, "cp.async.ca.shared.global [s], [a], 4;"),
    form(8, "cp.async.ca.shared.global [s], [a], 8;"),
    form(16, "cp.async.cg.shared.global [s], [a], 16;"),
];
const COPIES_TO_SHARED: &[Form] = &[
    form(16, "cp.async.cg.shared.global [a], [%rd1], 16;"),
    form(8, "mbarrier.init.shared.b64 [a], 3;"),
    form(16, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [a];"),
    form(16, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [a], {%r1};"),
];

fn run(rig: &Rig, body: &str, delta: u64) -> Result<()> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
        .const .align 64 .b8 c[128];
        .visible .entry k(.param .u64 memory, .param .u64 delta) {{
          .reg .b64 %rd<8>, a; .reg .b32 %r<8>, a32; .reg .b16 %h<8>; .reg .f32 %f<8>; .reg .f64 %fd<4>;
          .shared .align 64 .b8 s[128]; .local .align 16 .b8 l[128];
          ld.param.u64 %rd1, [memory]; ld.param.u64 %rd2, [delta]; {body} ret; }}\0"
    );
    rig.gpu.reset(0)?;
    rig.gpu.mem_alloc(0, rig.memory, 1 << 20, MemoryKind::Device)?;
    rig.gpu.module_load(0, MODULE + 1, text.as_bytes(), &[])?;
    let params: Vec<u8> = [rig.memory + 256, delta].iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch {
        stream: LEGACY,
        module: MODULE + 1,
        function: 0,
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        cooperative: false,
        cluster: [0; 3],
        params: &params,
    };
    rig.gpu.launch(launch)?;
    rig.sync()
}

#[test]
fn misaligned_accesses_are_error_716_and_aligned_ones_are_none() {
    let rig = Rig::new();
    // Where an address comes from, the forms that go there, and their state space.
    let generic = "cvta.shared.u64 a, %rd3; add.u64 a, a, %rd2;";
    let both = || FORMS.iter().chain(ATOMS);
    let loads = || FORMS.iter().filter(|f| f.text.starts_with("ldSPACE"));
    type Forms<'a> = Box<dyn Iterator<Item = &'a Form> + 'a>;
    let places: [(&str, &str, Forms<'_>); 8] = [
        (".global", "add.u64 a, %rd1, %rd2;", Box::new(both())),
        ("", "add.u64 a, %rd1, %rd2;", Box::new(both())),
        (".shared", "cvt.u32.u64 a32, %rd2; mov.u32 %r7, s; add.u32 a32, a32, %r7;", Box::new(both())),
        ("", &format!("mov.u64 %rd3, s; {generic}"), Box::new(both())),
        (".local", "mov.u64 a, l; add.u64 a, a, %rd2;", Box::new(FORMS.iter())),
        (".const", "mov.u64 a, c; add.u64 a, a, %rd2;", Box::new(loads())),
        (".global", "add.u64 a, %rd1, %rd2;", Box::new(COPIES.iter())),
        (
            ".shared",
            "cvt.u32.u64 a32, %rd2; mov.u32 %r7, s; add.u32 a32, a32, %r7;",
            Box::new(COPIES_TO_SHARED.iter()),
        ),
    ];
    for (space, address, forms) in places {
        for form in forms {
            let mut text = form.text.replace("SPACE", space);
            if space == ".shared" && address.contains("a32") {
                text = text.replace("[a", "[a32");
            }
            for delta in [0, 1, 2, 4, 6, 8, 12, 16, 24, 32] {
                let result = run(&rig, &format!("{address} {text}"), delta).map_err(|e| e.code);
                let expected = if delta % form.size == 0 { Ok(()) } else { Err(Code::MisalignedAddress) };
                assert_eq!(result, expected, "{text} with {address} at {delta}");
            }
        }
    }
}

/// What is known when the kernel is compiled traps, too, and only when a thread comes there.
#[test]
fn names_with_odd_offsets_trap_where_a_thread_comes_to_them() {
    let rig = Rig::new();
    for text in [
        "ld.shared.u32 %r1, [s+OFFSET];",
        "st.shared.u32 [s+OFFSET], %r1;",
        "ld.local.u32 %r1, [l+OFFSET];",
        "st.local.u32 [l+OFFSET], %r1;",
        "ld.const.u32 %r1, [c+OFFSET];",
        "red.shared.add.u32 [s+OFFSET], %r1;",
    ] {
        let guarded = format!("setp.ne.u64 %p, %rd2, 0; @%p {text}");
        for (offset, delta, expected) in
            [("8", 1, Ok(())), ("6", 1, Err(Code::MisalignedAddress)), ("6", 0, Ok(()))]
        {
            let body = format!(".reg .pred %p; {}", guarded.replace("OFFSET", offset));
            assert_eq!(run(&rig, &body, delta).map_err(|e| e.code), expected, "{text} {offset} {delta}");
        }
    }
}

#[test]
fn a_misaligned_access_sticks_and_names_the_kernel() {
    let rig = Rig::new();
    let error = run(&rig, "add.u64 a, %rd1, %rd2; ld.global.u32 %r1, [a];", 1).unwrap_err();
    assert!(error.message.contains("Misaligned address in kernel k"), "{error}");
    assert_eq!(rig.gpu.mem_info(0).unwrap_err().code, Code::MisalignedAddress);
    assert_eq!(rig.sync().unwrap_err().code, Code::MisalignedAddress);
}
