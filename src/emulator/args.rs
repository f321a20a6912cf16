//! The command line of `spotkeeper emulator`.

use super::dialect::{DialectChoice, GRACE_LIMIT, UnknownDialect};
use super::gateway::AccessKey;
use super::market::MarketSpec;
use super::random::unguessable_hex;
use super::{AsRoot, EmulatorError, Options, RunAs};
use crate::model::secret::Secret;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The id of an access key that nobody gave.
const DEFAULT_KEY_ID: &str = "emulator";

/// A PAI-DLC stand-in on loopback.
#[derive(Debug, clap::Args)]
pub struct EmulatorArgs {
    /// Loopback address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The access key to accept, ID:SECRET; default: a fresh one, printed on the second line
    #[arg(long, value_name = "ID:SECRET")]
    pub access_key: Option<String>,
    /// The only STS token to accept; default: any, and none
    #[arg(long, value_name = "TOKEN")]
    pub security_token: Option<String>,
    /// Folder for the ledger, the requests and the pods
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Run jobs even though this is root
    #[arg(long)]
    pub allow_root: bool,
    /// How far a request's date may be from the clock
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = duration)]
    pub acceptance: Duration,
    /// How long a new job stays out of ListJobs
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub list_lag: Duration,
    /// How a release looks: plain, exit-143, empty-reason, json-message, evicted,
    /// stopped-without-code, succeeded-after-term, one-pod-gone, restarting-in-place, chinese, or
    /// seed:N, another one for each release
    #[arg(long, value_name = "NAME|seed:N", default_value = "plain", value_parser = dialect)]
    pub dialect: DialectChoice,
    /// Spot market: constant:FRACTION, script:FILE, seed:N or trace:FILE[,id=NAME][,speed=FACTOR]
    #[arg(long, value_name = "SPEC", default_value = "constant:0.3", value_parser = market)]
    pub market: MarketSpec,
    /// Shortest time in each status before Running, and in Stopping
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub phase_delay: Duration,
    /// Time between TERM and KILL
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub grace: Duration,
    /// Start no processes: jobs last EMULATOR_RUN_SECONDS (for ever) and exit with EMULATOR_EXIT
    #[arg(long = "virtual")]
    pub virtual_jobs: bool,
    /// Folder that jobs see as /mnt/data
    #[arg(long, value_name = "DIR")]
    pub data_mount: Option<PathBuf>,
    /// Folder that stands for OSS: oss://BUCKET/PREFIX/ of DataSources is DIR/BUCKET/PREFIX
    #[arg(long, value_name = "DIR")]
    pub oss_root: Option<PathBuf>,
    /// How long a minute of JobReservedMinutes lasts
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    pub minute: Duration,
    /// List price in CNY per minute, against which a SpotPriceLimit is a fraction
    #[arg(long, value_name = "CNY", default_value_t = 0.02)]
    pub list_price_per_minute: f64,
}

impl EmulatorArgs {
    /// The options that the command line means.
    ///
    /// # Errors
    /// [`EmulatorError::AccessKey`] or [`EmulatorError::ListPrice`].
    pub fn options(self) -> Result<Options, EmulatorError> {
        let (id, secret) = match &self.access_key {
            None => (DEFAULT_KEY_ID.to_owned(), unguessable_hex(16)),
            Some(text) => match text.split_once(':') {
                Some((id, secret)) if !id.is_empty() && !secret.is_empty() => {
                    (id.to_owned(), secret.to_owned())
                }
                Some(_) | None => return Err(EmulatorError::AccessKey),
            },
        };
        if !(self.list_price_per_minute.is_finite() && self.list_price_per_minute > 0.0) {
            return Err(EmulatorError::ListPrice(self.list_price_per_minute));
        }
        Ok(Options {
            listen: self.listen,
            key: AccessKey {
                id,
                secret: Secret::new(secret),
                token: self.security_token.map(Secret::new),
            },
            folder: self.dir,
            as_root: if self.allow_root { AsRoot::Allowed } else { AsRoot::Refused },
            acceptance: self.acceptance,
            list_lag: self.list_lag,
            dialects: self.dialect,
            market: self.market,
            phase_delay: self.phase_delay,
            grace: self.grace.min(GRACE_LIMIT),
            run_as: if self.virtual_jobs {
                RunAs::Virtual
            } else {
                RunAs::Processes { data_mount: self.data_mount }
            },
            list_price_per_minute: self.list_price_per_minute,
            minute: self.minute,
            oss_root: self.oss_root,
        })
    }
}

/// Reads `250ms`, `2s`, `15m`, `1h 30m`.
///
/// # Errors
/// What is wrong, in words.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration such as 250ms, 2s, 15m or 1h 30m");
    let signed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

fn dialect(text: &str) -> Result<DialectChoice, UnknownDialect> {
    text.parse()
}

fn market(text: &str) -> Result<MarketSpec, String> {
    text.parse().map_err(|e: super::market::MarketError| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: EmulatorArgs,
    }

    fn args(args: &[&str]) -> EmulatorArgs {
        let line = ["emulator", "--dir", "/x"].iter().chain(args);
        Line::try_parse_from(line).expect("a command line").args
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let options = args(&[]).options().expect("fine");
        assert_eq!(options.acceptance, Duration::from_mins(15));
        assert_eq!(options.phase_delay, Duration::ZERO);
        assert_eq!(options.as_root, AsRoot::Refused);
        assert_eq!(options.market, MarketSpec::Constant(0.3));
        assert_eq!(options.key.secret.expose().len(), 32);
    }

    #[test]
    fn an_emulator_without_a_key_makes_another_one_each_time() {
        let secret = || args(&[]).options().expect("fine").key.secret;
        assert_ne!(secret(), secret());
    }

    #[test]
    fn a_key_has_two_parts() {
        let key = args(&["--access-key", "a:b:c"]).options().expect("fine").key;
        assert_eq!((key.id.as_str(), key.secret.expose()), ("a", "b:c"));
        assert!(matches!(args(&["--access-key", "ab"]).options(), Err(EmulatorError::AccessKey)));
        assert!(matches!(args(&["--access-key", ":b"]).options(), Err(EmulatorError::AccessKey)));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_mins(90)));
        for bad in ["", "5", "-5s", "soon"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
