//! `rgpu broker`: decides which program gets which devices.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rgpu_broker::authority::{self, Authority};
use rgpu_broker::config::{Config, Overrides};
use rgpu_broker::{setup, store};
use rgpu_control::api::TokenWithdrawal;
use rgpu_control::settings::{BROKER_CONFIG_VARIABLE, BROKER_DATA_DIR_VARIABLE};
use rgpu_control::token::Role;
use rgpu_control::units::{self, parse_seconds};

use crate::control::{BrokerArguments, explain, print_json};
use crate::table::Table;
use crate::{Failure, Outcome};

mod invite;

/// Run the broker: it decides which program gets which devices, and for how long
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    rgpu broker init ~/broker                                         # a key, a configuration, an admin's token\n  \
    rgpu broker --config ~/broker/broker.toml\n  \
    rgpu broker init ~/broker --address broker.example.org            # for other machines: with certificates\n  \
    rgpu broker token --config ~/broker/broker.toml --role node --name gpu-1 --join\n  \
    rgpu broker token --config ~/broker/broker.toml --role tenant --name ann --valid 30d --out ann.token\n  \
    rgpu broker backup --config ~/broker/broker.toml broker-monday.sqlite\n\n\
    Prints one line with the address when it listens; port 0 picks a free port. RGPU_LOG=debug says more on stderr."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(clap::Args)]
struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE", env = BROKER_CONFIG_VARIABLE)]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a directory with a new key, a configuration, and an administrator's token; with --address also a certificate, signed by
    /// an authority of the cluster's own
    Init {
        /// The directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// A name or address by which other machines reach the broker; can be given several times [default: only this machine]
        #[arg(long, value_name = "HOST")]
        address: Vec<String>,
        /// Where to listen
        #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:7080", requires = "address")]
        listen: String,
        /// Let in only those who show a certificate of the cluster's authority (they join with bundles)
        #[arg(long, requires = "address")]
        client_certificates: bool,
    },
    /// Make the broker a new certificate, signed by the cluster's own authority: before the old one expires (two years), or
    /// because its address has changed. It counts from the broker's next start
    Certificate {
        /// The configuration
        #[arg(long, value_name = "FILE", env = BROKER_CONFIG_VARIABLE)]
        config: PathBuf,
        /// A name or address by which other machines reach the broker; can be given several times
        #[arg(long, value_name = "HOST", required = true)]
        address: Vec<String>,
    },
    /// Make a key, unless there is one
    Key {
        /// Where the broker's state is to be
        #[arg(long, value_name = "DIR", env = BROKER_DATA_DIR_VARIABLE)]
        data_dir: PathBuf,
    },
    /// Copy the broker's state to a new file; the broker may be running. The key is not in it: keep a copy of that elsewhere
    Backup {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Replace the broker's state by a copy that `backup` made; the broker must not be running. What was granted since is
    /// learnt from the nodes
    Restore {
        /// The copy
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Issue a role token, with the broker's key; no broker need be running. Or list and withdraw those of a running one
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "A tenant asks for leases (rgpu run), a node offers devices (rgpu serve --broker), an engine such as Slurm \
        or Kubernetes asks for leases on behalf of its tenants (ENGINE/NAME), an admin may do everything.\nA tenant's or node's \
        name is who they are: tokens of the same name have the same leases."
    )]
    Token {
        #[command(subcommand)]
        action: Option<Box<TokenAction>>,
        /// The configuration
        #[arg(long, value_name = "FILE", env = BROKER_CONFIG_VARIABLE)]
        config: Option<PathBuf>,
        /// Where the key is, instead of where the configuration says
        #[arg(long, value_name = "DIR", env = BROKER_DATA_DIR_VARIABLE)]
        data_dir: Option<PathBuf>,
        /// What it allows: `admin`, `tenant`, `node` or `engine`
        #[arg(long, value_parser = parse_role, required = true)]
        role: Option<Role>,
        /// For whom: the tenant's, node's, engine's or administrator's name
        #[arg(long, required = true)]
        name: Option<String>,
        /// For how long, such as 30d, 12h or 90s
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_seconds)]
        valid: u64,
        /// A file to write it to, which only you can read; it must not be there yet [default: stdout]
        #[arg(long, value_name = "FILE", conflicts_with_all = ["join", "bundle"])]
        out: Option<PathBuf>,
        /// Print the command by which whoever the token is for joins the cluster
        #[arg(long, conflicts_with = "bundle")]
        join: bool,
        /// Write a file for `rgpu join`, which has everything that it takes, a certificate too where the broker asks for one
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
    },
}

