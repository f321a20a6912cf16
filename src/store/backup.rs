//! The backup: all records at one sequence as JSON lines.
//!
//! ```text
//! {"spotkeeper_backup":{"format":1,"sequence":42}}
//! {"key":"job/llama","value":"{…}"}            bytes that are not UTF-8: {"hex":"00ff"}
//! {"end":{"records":1,"fingerprint":"00112233aabbccdd"}}
//! ```
//!
//! A backup without its last line, or whose records do not hash to it, is no backup. It holds
//! what the engine holds; the files of blobs stay where they are.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::engine::{Engine, EngineError, Fingerprint, Record, for_each_record};
use crate::model::ids::hex;

/// Bytes of the longest line: a value of control characters only, escaped, and its key.
const LINE_LIMIT_BYTES: u64 = 64 * 1024;

/// The first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) format: u32,
    pub(super) sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct HeadLine {
    spotkeeper_backup: Head,
}

#[derive(Debug, Serialize)]
struct RecordLine {
    key: Text,
    value: Text,
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    records: u64,
    fingerprint: String,
}

#[derive(Debug, Serialize)]
struct EndLine {
    end: End,
}

/// A line behind the head: a record or the end. Not an untagged enum: these cannot read numbers.
#[derive(Debug, Deserialize)]
struct Line {
    key: Option<Text>,
    value: Option<Text>,
    end: Option<End>,
}

/// Bytes, readable where they can be.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Hex { hex: String },
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        std::str::from_utf8(bytes)
            .map_or_else(|_| Self::Hex { hex: hex(bytes) }, |text| Self::Plain(text.to_owned()))
    }

    fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Plain(text) => Some(text.into_bytes()),
            Self::Hex { hex } => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
                .collect(),
        }
    }
}

/// Writes the lines of a backup one by one.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    records: u64,
    fingerprint: Fingerprint,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(out: &'a mut dyn Write, head: Head) -> io::Result<Self> {
        line(out, &HeadLine { spotkeeper_backup: head })?;
        Ok(Self { out, records: 0, fingerprint: Fingerprint::default() })
    }

    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.records += 1;
        self.fingerprint.toggle(key, value);
        line(self.out, &RecordLine { key: Text::of(key), value: Text::of(value) })
    }

    pub(super) fn end(self) -> io::Result<()> {
        let fingerprint = self.fingerprint.text();
        line(self.out, &EndLine { end: End { records: self.records, fingerprint } })
    }
}

fn line<T: Serialize>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// An engine's failure on its way through a function that knows disk errors only.
impl From<EngineError> for io::Error {
    fn from(error: EngineError) -> Self {
        io::Error::other(error)
    }
}

/// Writes all records of `engine` as the backup `name`.
pub(super) fn write(
    disk: &mut dyn Disk,
    name: &str,
    head: Head,
    engine: &dyn Engine,
) -> io::Result<()> {
    write_with(disk, name, head, engine, &mut |key, value| Ok(Some((key.to_vec(), value.to_vec()))))
}

/// What becomes of a record on its way into a backup; `None` leaves it out.
pub(super) type Rewrite<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> io::Result<Option<Record>>;

/// Writes what `rewrite` makes of the records of `engine` as the backup `name`.
pub(super) fn write_with(
    disk: &mut dyn Disk,
    name: &str,
    head: Head,
    engine: &dyn Engine,
    rewrite: Rewrite<'_>,
) -> io::Result<()> {
    disk.write(name, &mut |out| {
        let mut writer = Writer::begin(out, head)?;
        for_each_record(engine, &mut |key, value| match rewrite(key, value)? {
            Some((key, value)) => writer.record(&key, &value),
            None => Ok(()),
        })?;
        writer.end()
    })
}

/// Why a backup cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It could not be read, or is not what was written.
    Damaged(String),
    /// The reader of its records gave up.
    Stopped(EngineError),
}

/// The first line alone; says nothing about the rest.
pub(super) fn head(disk: &dyn Disk, name: &str) -> Result<Head, Unusable> {
    let mut reader = BufReader::new(disk.read(name).map_err(damaged)?);
    head_line(&mut reader)
}

