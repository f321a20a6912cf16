//! One question to a server that gives keys: bounded, never repeated, never through a proxy.

use super::{CredentialsError, Surroundings};
use crate::model::secret::Secret;
use crate::openapi::client::{self, ClientError, Limits};
use std::time::Duration;

/// For the metadata service: one that takes no connection at once is not there. The time to read
/// counts from the start, so it must be longer than the time to connect: who ends first decides
/// whether the service counts as not there or as broken.
pub(super) const METADATA_LIMITS: Limits = Limits {
    connect: Duration::from_secs(1),
    read: Duration::from_secs(2),
    total: Duration::from_secs(3),
    body: 64 * 1024,
};
/// For STS and for servers that somebody named.
pub(super) const STS_LIMITS: Limits = Limits {
    connect: Duration::from_secs(5),
    read: Duration::from_secs(10),
    total: Duration::from_secs(15),
    body: 64 * 1024,
};
/// API version of STS.
pub(super) const STS_VERSION: &str = "2015-04-01";

const REGION: &str = "ALIBABA_CLOUD_STS_REGION";
const VPC: &str = "ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED";

/// Asks once; the body of a 2xx answer. No message shows any of `hidden`.
pub(super) async fn ask(
    origin: &str,
    action: &'static str,
    limits: &Limits,
    request: reqwest::Request,
    hidden: &[&Secret],
) -> Result<Vec<u8>, CredentialsError> {
    crate::openapi::tls::choose_provider();
    let secure = request.url().scheme() == "https";
    let http = client::builder(secure, limits).build().map_err(|error| {
        CredentialsError::Client { origin: origin.to_owned(), source: ClientError::Start(error) }
    })?;
    let hidden = hidden.iter().copied().map(Some);
    match client::exchange(&http, request, action, limits.body, hidden).await {
        Ok(answer) => Ok(answer.body),
        Err(source) => Err(CredentialsError::Server { origin: origin.to_owned(), source }),
    }
}

/// The address in `text`, if keys may travel to and from it.
pub(super) fn address(origin: &str, text: &str) -> Result<reqwest::Url, CredentialsError> {
    let bad =
        |what: &str| CredentialsError::Setting { origin: origin.to_owned(), what: what.to_owned() };
    let url = reqwest::Url::parse(text.trim())
        .map_err(|_| bad("its address is no URL such as http://localhost:7002/path"))?;
    let host = url.host_str().ok_or_else(|| bad("its address has no host"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("its address has a user or password in it"));
    }
    let near =
        || client::is_loopback(host) || super::surroundings::METADATA == format!("http://{host}");
    match url.scheme() {
        "https" => Ok(url),
        "http" if near() => Ok(url),
        "http" => Err(bad("keys would travel in the clear: plain http:// only to this machine")),
        _ => Err(bad("its address must start with http:// or https://")),
    }
}

/// Base URL of STS. `region` and `vpc` are a profile's own; the variables stand in for them.
pub(super) fn sts(
    origin: &str,
    around: &Surroundings,
    region: Option<String>,
    vpc: Option<bool>,
) -> Result<String, CredentialsError> {
    if let Some(base) = &around.sts {
        return Ok(base.clone());
    }
    let Some(region) = region.or_else(|| around.variable(REGION)) else {
        return Ok("https://sts.aliyuncs.com".to_owned());
    };
    let region = region.trim();
    if !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        let what = "its STS region is no region id such as cn-hangzhou".to_owned();
        return Err(CredentialsError::Setting { origin: origin.to_owned(), what });
    }
    let host = if vpc.unwrap_or_else(|| around.is_on(VPC)) { "sts-vpc" } else { "sts" };
    Ok(format!("https://{host}.{region}.aliyuncs.com"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::Commands;
    use std::sync::Arc;

    #[test]
    fn sts_is_found_as_the_sdk_finds_it() {
        let around = |pairs: &'static [(&'static str, &'static str)]| Surroundings {
            variables: Arc::new(|name| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
            }),
            ..Surroundings::of_this_process(Commands::Refused)
        };
        let host = |pairs, region: Option<&str>, vpc| {
            sts("test", &around(pairs), region.map(str::to_owned), vpc).expect("an address")
        };
        assert_eq!(host(&[], None, None), "https://sts.aliyuncs.com");
        assert_eq!(host(&[(VPC, "true")], None, Some(true)), "https://sts.aliyuncs.com");
        assert_eq!(
            host(&[(REGION, "cn-beijing")], None, None),
            "https://sts.cn-beijing.aliyuncs.com"
        );
        let both = &[(REGION, "cn-beijing"), (VPC, "True")];
        assert_eq!(host(both, None, None), "https://sts-vpc.cn-beijing.aliyuncs.com");
        assert_eq!(host(both, Some("r"), Some(false)), "https://sts.r.aliyuncs.com");
        assert!(sts("test", &around(&[]), Some("evil.example/".to_owned()), None).is_err());
    }

    #[test]
    fn keys_travel_in_clear_only_near_by() {
        for good in [
            "http://localhost:7002/api/v1/credentials/0",
            "http://127.0.0.1/?a=b",
            "http://[::1]:1/x",
            "http://100.100.100.200/latest",
            "https://keys.example/x",
        ] {
            assert!(address("test", good).is_ok(), "{good}");
        }
        for bad in [
            "http://keys.example/x",
            "http://0.200/x",
            "http://10.0.0.1/",
            "ftp://localhost/",
            "http://u:hunter2@localhost/",
            "nothing",
            "",
        ] {
            let error = address("test", bad).expect_err(bad).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