#[derive(clap::Subcommand)]
enum TokenAction {
    /// The tokens that were shown to a running broker since its start, and those that were withdrawn
    List {
        /// For programs
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        broker: BrokerArguments,
    },
    /// Withdraw a token before it expires, or all of a name that were issued until now; this needs an administrator's token
    #[command(
        after_help = "Examples:\n  rgpu broker token revoke 00c0ffee00c0ffee\n  rgpu broker token revoke --role tenant --name ann\n\n\
        The tenant's leases end when they are not renewed any more; a node counts as lost."
    )]
    Revoke {
        /// The token's id (`rgpu broker token list`)
        #[arg(value_name = "ID", required_unless_present = "name", conflicts_with_all = ["role", "name"])]
        id: Option<String>,
        /// What the tokens allow: `admin`, `tenant`, `node` or `engine`
        #[arg(long, value_parser = parse_role, requires = "name")]
        role: Option<Role>,
        /// Whom they are for
        #[arg(long, requires = "role")]
        name: Option<String>,
        #[command(flatten)]
        broker: BrokerArguments,
    },
}

/// Whose state.
#[derive(clap::Args)]
struct Place {
    /// The configuration
    #[arg(long, value_name = "FILE", env = BROKER_CONFIG_VARIABLE)]
    config: Option<PathBuf>,
    /// Where the state is, instead of where the configuration says
    #[arg(long, value_name = "DIR", env = BROKER_DATA_DIR_VARIABLE)]
    data_dir: Option<PathBuf>,
}

impl Place {
    fn state(self) -> Result<PathBuf, Failure> {
        let overrides = Overrides { data_dir: self.data_dir, ..Overrides::default() };
        let config = Config::load(self.config.as_deref(), overrides).map_err(failed)?;
        Ok(setup::state_path(&config.data_dir))
    }
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::ALL
        .into_iter()
        .find(|role| role.name() == text)
        .ok_or_else(|| "the roles are admin, tenant, node and engine".into())
}

fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::new(e.to_string())
}

