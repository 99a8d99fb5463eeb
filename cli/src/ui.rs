//! `rgpu ui`: the address of the broker's web page.

use std::process::ExitCode;

use crate::Outcome;
use crate::control::{BrokerArguments, explain};

/// Where the broker's page is, below its address.
const PAGE: &str = "/ui/";

/// Print the address of the broker's web page: nodes, devices, leases, the queue, and why things are as they are
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu ui                    # a link that opens the page as whom the token is for\n  \
    rgpu ui --without-token    # the address alone; the page asks for a token\n\n\
    Whoever has the link with the token can do what you can, until the token expires. The token stands behind the link's #: browsers \
    do not send that anywhere, and the page takes it out of the address bar at once.")]
pub(crate) struct Arguments {
    /// Leave the token out
    #[arg(long)]
    without_token: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Prints the address, once the broker has answered.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    // Of several brokers, the one that is active has answered then.
    broker.summary().map_err(explain)?;
    let token = if arguments.without_token { None } else { Some(arguments.broker.token()?) };
    crate::table::print_lines(&[link(broker.url(), token.as_deref())]);
    Ok(ExitCode::SUCCESS)
}

fn link(url: &str, token: Option<&str>) -> String {
    match token {
        // Tokens consist of characters that need no escape in a fragment.
        Some(token) => format!("{url}{PAGE}#token={token}"),
        None => format!("{url}{PAGE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_stands_where_browsers_keep_it() {
        assert_eq!(link("http://b:7080", Some("rgpu1.a-b_c")), "http://b:7080/ui/#token=rgpu1.a-b_c");
        assert_eq!(link("http://b:7080", None), "http://b:7080/ui/");
    }
}