/// Reads a whole backup; every record is given to `visit` before the last line has proved them.
pub(super) fn read(
    disk: &dyn Disk,
    name: &str,
    visit: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<(), EngineError>,
) -> Result<(Head, Fingerprint), Unusable> {
    let mut reader = BufReader::new(disk.read(name).map_err(damaged)?);
    let head = head_line(&mut reader)?;
    let (mut fingerprint, mut records) = (Fingerprint::default(), 0);
    loop {
        let text = next_line(&mut reader)?;
        let Line { key, value, end } = serde_json::from_slice(&text).map_err(damaged)?;
        match (key, value, end) {
            (Some(key), Some(value), None) => {
                let (Some(key), Some(value)) = (key.bytes(), value.bytes()) else {
                    return Err(damaged("a record is not hex"));
                };
                records += 1;
                fingerprint.toggle(&key, &value);
                visit(key, value).map_err(Unusable::Stopped)?;
            }
            (None, None, Some(end)) => {
                if end.records != records || end.fingerprint != fingerprint.text() {
                    return Err(damaged("its records are not those that were written"));
                }
                return Ok((head, fingerprint));
            }
            _ => return Err(damaged("a line is neither a record nor the end")),
        }
    }
}

fn head_line(reader: &mut dyn io::BufRead) -> Result<Head, Unusable> {
    let text = next_line(reader)?;
    let line: HeadLine = serde_json::from_slice(&text).map_err(damaged)?;
    Ok(line.spotkeeper_backup)
}

/// The next line with its end; a line without one is torn.
fn next_line(reader: &mut dyn io::BufRead) -> Result<Vec<u8>, Unusable> {
    let mut text = Vec::new();
    reader.take(LINE_LIMIT_BYTES).read_until(b'\n', &mut text).map_err(damaged)?;
    if text.last() == Some(&b'\n') { Ok(text) } else { Err(damaged("it ends early")) }
}

fn damaged(why: impl std::fmt::Display) -> Unusable {
    Unusable::Damaged(format!("{why}"))
}

#[cfg(test)]
mod tests {
    use super::super::memory_disk::MemoryDisk;
    use super::*;

    const HEAD: Head = Head { format: 1, sequence: 42 };

    fn written(records: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(&mut bytes, HEAD).unwrap();
        for (key, value) in records {
            writer.record(key, value).unwrap();
        }
        writer.end().unwrap();
        bytes
    }

    type Read = Result<(Head, Vec<(Vec<u8>, Vec<u8>)>), Unusable>;

    fn read_back(bytes: &[u8]) -> Read {
        let disk = MemoryDisk::default();
        disk.replace("b", Some(bytes.to_vec()));
        let mut records = Vec::new();
        let (head, _) = read(&disk, "b", &mut |key, value| {
            records.push((key, value));
            Ok(())
        })?;
        Ok((head, records))
    }

    #[test]
    fn text_and_bytes_are_read_back() {
        let worst = vec![1; 8192];
        let records: [(&[u8], &[u8]); 4] = [
            (b"a", b"{\"x\":\"y\\n\"}"),
            (b"\xff", b"\x00\xfe"),
            ("\u{4e2d}".as_bytes(), b""),
            (&[2; 256], &worst),
        ];
        let (head, found) = read_back(&written(&records)).unwrap();
        assert_eq!(head, HEAD);
        let found: Vec<_> = found.iter().map(|(k, v)| (k.as_slice(), v.as_slice())).collect();
        assert_eq!(found, records);
    }

    #[test]
    fn a_backup_cut_or_changed_anywhere_is_none() {
        let bytes = written(&[(b"key1", b"value1"), (b"key2", b"value2")]);
        for length in 0..bytes.len() {
            assert!(read_back(&bytes[..length]).is_err(), "cut to {length}");
        }
        let head_end = bytes.iter().position(|b| *b == b'\n').unwrap();
        for at in head_end + 1..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read_back(&damaged).is_err(), "byte {at}");
        }
    }
}
