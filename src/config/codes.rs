//! The codes of everything that can be wrong with a file. `docs/errors` has a page for each.

use crate::model::error::Code;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$doc])* pub const $name: Code = Code($number);)*

        /// All of them, in order.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    /// A file or folder cannot be read, or is not a regular file.
    UNREADABLE = 20;
    /// A key that nobody knows.
    UNKNOWN_KEY = 21;
    /// A known key, or word, that this version does not support.
    NOT_SUPPORTED = 22;
    /// Not TOML: syntax, or a key given twice.
    SYNTAX = 23;
    /// A value of another type than the key wants.
    WRONG_TYPE = 24;
    /// A value of the right type that is out of range or not one of the known words.
    WRONG_VALUE = 25;
    /// A key that has to be there is not.
    MISSING = 26;
    /// A duration without a unit, or one that cannot be read.
    DURATION = 27;
    /// Two keys of which only one may be given.
    EITHER_OR = 28;
    /// A file that is too large, or too many files.
    FILE_LIMIT = 29;
    /// An address that cannot be used, or plain `http://` where it was not allowed.
    ENDPOINT = 30;
    /// A job names a target that the daemon file does not have.
    UNKNOWN_TARGET = 31;
    /// The daemon file has no owner: `run` refuses.
    NO_OWNER = 32;
    /// `submit_file` is not a JSON object.
    SUBMIT_FILE = 33;
    /// A field of CreateJob in another spelling than the API's.
    FIELD_SPELLING = 34;
    /// A value that JSON cannot carry.
    NO_JSON = 35;
    /// `WorkspaceId` differs from the target's workspace.
    WORKSPACE = 36;
    /// A name that belongs to spotkeeper: `SPOTKEEPER_*`, the tag `spotkeeper`.
    RESERVED = 37;
    /// A secret that cannot be used: name, place, kind or mode of its file.
    SECRET = 38;
    /// A key or token written into a file.
    LITERAL_SECRET = 39;
    /// A bid in two forms, or in none.
    BID = 40;
    /// A bid in `[spot]` and a `SpotSpec` in the body.
    BID_TWICE = 41;
    /// The body is too large for CreateJob, or nearly.
    BODY_SIZE = 43;
    /// Two fields of CreateJob that exclude each other.
    FIELDS_EXCLUDE = 44;
    /// A credentials file that is missing or open to everybody.
    CREDENTIALS_FILE = 45;
    /// AIMaster is on, on general-compute spot.
    AIMASTER_ON_SPOT = 46;
    /// Spot in a region, or for a framework, for which it is not documented.
    SPOT_PLACE = 47;
    /// A share of the list price that the console does not offer.
    BID_STEP = 48;
    /// A bid that reads like one in another unit.
    BID_UNIT = 49;
    /// No `DataSources` entry covers the checkpoint path.
    NOT_COVERED = 50;
    /// The `DataSources` entry that covers it hides its bucket.
    HIDDEN_SOURCE = 51;
    /// A checkpoint address or path that cannot be one.
    BAD_LOCATION = 52;
    /// No `DataSources` entry mounts the checkpoint address.
    NOT_MOUNTED = 53;
    /// `path` and `url` name different places.
    PATH_AND_URL = 54;
    /// The mounted storage is not object storage.
    NOT_OBJECT_STORAGE = 55;
    /// The bucket is in another region than the target.
    OTHER_REGION = 56;
    /// A bid on Lingjun in another form than a share of the list price.
    LINGJUN_BID = 57;
    /// A Lingjun job without a VPC.
    LINGJUN_VPC = 58;
    /// A `DisplayName` with other letters, or more of them, than DLC takes.
    DISPLAY_NAME = 59;
    /// An unknown placeholder in a resume argument.
    PLACEHOLDER = 60;
    /// The resume argument cannot reach the trainer.
    RESUME_LOST = 61;
    /// What looks like a secret in plain text, by its name or its shape.
    PLAIN_SECRET = 62;
    /// A role of JobSpecs that is unknown, misspelt, there twice, or has too many pods.
    ROLE = 63;
    /// `Tags` at the top of the body.
    TOP_TAGS = 64;
    /// A trainer whose flags lose work in silence.
    TRAINER_FLAG = 65;
    /// A layout of one's own in which nothing tells a torn checkpoint.
    LAYOUT_TELLS_NOTHING = 66;
    /// `repair_tracker` where no tracker is ever rewritten.
    TRACKER_UNUSED = 67;
    /// A folder of checkpoints that is not there on this machine.
    NO_FOLDER = 68;
    /// A part of `[hang]` that needs checkpoints, in a job without them.
    HANG_WITHOUT_CHECKPOINTS = 69;
    /// One job name in two files.
    NAME_TWICE = 70;
    /// Two jobs on one checkpoint prefix.
    PREFIX_SHARED = 71;
    /// A job name that is the beginning of another one.
    NAME_INSIDE = 72;
    /// An act of `[waiting]` that can do nothing, or a limit that its bid is above.
    WAITING_ACT = 73;
    /// A placement that cannot be asked for, or whose target does not reach the checkpoints.
    PLACEMENT = 74;
    /// A field of CreateJob that looks misspelt.
    FIELD_DOUBT = 80;
    /// A file that does nothing as it stands.
    IDLE = 81;
    /// A file or folder of the configuration that everybody can change.
    OPEN_TO_ALL = 82;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_used_once_and_has_a_page() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors");
        for pair in ALL.windows(2) {
            assert!(pair[0] < pair[1], "{} before {}", pair[0], pair[1]);
        }
        for code in ALL {
            let page = std::fs::read_to_string(docs.join(format!("{code}.md"))).unwrap_or_default();
            assert!(page.starts_with(&format!("# {code}: ")), "docs/errors/{code}.md");
            assert!(page.contains("## What to do"), "docs/errors/{code}.md");
        }
    }
}
