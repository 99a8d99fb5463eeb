//! Texture and surface references: a variable's name where an object's handle would be.

use super::*;

/// What stands before the kernel's body: two references, and the object of a parameter.
fn module(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n\
         .visible .global .texref picture;\n.global .surfref canvas;\n\
         .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64])\n{{\n\
         .reg .b32 q<4>; .reg .b32 w<4>; .reg .f32 f<4>; .reg .b64 rd<9>; .reg .pred p<3>; .reg .b32 t<4>;\n\
         mov.u32 t1, %tid.x; ld.param.u64 rd1, [in]; ld.param.u64 rd3, [out];\n\
         mul.wide.u32 rd4, t1, 16; add.u64 rd4, rd4, rd3; mov.u32 q0, 0; mov.u32 q1, 0; mov.u32 q2, 0; mov.u32 q3, 0;\n\
         cvt.rn.f32.u32 f1, t1; mov.f32 f2, 0f3FC00000; mov.u32 w1, 1; shl.b32 w2, t1, 2;\n{body}\n\
         st.global.v4.b32 [rd4], {{q0, q1, q2, q3}};\nret;\n}}\n"
    )
}

/// Rows of four words, one for each of eight threads; the input begins with texels.
fn run(ptx: &str, texture: &Texture, bound: &[(&str, bool)]) -> Result<Vec<[u32; 4]>, Error> {
    let mut gpu = gpu();
    let base = gpu.input_address();
    let headers: Vec<(&str, Vec<u8>)> = bound
        .iter()
        .map(|&(name, surface)| {
            let mut header = TextureHeader { base, ..texture.header };
            header.flags.surface = surface;
            (name, header.to_bytes().to_vec())
        })
        .collect();
    let output = vec![0; 8 * 16];
    let (input, extra) = (&texture.texels[..], [0; 64]);
    let run = Run { ptx, input, output: &output, count: 8, extra, grid: 1, block: 8, shared: 0 };
    let output = gpu.run_bound(&run, &headers)?;
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    Ok(output.chunks_exact(16).map(|row| std::array::from_fn(|i| word(&row[i * 4..i * 4 + 4]))).collect())
}

fn plane() -> Texture {
    let format = TexelFormat::new(ChannelKind::Unsigned, 32, 1).unwrap();
    Texture::new(TextureKind::Plane, [8, 4, 0], format, 1, &mut Random(11))
}

#[test]
fn references_name_textures_and_surfaces() {
    let texture = plane();
    let bound = [("picture", false), ("canvas", true)];
    for (body, row) in [
        ("tex.2d.v4.u32.f32 {q0, q1, q2, q3}, [picture, {f1, f2}];", 1),
        ("tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [picture, {t1, w1}];", 1),
        // The address of a reference is a handle.
        ("mov.u64 rd5, picture; tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [rd5, {t1, w1}];", 1),
    ] {
        for (x, got) in run(&module(body), &texture, &bound).unwrap().into_iter().enumerate() {
            assert_eq!(got, [texture.bits(0, [x as u32, row, 0], 0), 0, 0, 1], "{body} at {x}");
        }
    }
    let body = "add.u32 t2, w2, 0; suld.b.2d.b32.trap {q0}, [canvas, {t2, w1}]; mul.lo.u32 t3, q0, 3; \
                sust.b.2d.b32.trap [canvas, {t2, w1}], {t3}; tex.2d.v4.u32.s32 {q1, q2, q3, t2}, [picture, {t1, w1}];";
    for (x, got) in run(&module(body), &texture, &bound).unwrap().into_iter().enumerate() {
        let texel = texture.bits(0, [x as u32, 1, 0], 0);
        assert_eq!(got, [texel, texel.wrapping_mul(3), 0, 0], "what was stored is read, at {x}");
    }
    let body = "txq.width.b32 q0, [picture]; suq.height.b32 q1, [canvas]; mov.u64 rd5, picture; mov.u64 rd6, canvas; \
                istypep.texref p1, rd5; selp.u32 q2, 1, 0, p1; istypep.texref p1, rd6; selp.u32 q3, 1, 0, p1;";
    assert_eq!(run(&module(body), &texture, &bound).unwrap()[3], [8, 4, 1, 0]);
    let body = "tld4.r.2d.v4.u32.f32 {q0, q1, q2, q3}, [picture, {f2, f2}];";
    let corners = [(1, 2), (2, 2), (2, 1), (1, 1)].map(|(x, y)| texture.bits(0, [x, y, 0], 0));
    assert_eq!(run(&module(body), &texture, &bound).unwrap()[0], corners);
}

