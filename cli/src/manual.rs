//! `rgpu completions` and `rgpu manual`: what packages install for shells and for `man`, made from the commands themselves.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{Failure, Outcome};

/// Print the file by which a shell completes rgpu's commands and options.
///
/// For this user: bash: rgpu completions bash > ~/.local/share/bash-completion/completions/rgpu;
/// zsh: rgpu completions zsh > a folder of $fpath, as _rgpu; fish: rgpu completions fish > ~/.config/fish/completions/rgpu.fish.
/// Packages install them for everybody.
#[derive(clap::Args)]
pub(crate) struct CompletionArguments {
    /// The shell
    shell: Shell,
}

/// Write the manual pages rgpu(1), rgpu-run(1), …, one for each command.
#[derive(clap::Args)]
pub(crate) struct ManualArguments {
    /// The folder that they are written to; it is made where it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

fn commands() -> clap::Command {
    let mut commands = crate::Arguments::command();
    commands.build();
    commands
}

/// Prints the completions.
pub(crate) fn completions(arguments: &CompletionArguments) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut commands(), "rgpu", &mut text);
    let written = io::stdout().lock().write_all(&text);
    written.map_err(|e| Failure::new(format!("Cannot write the completions: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages.
pub(crate) fn manual(arguments: &ManualArguments) -> Outcome {
    let folder = &arguments.folder;
    let pages = pages(&commands());
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        pages.iter().try_for_each(|(name, text)| fs::write(folder.join(format!("{name}.1")), text))
    };
    write()
        .map_err(|e| Failure::new(format!("Cannot write the manual pages to {}: {e}", folder.display())))?;
    println!(
        "{} manual pages in {}: man -l {}",
        pages.len(),
        folder.display(),
        folder.join("rgpu.1").display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The names and texts of a command's page and of those of its subcommands. Hidden ones are for rgpu itself.
fn pages(command: &clap::Command) -> Vec<(String, Vec<u8>)> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut text = Vec::new();
    // A vector takes all that is written to it. No date, so that the same sources make the same page.
    let made = Man::new(command.clone()).title(name.to_uppercase()).manual("rgpu").date("").render(&mut text);
    debug_assert!(made.is_ok());
    let mut all = vec![(name, text)];
    let shown = |sub: &&clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
    all.extend(command.get_subcommands().filter(shown).flat_map(pages));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_is_completed() {
        let commands = commands();
        let pages = pages(&commands);
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for sub in commands.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let name = format!("rgpu-{}", sub.get_name());
            assert_eq!(names.contains(&name.as_str()), !sub.is_hide_set(), "{name}");
        }
        let run =
            pages.iter().find(|(name, _)| name == "rgpu-run").map(|(_, text)| String::from_utf8_lossy(text));
        let run = run.expect("it is there");
        assert!(run.contains(".TH RGPU-RUN 1") && run.contains("in\\-process"), "{run}");
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut super::commands(), "rgpu", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("in-process") && text.contains("doctor"), "{shell}");
        }
    }
}
