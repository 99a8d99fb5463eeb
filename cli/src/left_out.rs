//! Commands that this build leaves out, because the Cargo feature that brings their dependencies is off.

use crate::Failure;

/// What is said instead of doing `what`.
pub(crate) fn failure(what: &str, feature: &str) -> Failure {
    Failure::with_status(
        format!(
            "{what} is left out of this build of rgpu: it comes with the Cargo feature `{feature}` (cargo build --release -p \
             rgpu --features {feature})"
        ),
        2,
    )
}

/// Stands for the module of a command: takes any arguments and says which feature the command needs.
macro_rules! left_out {
    ($module:ident, $feature:literal) => {
        mod $module {
            /// Whatever the command would take.
            #[derive(clap::Args)]
            #[command(about = concat!("(left out of this build: needs the feature `", $feature, "`)"))]
            #[command(disable_help_flag = true)]
            pub(super) struct Arguments {
                #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
                _ignored: Vec<std::ffi::OsString>,
            }

            /// Says that the command is left out.
            pub(super) fn main(_: Arguments) -> crate::Outcome {
                Err(crate::left_out::failure(concat!("`rgpu ", stringify!($module), "`"), $feature))
            }
        }
    };
}

#[cfg_attr(
    all(feature = "bench", feature = "broker", feature = "serve", feature = "sim"),
    allow(unused_imports, reason = "nothing is left out")
)]
pub(crate) use left_out;

#[cfg(test)]
mod tests {
    use clap::Parser;

    left_out!(absent, "something");

    #[derive(Parser)]
    enum Line {
        Absent(absent::Arguments),
    }

    #[test]
    fn a_command_that_is_left_out_says_so_whatever_it_is_given() {
        for line in ["rgpu absent", "rgpu absent --help", "rgpu absent run --seed 3 -- x", "rgpu absent -h"] {
            let Line::Absent(arguments) = Line::parse_from(line.split(' '));
            let failure = absent::main(arguments).unwrap_err();
            assert_eq!(failure.status, 2);
            for part in ["`rgpu absent`", "the Cargo feature `something`", "--features something"] {
                assert!(failure.message.contains(part), "{}", failure.message);
            }
        }
        let help = <Line as clap::CommandFactory>::command().render_help().to_string();
        assert!(help.contains("left out of this build"), "{help}");
    }
}
