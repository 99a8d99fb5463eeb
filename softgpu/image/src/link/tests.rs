use super::*;
use crate::ptx;

const HEADER: &str = ".version 8.0\n.target sm_70\n.address_size 64\n";

/// A kernel that calls into the other text, with names of its own that the other has too.
fn first() -> String {
    format!(
        "{HEADER}.file 1 \"one.cu\"
        .extern .func (.param .b32 r) other (.param .b32 p);
        .extern .global .align 4 .b8 table[16];
        .extern .shared .align 4 .b8 dynamic[];
        .global .align 1 .b8 $str[4] = {{111, 110, 101, 0}}; // one: not a $str
        .func helper (.param .b64 p) {{ .loc 1 2 3, function_name $L__info, inlined_at 1 2 3
            ret; }}
        .weak .func twice () {{ ret; }}
        .visible .entry one () {{
            .reg .b64 %rd<2>; .reg .b32 %r<2>;
            .loc 1 5 6
            mov.u64 %rd1, $str; /* $str again */
            {{ .param .b64 p0; st.param.b64 [p0], %rd1; call helper, (p0); }}
            {{ .param .b32 q0; .param .b32 ret0; st.param.b32 [q0], 1; call (ret0), other, (q0); }}
            ld.global.u32 %r1, [table+4];
            call twice;
            ret;
        }}
        .section .debug_str {{ $L__info: .b8 1 }}"
    )
}

fn second() -> String {
    ".version 8.4\n.target sm_80, debug\n.address_size 64\n
        .weak .func twice ();
        .extern .shared .align 16 .b8 dynamic[];
        .global .align 1 .b8 $str[4] = {116, 119, 111, 0};
        .visible .global .align 4 .b8 table[16] = {1};
        .func helper (.param .b64 p) { ret; }
        .weak .func twice () { ret; }
        .visible .func (.param .b32 r) other (.param .b32 p) {
            .reg .b64 %rd<2>;
            mov.u64 %rd1, $str;
            { .param .b64 p0; st.param.b64 [p0], %rd1; call helper, (p0); }
            st.param.b32 [r], 1;
            ret;
        }"
    .to_owned()
}

#[test]
fn texts_are_linked() {
    for texts in [[first(), second()], [second(), first()]] {
        let linked = link(&texts).unwrap();
        assert!(linked.starts_with(".version 8.4\n.target sm_80\n.address_size 64\n"), "{linked}");
        assert!(!linked.contains(".loc") && !linked.contains(".section") && !linked.contains(".file"));
        let module = ptx::parse(&linked).unwrap_or_else(|error| panic!("{error}\n{linked}"));
        let names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
        for wanted in ["one", "other", "twice", "helper__unit0", "helper__unit1"] {
            let found = module.functions.iter().find(|f| f.name == wanted);
            assert!(found.is_some_and(|f| !f.is_declaration), "{wanted} in {names:?}\n{linked}");
        }
        let variable = |name: &str| module.variables.iter().find(|v| v.name == name).unwrap();
        assert!(variable("table").init.is_some());
        assert_eq!(variable("dynamic").align, 16);
        assert_ne!(variable("$str__unit0").init, variable("$str__unit1").init);
    }
}

#[test]
fn what_two_texts_define_is_refused() {
    let text = format!("{HEADER}.visible .func f () {{ ret; }}");
    let error = link(&[&text, &text]).unwrap_err();
    assert_eq!(error.code, Code::InvalidPtx);
    assert!(error.message.contains("f is defined in two"), "{}", error.message);
}

#[test]
fn a_strong_definition_replaces_a_weak_one() {
    let weak = format!("{HEADER}.weak .func f () {{ trap; ret; }}\n.visible .entry k () {{ call f; ret; }}");
    let strong = format!("{HEADER}.visible .func f () {{ ret; }}");
    let linked = link(&[&weak, &strong]).unwrap();
    assert!(!linked.contains("trap"), "{linked}");
    assert!(ptx::parse(&linked).is_ok(), "{linked}");
}

#[test]
fn damaged_texts_are_errors() {
    let whole = first();
    let end = whole.find(".section").unwrap();
    for cut in 0..end {
        let _ = link(&[&whole[..cut], second().as_str()]);
    }
    for text in ["", "hello", ".version 8.0\n.func", ".version 8.0\n.func f (", ".version 8.0 .global ;", "{"]
    {
        assert_eq!(link(&[text, text]).unwrap_err().code, Code::InvalidPtx, "{text}");
    }
    assert_eq!(link(&["one text stays as it is"]).unwrap(), "one text stays as it is");
}

#[test]
fn what_the_parser_takes_for_blank_is_blank() {
    let one =
        format!("{HEADER}.visible .func (.param .b32 r) f\0 (.param .b32 x)\n# 1 \"a.cu\" {{\n{{ ret; }}");
    let other = format!("{HEADER}.extern .func (.param .b32 r) f (.param .b32 x);");
    assert!(ptx::parse(&one).is_ok());
    let linked = link(&[&one, &other]).unwrap();
    assert!(ptx::parse(&linked).is_ok(), "{linked}");
}

#[test]
fn parameters_with_expressions_are_repeated_whole() {
    let one = format!("{HEADER}.func f (.param .align 4 .b8 p[8+2*(3-4)]) {{ ret; }}");
    let other = format!("{HEADER}.visible .func g () {{ ret; }}");
    assert!(ptx::parse(&one).is_ok());
    let linked = link(&[&one, &other]).unwrap();
    assert!(ptx::parse(&linked).is_ok(), "{linked}");
}

#[test]
fn kernels_that_are_only_declared_stay_declared() {
    let one = format!(
        "{HEADER}.visible .entry k (.param .u64 p);\n.visible .func f () {{ .reg .b64 %a; mov.u64 %a, k; ret; }}"
    );
    let other = format!("{HEADER}.visible .func g () {{ ret; }}");
    let linked = link(&[&one, &other]).unwrap();
    assert!(ptx::parse(&linked).is_ok(), "{linked}");
    let results = format!("{HEADER}.visible .entry (.param .b32 r) k (.param .u64 p) {{ ret; }}");
    assert!(ptx::parse(&results).unwrap_err().to_string().contains("A kernel has no results"));
}

#[test]
fn only_a_directive_goes_that_tells_a_debugger_something_and_not_what_stands_behind_it() {
    let kernel = |middle: &str| {
        format!("{HEADER}.visible .entry k () {{ .reg .b32 %r<2>;\n{middle} mov.b32 %r1, 7;\nret; }}")
    };
    let other = format!("{HEADER}.visible .func f () {{ ret; }}");
    for middle in [
        ".loc 1 2 3",
        ".loc 1 2\n3",
        ".loc 1\n2 3, function_name $L, inlined_at 4\n5 6",
        ".loc 1 2 3, function_name $L+4,\n inlined_at 4 5 6 /* so */",
    ] {
        let text = kernel(middle);
        let text = format!(".file 1 \"a \\\"b\\\".cu\", 3,\n4\n{text}").replacen(HEADER, "", 1);
        let text = format!("{HEADER}{text}");
        assert!(ptx::parse(&text).is_ok(), "{text}");
        let linked = link(&[&text, &other]).unwrap();
        assert!(linked.contains("mov.b32 %r1, 7;") && !linked.contains(".loc"), "{linked}");
        assert!(ptx::parse(&linked).is_ok(), "{linked}");
    }
    // What the linker would not skip is not taken by the parser either.
    assert!(ptx::parse(&kernel(".loc 1 5!2")).is_err());
}
