//! The 16 bytes that name an array or a member, in mdadm's notation `aabbccdd:eeff0011:22334455:66778899`.

use std::fmt;
use std::str::FromStr;

/// A UUID. The bytes are in the order in which mdadm prints them, whatever the metadata version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The UUID of version 0.90's four words (`mdp_super_t.set_uuid0` to `set_uuid3`).
    pub fn from_words(words: [u32; 4]) -> Self {
        let mut bytes = [0; 16];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        Self(bytes)
    }

    /// Version 0.90's four words.
    pub fn words(self) -> [u32; 4] {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(self.0.chunks_exact(4)) {
            *word = u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        }
        words
    }

    /// The bytes with each word reversed: how a little-endian machine's 0.90 array is named in its bitmap
    /// (`bitmap_super_t.uuid` holds the words as they lie in memory).
    #[must_use]
    pub fn with_words_reversed(self) -> Self {
        let mut bytes = self.0;
        bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        Self(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.words();
        write!(f, "{a:08x}:{b:08x}:{c:08x}:{d:08x}")
    }
}

/// A text that is no UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAUuid(String);

impl fmt::Display for NotAUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a UUID; one has 32 hexadecimal digits, with colons, dots or hyphens between them",
            self.0
        )
    }
}

impl std::error::Error for NotAUuid {}

impl FromStr for Uuid {
    type Err = NotAUuid;

    /// Takes 32 hexadecimal digits with any of `:`, `.`, `-` and spaces between them, as mdadm does.
    fn from_str(text: &str) -> Result<Self, NotAUuid> {
        let fail = || NotAUuid(text.to_owned());
        let mut bytes = [0; 16];
        let mut count = 0;
        for digit in text.chars().filter(|c| !":.- ".contains(*c)) {
            let value = digit.to_digit(16).ok_or_else(fail)? as u8;
            let byte = bytes.get_mut(count / 2).ok_or_else(fail)?;
            *byte = *byte << 4 | value;
            count += 1;
        }
        if count == 32 { Ok(Self(bytes)) } else { Err(fail()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_survives_its_text_and_its_words() {
        let uuid: Uuid = "00112233:44556677:8899aabb:ccddeeff".parse().unwrap();
        assert_eq!(uuid.0[..4], [0x00, 0x11, 0x22, 0x33]);
        assert_eq!(uuid, "00112233-4455-6677-8899-AABBCCDDEEFF".parse().unwrap());
        assert_eq!(uuid.to_string(), "00112233:44556677:8899aabb:ccddeeff");
        assert_eq!(Uuid::from_words(uuid.words()), uuid);
        assert_eq!(uuid.with_words_reversed().0[..4], [0x33, 0x22, 0x11, 0x00]);
    }

    #[test]
    fn too_few_too_many_and_other_digits_are_no_uuid() {
        for text in
            ["", "0011", "00112233:44556677:8899aabb:ccddeef", "00112233:44556677:8899aabb:ccddeeff0", "g"]
        {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
