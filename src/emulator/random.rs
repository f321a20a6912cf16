//! A small seeded generator (splitmix64), so that a seed gives the same market, dialects and
//! faults on every machine and in every version. Ids and keys come from the system instead.

use crate::model::ids::hex;

/// A stream of numbers that its seed alone decides. Never for ids, nonces or keys.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number from 0 up to, not including, 1.
    pub fn fraction(&mut self) -> f64 {
        let bits = u32::try_from(self.number() >> 32).unwrap_or(u32::MAX);
        f64::from(bits) / 4_294_967_296.0
    }

    /// The next number below `limit` (at least 1).
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }
}

/// Twice as many random hex digits as `bytes`, from the system, for ids and keys.
pub fn unguessable_hex(bytes: usize) -> String {
    let mut random = vec![0_u8; bytes];
    getrandom::fill(&mut random).expect("the system gives randomness");
    hex(&random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn fractions_stay_below_one() {
        let mut random = Random::new(7);
        assert!((0..1000).map(|_| random.fraction()).all(|f| (0.0..1.0).contains(&f)));
    }
}
