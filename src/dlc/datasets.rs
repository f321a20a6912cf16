//! Where the files of a data set are (AIWorkSpace).

use super::client::{Answer, ApiError, Ask, Dlc};
use super::products::Product;
use super::wire::{self, Dataset, Whole};
use crate::model::time::WallTime;

impl Dlc {
    /// The data set that a `DataSourceId` names.
    pub async fn get_dataset(
        &self,
        id: &str,
        now: WallTime,
    ) -> Result<Answer<Whole<Dataset>>, ApiError> {
        let segments = ["api", "v1", "datasets", id];
        let ask = Ask::get("GetDataset", &segments, Vec::new());
        self.whole(Ask { product: Product::AiWorkSpace, ..ask }, wire::dataset, now).await
    }
}
