//! What lives beside jobs, in memory alone: tensorboards, job templates, Ray history servers,
//! signals and data sets.
//!
//! A record is kept in the shape in which its Get call answers. Restarting the emulator forgets
//! them all; the ledger knows jobs only.

use super::random::unguessable_hex;
use super::world::CallError;
use serde_json::{Map, Value};

/// Records of one kind.
const RECORDS_LIMIT: usize = 10_000;

/// All that lives beside jobs.
#[derive(Debug)]
pub struct Records {
    /// TensorBoard instances.
    pub tensorboards: Shelf,
    /// Job templates.
    pub templates: Shelf,
    /// Ray history servers.
    pub ray_history_servers: Shelf,
    /// Signals that were sent to jobs.
    pub signals: Shelf,
    /// Data sets of AIWorkSpace.
    pub datasets: Shelf,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            tensorboards: Shelf::new("tensorboard-", "TensorboardId"),
            templates: Shelf::new("tpl-", "TemplateId"),
            ray_history_servers: Shelf::new("rhs-", "RayHistoryServerId"),
            signals: Shelf::new("sig-", "SignalId"),
            datasets: Shelf::new("d-", "DatasetId"),
        }
    }
}

impl Records {
    /// Where the data set of an entry of `DataSources` lies.
    pub fn dataset_uri(&self, id: &str) -> Option<&str> {
        self.datasets.get(id).ok()?.get("Uri")?.as_str()
    }
}

/// Records of one kind, oldest first.
#[derive(Debug)]
pub struct Shelf {
    prefix: &'static str,
    id_key: &'static str,
    records: Vec<Map<String, Value>>,
}

impl Shelf {
    fn new(prefix: &'static str, id_key: &'static str) -> Self {
        Self { prefix, id_key, records: Vec::new() }
    }

    /// The field that holds a record's id.
    pub fn id_key(&self) -> &'static str {
        self.id_key
    }

    /// Takes in a record under a fresh id, which it also gets as a field.
    ///
    /// # Errors
    /// [`CallError::BadRequest`] when there are too many.
    pub fn add(&mut self, mut record: Map<String, Value>) -> Result<String, CallError> {
        let id = format!("{}{}", self.prefix, unguessable_hex(8));
        if self.records.len() >= RECORDS_LIMIT {
            return Err(CallError::BadRequest(id, "the emulator keeps no more of these"));
        }
        record.insert(self.id_key.to_owned(), Value::String(id.clone()));
        self.records.push(record);
        Ok(id)
    }

    fn place(&self, id: &str) -> Result<usize, CallError> {
        let is_it = |record: &Map<String, Value>| record.get(self.id_key).is_some_and(|v| v == id);
        self.records.iter().position(is_it).ok_or_else(|| CallError::NotFound(id.to_owned()))
    }

    /// A record.
    ///
    /// # Errors
    /// [`CallError::NotFound`].
    pub fn get(&self, id: &str) -> Result<&Map<String, Value>, CallError> {
        Ok(&self.records[self.place(id)?])
    }

    /// A record, to change it.
    ///
    /// # Errors
    /// [`CallError::NotFound`].
    pub fn get_mut(&mut self, id: &str) -> Result<&mut Map<String, Value>, CallError> {
        let place = self.place(id)?;
        Ok(&mut self.records[place])
    }

    /// Takes a record out.
    ///
    /// # Errors
    /// [`CallError::NotFound`].
    pub fn remove(&mut self, id: &str) -> Result<Map<String, Value>, CallError> {
        let place = self.place(id)?;
        Ok(self.records.remove(place))
    }

    /// All records, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.records.iter()
    }
}
