//! The words that `format` may be, and which of them an unknown word may mean.

use super::nearest::distance;

/// Formats that this version reads.
pub const FORMATS: [&str; 21] = [
    "auto",
    "easyckpt-megatron",
    "easyckpt-deepspeed",
    "megatron-legacy",
    "megatron-torch-dist",
    "deepspeed",
    "torch-dcp",
    "torchtitan",
    "hf-trainer",
    "llama-factory",
    "ms-swift",
    "ms-swift-megatron",
    "accelerate",
    "lightning",
    "nemo",
    "composer",
    "orbax",
    "dlrover",
    "colossalai",
    "verl",
    "custom",
];

/// What people call the writers of these formats: the beginning of the word, and what is meant.
const CALLED: &[(&str, &[&str])] = &[
    ("easyckpt", &["easyckpt-megatron", "easyckpt-deepspeed"]),
    ("msswiftmegatron", &["ms-swift-megatron"]),
    (
        "megatron",
        &["megatron-torch-dist", "megatron-legacy", "easyckpt-megatron", "ms-swift-megatron"],
    ),
    ("mcore", &["megatron-torch-dist", "ms-swift-megatron"]),
    ("huggingface", &["hf-trainer", "accelerate"]),
    ("hf", &["hf-trainer"]),
    ("transformers", &["hf-trainer"]),
    ("trainer", &["hf-trainer"]),
    ("trl", &["hf-trainer"]),
    ("axolotl", &["hf-trainer"]),
    ("peft", &["hf-trainer"]),
    ("swift", &["ms-swift", "ms-swift-megatron"]),
    ("pytorchlightning", &["lightning"]),
    ("titan", &["torchtitan"]),
    ("dcp", &["torch-dcp", "torchtitan"]),
    ("fsdp", &["torch-dcp", "accelerate", "hf-trainer"]),
    ("zero", &["deepspeed"]),
    ("colossal", &["colossalai"]),
    ("mosaic", &["composer"]),
    ("flax", &["orbax"]),
    ("jax", &["orbax"]),
    ("flash", &["dlrover"]),
    ("pytorch", &["torch-dcp", "torchtitan", "lightning"]),
    ("torch", &["torch-dcp", "torchtitan"]),
];

/// The formats that an unknown word may mean, the likeliest first.
pub fn meant_by(word: &str) -> Vec<&'static str> {
    let plain: String =
        word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let mut near: Vec<(usize, &'static str)> =
        FORMATS.iter().filter_map(|known| Some((distance(word, known)?, *known))).collect();
    near.sort_by_key(|(distance, _)| *distance);
    // A slip of the pen first, then what people call it, then words that hold it.
    let slip = near.iter().filter(|(distance, _)| *distance < 2).map(|(_, known)| *known);
    let called = CALLED.iter().filter(|(called, _)| plain.starts_with(called)).take(1);
    let called = called.flat_map(|(_, formats)| formats.iter().copied());
    let rest = near.iter().map(|(_, known)| *known);
    let mut found: Vec<&'static str> = Vec::new();
    for format in slip.chain(called).chain(rest) {
        if !found.contains(&format) {
            found.push(format);
        }
    }
    found
}

/// The same in a sentence, and all that there are.
pub fn which_there_are(word: &str) -> String {
    let all = format!("there are {}", FORMATS.join(", "));
    match meant_by(word).as_slice() {
        [] => all,
        meant => format!("did you mean {}? {all}", list(meant)),
    }
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_people_use_leads_to_the_formats_that_it_means() {
        for (word, first) in [
            ("megatron", "megatron-torch-dist"),
            ("Megatron-LM", "megatron-torch-dist"),
            ("huggingface", "hf-trainer"),
            ("hugging_face", "hf-trainer"),
            ("HF", "hf-trainer"),
            ("pytorch-lightning", "lightning"),
            ("lightening", "lightning"),
            ("acelerate", "accelerate"),
            ("swift", "ms-swift"),
            ("llamafactory", "llama-factory"),
            ("deepspeed-zero", "deepspeed"),
            ("colossal-ai", "colossalai"),
            ("dcp", "torch-dcp"),
            ("easyckpt", "easyckpt-megatron"),
            ("nemo2", "nemo"),
        ] {
            assert_eq!(meant_by(word).first(), Some(&first), "{word}");
        }
        assert!(meant_by("megatron").contains(&"megatron-legacy"));
        assert_eq!(meant_by("xyz"), [] as [&str; 0]);
        for (_, formats) in CALLED {
            assert!(formats.iter().all(|format| FORMATS.contains(format)), "{formats:?}");
        }
    }
}
