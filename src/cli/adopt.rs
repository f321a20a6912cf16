//! `spotkeeper adopt`: takes a DLC job that runs already as the running attempt of a job.

use super::act::show;
use super::asked::write_down;
use super::{Console, Exit, Failure};
use crate::model::ids::CloudId;
use crate::store::asked::{Names, Wish};

/// Arguments of `adopt`.
#[derive(Debug, Clone, clap::Args)]
pub struct AdoptArgs {
    /// The id of the DLC job
    #[arg(value_name = "DLC-ID")]
    pub id: String,
    /// The job as whose running attempt it is taken
    #[arg(long = "as", value_name = "JOB")]
    pub job: String,
}

/// Adopts.
pub async fn adopt(args: &AdoptArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let id = CloudId::new(args.id.as_str()).map_err(|error| Failure::Usage(error.to_string()))?;
    let client = console.client()?;
    match client.adopt(&id, &args.job).await {
        Ok(done) => show(&done, console),
        Err(failure) => {
            let names = Names::These(vec![args.job.clone()]);
            write_down(failure, Wish::Adopt(id), names, console)
        }
    }
}
