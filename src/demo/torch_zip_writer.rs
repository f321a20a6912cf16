//! Files as `torch.save` writes them: an uncompressed zip whose members' bytes are aligned, with
//! data descriptors, a Zip64 record and locator, and no archive comment.
//!
//! The bytes are a function of the tensor alone, so that a reader can check every one of them.

/// Bytes to which torch aligns the data of each member.
const ALIGNMENT: usize = 64;
/// Flags of a member: sizes follow in a descriptor, names are UTF-8.
const FLAGS: u16 = 0x0808;

/// A model state of the small trainer: one tensor, the step, and a checksum over the tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The step it belongs to.
    pub step: u64,
    /// Elements of the tensor, as the bit patterns of 32-bit floats.
    pub weights: Vec<u32>,
}

impl State {
    /// The file that `torch.save` would write for it.
    pub fn file(&self) -> Vec<u8> {
        let tensor: Vec<u8> = self.weights.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut zip = Zip::default();
        zip.add("data.pkl", &self.pickle(crc32fast::hash(&tensor)));
        zip.add(".format_version", b"1");
        zip.add(".storage_alignment", b"64");
        zip.add("byteorder", b"little");
        zip.add("data/0", &tensor);
        zip.add("version", b"3\n");
        zip.add(".data/serialization_id", format!("{:040}", self.step).as_bytes());
        zip.finish()
    }

    /// `{"iteration": step, "crc32": checksum, "weights": tensor}`, protocol 2.
    fn pickle(&self, checksum: u32) -> Vec<u8> {
        let length = u64::try_from(self.weights.len()).unwrap_or(u64::MAX);
        let mut p = Pickle(vec![0x80, 2, b'}', b'(']);
        p.text("iteration");
        p.number(self.step);
        p.text("crc32");
        p.number(u64::from(checksum));
        p.text("weights");
        p.raw(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        p.text("storage");
        p.raw(b"ctorch\nFloatStorage\n");
        p.text("0");
        p.text("cpu");
        p.number(length);
        // The storage by its id; then offset, size, stride, requires_grad, hooks.
        p.raw(b"tQ");
        p.number(0);
        p.number(length);
        p.raw(b"\x85");
        p.number(1);
        p.raw(b"\x85\x89ccollections\nOrderedDict\n)RtRu.");
        p.0
    }
}

struct Pickle(Vec<u8>);

impl Pickle {
    fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.raw(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        if let Ok(small) = i32::try_from(number) {
            self.0.push(b'J');
            self.0.extend(small.to_le_bytes());
        } else {
            // Nine bytes: a number whose top bit is set would be read as negative.
            self.raw(&[0x8a, 9]);
            self.0.extend(number.to_le_bytes());
            self.0.push(0);
        }
    }
}

#[derive(Default)]
struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    members: u64,
}

impl Zip {
    fn add(&mut self, name: &str, data: &[u8]) {
        let name = format!("archive/{name}");
        let offset = self.bytes.len();
        let before_data = offset + 30 + name.len() + 4;
        let padding = before_data.next_multiple_of(ALIGNMENT) - before_data;
        let (checksum, size) = (crc32fast::hash(data), low(data.len()));

        self.bytes.extend(b"PK\x03\x04\0\0");
        self.bytes.extend(FLAGS.to_le_bytes());
        // Method "stored", no time; checksum and sizes are in the descriptor.
        self.bytes.extend([0; 18]);
        self.bytes.extend(short(name.len()));
        self.bytes.extend(short(4 + padding));
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(b"FB");
        self.bytes.extend(short(padding));
        self.bytes.extend(std::iter::repeat_n(b'Z', padding));
        self.bytes.extend(data);
        self.bytes.extend(b"PK\x07\x08");
        self.bytes.extend(checksum.to_le_bytes());
        self.bytes.extend(size);
        self.bytes.extend(size);

        self.directory.extend(b"PK\x01\x02\0\0\0\0");
        self.directory.extend(FLAGS.to_le_bytes());
        self.directory.extend([0; 6]);
        self.directory.extend(checksum.to_le_bytes());
        self.directory.extend(size);
        self.directory.extend(size);
        self.directory.extend(short(name.len()));
        self.directory.extend([0; 12]);
        self.directory.extend(low(offset));
        self.directory.extend(name.as_bytes());
        self.members += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        let (offset, size) = (self.bytes.len(), self.directory.len());
        let record = offset + size;
        self.bytes.append(&mut self.directory);

        self.bytes.extend(b"PK\x06\x06");
        self.bytes.extend(44_u64.to_le_bytes());
        self.bytes.extend([0x1e, 3, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.bytes.extend(self.members.to_le_bytes());
        self.bytes.extend(self.members.to_le_bytes());
        self.bytes.extend(wide(size));
        self.bytes.extend(wide(offset));

        self.bytes.extend(b"PK\x06\x07\0\0\0\0");
        self.bytes.extend(wide(record));
        self.bytes.extend(1_u32.to_le_bytes());

        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        let members = u16::try_from(self.members).unwrap_or(u16::MAX).to_le_bytes();
        self.bytes.extend(members);
        self.bytes.extend(members);
        self.bytes.extend(low(size));
        self.bytes.extend(low(offset));
        self.bytes.extend([0, 0]);
        self.bytes
    }
}

fn short(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes()
}

fn low(n: usize) -> [u8; 4] {
    u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes()
}

fn wide(n: usize) -> [u8; 8] {
    u64::try_from(n).unwrap_or(u64::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_aligned_and_the_directory_ends_at_the_wide_record() {
        let state = State { step: 5_000_000_000, weights: (0..1000).collect() };
        let file = state.file();
        let tensor: Vec<u8> = (0..1000_u32).flat_map(u32::to_le_bytes).collect();
        let at = file.windows(tensor.len()).position(|part| part == tensor).expect("the tensor");
        assert_eq!(at % ALIGNMENT, 0);
        let end = &file[file.len() - 22..];
        assert!(end.starts_with(b"PK\x05\x06"));
        let number =
            |at: usize| u32::from_le_bytes(end[at..at + 4].try_into().expect("4")) as usize;
        assert_eq!(number(12) + number(16), file.len() - 98);
        assert!(file[number(16)..].starts_with(b"PK\x01\x02"));
        assert_eq!(file.windows(4).filter(|w| w == b"PK\x01\x02").count(), 7);
        assert!(file[file.len() - 98..].starts_with(b"PK\x06\x06"));
    }

    #[test]
    fn the_bytes_follow_from_step_and_weights() {
        let state = |step, first| State { step, weights: vec![first, 2, 3] };
        assert_eq!(state(7, 1).file(), state(7, 1).file());
        assert_ne!(state(7, 1).file(), state(8, 1).file());
        assert_ne!(state(7, 1).file(), state(7, 9).file());
    }
}
