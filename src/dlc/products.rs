//! The products of the gateway that are asked, and where each one is.
//!
//! What always holds: a target names the endpoint of DLC alone. Where that is one of the cloud's own,
//! the others follow from its region, public or VPC as it is; any other endpoint (a stand-in on
//! loopback, a gateway of one's own) answers for all of them.

use crate::model::spec::Place;

/// One product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    /// PAI-DLC: jobs.
    Dlc,
    /// PaiStudio: the history of spot prices.
    PaiStudio,
    /// AIWorkSpace: data sets.
    AiWorkSpace,
}

impl Product {
    /// The API's version.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Dlc => super::client::VERSION,
            Self::PaiStudio => "2022-01-12",
            Self::AiWorkSpace => "2021-02-04",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Dlc => "pai-dlc",
            Self::PaiStudio => "pai",
            Self::AiWorkSpace => "aiworkspace",
        }
    }

    /// Base URL of the product for the jobs of `place`.
    pub(super) fn endpoint(self, place: &Place) -> String {
        let own = || place.endpoint.clone();
        let Some((scheme, host)) = place.endpoint.split_once("://") else { return own() };
        let host = host.trim_end_matches('/');
        let vpc = match host.split_once('.') {
            Some(("pai-dlc", _)) => "",
            Some(("pai-dlc-vpc", _)) => "-vpc",
            Some(_) | None => return own(),
        };
        if self == Self::Dlc || !host.ends_with(".aliyuncs.com") {
            return own();
        }
        format!("{scheme}://{}{vpc}.{}.aliyuncs.com", self.word(), place.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::CredentialsRef;

    #[test]
    fn the_other_products_stand_beside_dlc() {
        let at = |product: Product, endpoint: &str| {
            product.endpoint(&Place {
                region: "cn-wulanchabu".to_owned(),
                workspace: "1".to_owned(),
                endpoint: endpoint.to_owned(),
                storage: None,
                credentials: CredentialsRef::Environment,
            })
        };
        for (endpoint, prices, datasets) in [
            (
                "https://pai-dlc.cn-wulanchabu.aliyuncs.com",
                "https://pai.cn-wulanchabu.aliyuncs.com",
                "https://aiworkspace.cn-wulanchabu.aliyuncs.com",
            ),
            (
                "https://pai-dlc-vpc.cn-wulanchabu.aliyuncs.com/",
                "https://pai-vpc.cn-wulanchabu.aliyuncs.com",
                "https://aiworkspace-vpc.cn-wulanchabu.aliyuncs.com",
            ),
            // An address without a region, which both SDKs have for many regions.
            (
                "http://pai-dlc.aliyuncs.com",
                "http://pai.cn-wulanchabu.aliyuncs.com",
                "http://aiworkspace.cn-wulanchabu.aliyuncs.com",
            ),
        ] {
            assert_eq!(at(Product::Dlc, endpoint), endpoint);
            assert_eq!(at(Product::PaiStudio, endpoint), prices);
            assert_eq!(at(Product::AiWorkSpace, endpoint), datasets);
        }
        for own in
            ["http://127.0.0.1:9", "https://dlc.example.com", "https://pai-dlc.example.com", "x"]
        {
            for product in [Product::Dlc, Product::PaiStudio, Product::AiWorkSpace] {
                assert_eq!(at(product, own), own);
            }
        }
    }
}