/// Runs the broker, or prepares it.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    match arguments.command {
        None => serve(arguments.serve)?,
        Some(Command::Init { directory, address, listen, client_certificates }) => {
            let reach = setup::Reach { addresses: address, listen, clients: client_certificates };
            init(&directory, Some(&reach).filter(|reach| !reach.addresses.is_empty()))?;
        }
        Some(Command::Certificate { config, address }) => certificate(&config, &address)?,
        Some(Command::Key { data_dir }) => {
            if setup::make_key(&data_dir).map_err(failed)? {
                eprintln!("rgpu broker: made a key in {}", data_dir.display());
            }
        }
        Some(Command::Backup { file, place }) => {
            let state = place.state()?;
            store::backup(&state, &file).map_err(failed)?;
            eprintln!("rgpu broker: {} is a copy of {}", file.display(), state.display());
        }
        Some(Command::Restore { file, place }) => {
            let state = place.state()?;
            let old = store::restore(&file, &state).map_err(failed)?;
            let old = old.map_or_else(String::new, |old| format!("; the earlier one is {}", old.display()));
            eprintln!("rgpu broker: {} is the state now{old}", file.display());
        }
        Some(Command::Token { action: Some(action), .. }) => token_action(*action)?,
        Some(Command::Token { action: None, config, data_dir, role, name, valid, out, join, bundle }) => {
            let role = role.ok_or_else(|| failed("Say what the token is to allow: --role"))?;
            let name = name.ok_or_else(|| failed("Say for whom the token is: --name"))?;
            let overrides = Overrides { data_dir, ..Overrides::default() };
            let config = Config::load(config.as_deref(), overrides).map_err(failed)?;
            let key = setup::read_key(&config.data_dir).map_err(failed)?;
            let issued = setup::issue(&key, role, &name, valid).map_err(failed)?;
            if join || bundle.is_some() {
                let invitation = invite::invitation(&config, &issued.token, &name, bundle.is_some())?;
                return invite::give(invitation, bundle.as_deref());
            }
            let token = issued.token + "\n";
            match out {
                Some(path) => {
                    setup::write_secret(&path, &token).map_err(failed)?;
                    eprintln!(
                        "rgpu broker: the token {} for the {} {name} is in {}",
                        issued.id,
                        role.name(),
                        path.display()
                    );
                }
                None => std::io::stdout().write_all(token.as_bytes()).map_err(failed)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn token_action(action: TokenAction) -> Result<(), Failure> {
    match action {
        TokenAction::List { json, broker } => {
            let list = broker.connect()?.tokens().map_err(explain)?;
            if json {
                return print_json(&list);
            }
            let mut table = Table::new(&["TOKEN", "ROLE", "NAME", "STATE", "LEFT", "USED"], &[4, 5]);
            let now = rgpu_control::unix_time();
            for token in list.seen {
                let left = units::seconds(token.expires.saturating_sub(now));
                let used = units::age(token.seen);
                table.row([token.id, token.role.name().into(), token.name, "good".into(), left, used]);
            }
            for one in list.withdrawn {
                let id = one.id.unwrap_or_else(|| "(all until then)".into());
                let role = one.role.map_or("-", Role::name).to_owned();
                let name = one.name.unwrap_or_else(|| "-".into());
                table.row([id, role, name, "withdrawn".into(), "-".into(), units::age(one.when)]);
            }
            table.print();
        }
        TokenAction::Revoke { id, role, name, broker } => {
            let what = match (&id, &name) {
                (Some(id), _) => format!("the token {id} counts no more"),
                (None, name) => format!(
                    "the tokens of the {} {} that were issued until now count no more",
                    role.map_or("", Role::name),
                    name.as_deref().unwrap_or_default()
                ),
            };
            broker.connect()?.withdraw_tokens(&TokenWithdrawal { id, role, name }).map_err(explain)?;
            println!("{what}");
        }
    }
    Ok(())
}

fn serve(arguments: Serve) -> Result<(), Failure> {
    crate::log::to_stderr();
    let config = Config::load(arguments.config.as_deref(), arguments.overrides)
        .map_err(|e| Failure::with_status(e.to_string(), 2))?;
    rgpu_broker::serve::serve(&config).map_err(failed)
}

fn certificate(config: &Path, addresses: &[String]) -> Result<(), Failure> {
    let data_dir = Config::load(Some(config), Overrides::default()).map_err(failed)?.data_dir;
    let authority = Authority::read(&data_dir).map_err(failed)?.ok_or_else(|| {
        let text = format!(
            "There is no authority in {}: `rgpu broker init DIR --address HOST` makes one. A certificate that somebody else \
             signed is named by tls.certificate and tls.key",
            data_dir.display()
        );
        Failure::new(text)
    })?;
    addresses.iter().try_for_each(|address| authority::check_address(address)).map_err(failed)?;
    authority.install(&data_dir, &setup::with_this_machine(addresses)).map_err(failed)?;
    eprintln!("rgpu broker: a new certificate for {} counts from the next start", addresses.join(", "));
    Ok(())
}

fn init(directory: &Path, reach: Option<&setup::Reach>) -> Result<(), Failure> {
    let made = setup::init(directory, reach).map_err(failed)?;
    let config = made.config.display();
    let mut text = format!(
        "the key:           {}\nthe configuration: {config}\nan admin's token:  {}\n",
        made.key.display(),
        made.admin_token.display()
    );
    if let Some(authority) = &made.authority {
        text += &format!("the authority:     {}\n", authority.display());
    }
    text += &format!("\nNow: rgpu broker --config {config}\n");
    if reach.is_some() {
        let how = if reach.is_some_and(|reach| reach.clients) { "--bundle FILE" } else { "--join" };
        text += &format!(
            "Nodes and users join by what this prints:\n     rgpu broker token --config {config} --role node --name gpu-1 {how}\n     \
             rgpu broker token --config {config} --role tenant --name ann {how}\n"
        );
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(failed)
}