#[test]
fn a_reference_without_anything_bound_ends_the_kernel() {
    let texture = plane();
    let body = "tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [picture, {t1, w1}];";
    let error = run(&module(body), &texture, &[("canvas", true)]).unwrap_err();
    assert_eq!(error.code, Code::IllegalAddress, "{error}");
    let body = "suld.b.2d.b32.trap {q0}, [canvas, {w2, w1}];";
    assert_eq!(run(&module(body), &texture, &[]).unwrap_err().code, Code::IllegalAddress);
    // A texture is no surface.
    assert_eq!(run(&module(body), &texture, &[("canvas", false)]).unwrap_err().code, Code::IllegalAddress);
}

#[test]
fn a_parameter_holds_the_handle_of_an_object() {
    let texture = plane();
    // Without anything bound to the module's reference, the parameter is the only way to an object.
    let ptx = ".version 8.6\n.target sm_90\n.address_size 64\n.global .texref picture;\n\
         .visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .texref given)\n{\n\
         .reg .b32 q<4>; .reg .b32 t<4>; .reg .b64 rd<9>;\n\
         mov.u32 t1, %tid.x; mov.u32 t2, 2; ld.param.u64 rd3, [out]; mul.wide.u32 rd4, t1, 16; add.u64 rd4, rd4, rd3;\n\
         tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [given, {t1, t2}]; ld.param.u64 rd5, [given]; cvt.u32.u64 q1, rd5;\n\
         st.global.v4.b32 [rd4], {q0, q1, q2, q3};\nret;\n}\n";
    let mut gpu = gpu();
    let base = gpu.input_address();
    let header = TextureHeader { base: base + TEXELS as u64, ..texture.header };
    let mut input = vec![0; TEXELS];
    input[..TEXTURE_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    input.extend(&texture.texels);
    let output = vec![0; 8 * 16];
    // Here the parameter lies at 24, where all parameters are 0, which is no object's handle.
    let run =
        Run { ptx, input: &input, output: &output, count: 8, extra: [0; 64], grid: 1, block: 8, shared: 0 };
    let output = gpu.run_bound(&run, &[]);
    assert_eq!(output.unwrap_err().code, Code::IllegalAddress);
    // And here at 32, where the run's own bytes begin.
    let ptx = &ptx.replace(
        ".param .u32 n, .param .texref given",
        ".param .u32 n, .param .u64 gap, .param .texref given",
    );
    let mut extra = [0; 64];
    extra[..8].copy_from_slice(&base.to_le_bytes());
    let run =
        Run { ptx, input: &input, output: &output_of(8), count: 8, extra, grid: 1, block: 8, shared: 0 };
    let output = gpu.run_bound(&run, &[]).unwrap();
    for (x, row) in output.chunks_exact(16).enumerate() {
        let want = [texture.bits(0, [x as u32, 2, 0], 0), base as u32];
        let got = [0, 4].map(|at| u32::from_le_bytes(row[at..at + 4].try_into().unwrap()));
        assert_eq!(got, want, "at {x}");
    }
}

fn output_of(threads: usize) -> Vec<u8> {
    vec![0; threads * 16]
}

#[test]
fn what_is_no_reference_of_the_kind_is_refused_by_name() {
    let mut gpu = gpu();
    for (body, named) in [
        ("tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [canvas, {t1, w1}];", "canvas, a .surfref"),
        ("suld.b.2d.b32.trap {q0}, [picture, {w2, w1}];", "picture, a .texref"),
        ("tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [in, {t1, w1}];", "in, a .u64"),
        ("tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [picture+4, {t1, w1}];", "reference"),
        ("tex.2d.v4.u32.s32 {q0, q1, q2, q3}, [picture, rd1, {t1, w1}];", "sampler"),
    ] {
        let error = gpu.loads(&module(body)).unwrap_err();
        assert!(error.code == Code::InvalidPtx && error.message.contains(named), "{body}: {error}");
    }
    for (declared, named) in [
        (".global .samplerref how;", "how is a .samplerref"),
        (".global .texref many[3];", "many is an array"),
        (".const .texref fixed;", "fixed is a .texref"),
        (".extern .global .texref elsewhere;", "elsewhere"),
        (".global .texref set = { width = 8 };", "initial value"),
    ] {
        let ptx = module("").replace(".global .surfref canvas;", declared);
        let error = gpu.loads(&ptx).unwrap_err();
        assert!(error.code == Code::InvalidPtx && error.message.contains(named), "{declared}: {error}");
    }
    let taken = ".visible .entry test(.param .u64 in, .param .u64 out, .param .texref given)\n{\n.reg .b64 rd<2>;\n\
                 mov.u64 rd1, given; ret;\n}\n";
    let error = gpu.loads(&format!(".version 8.6\n.target sm_90\n.address_size 64\n{taken}")).unwrap_err();
    assert!(error.message.contains("given, a parameter"), "{error}");
}
