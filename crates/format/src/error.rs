//! Why a structure is refused.

use std::borrow::Cow;
use std::fmt;

/// A field whose value cannot be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The kernel's name of the field, or its path in a document.
    pub field: Cow<'static, str>,
    /// The value found, as people write it.
    pub found: String,
    /// What would be right.
    pub right: String,
}

impl FieldError {
    pub(crate) fn new(
        field: impl Into<Cow<'static, str>>,
        found: impl fmt::Display,
        right: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), found: found.to_string(), right: right.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; {}", self.field, self.found, self.right)
    }
}

impl std::error::Error for FieldError {}

/// Returns the field's error unless `right_when` holds.
pub(crate) fn require(
    right_when: bool,
    field: impl Into<Cow<'static, str>>,
    found: impl fmt::Display,
    right: impl FnOnce() -> String,
) -> Result<(), FieldError> {
    if right_when { Ok(()) } else { Err(FieldError::new(field, found, right())) }
}

/// Why a structure is not read. One type for each structure, so that a caller can tell them apart.
macro_rules! structure_error {
    ($(#[$doc:meta])* $name:ident, $structure:literal $(, $(#[$variant_doc:meta])* $variant:ident $({ $($field:ident: $type:ty),* })? => $text:literal)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the fields of a variant are named by its sentence")]
        pub enum $name {
            /// Fewer bytes than the structure has.
            Truncated { found_bytes: usize, needed_bytes: usize },
            /// The magic number is not there: nothing of this kind was written here.
            Magic { found: u32, right: u32 },
            /// A field cannot be right.
            Field($crate::error::FieldError),
            $($(#[$variant_doc])* $variant $({ $($field: $type),* })?,)*
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    Self::Truncated { found_bytes, needed_bytes } => {
                        write!(f, concat!($structure, " is cut off: {} bytes of {}"), found_bytes, needed_bytes)
                    }
                    Self::Magic { found, right } => {
                        write!(f, concat!("no ", $structure, ": magic is {:08x}; it must be {:08x}"), found, right)
                    }
                    Self::Field(error) => write!(f, concat!($structure, ": {}"), error),
                    $(Self::$variant $({ $($field),* })? => write!(f, concat!($structure, ": ", $text) $($(, $field = $field)*)?),)*
                }
            }
        }

        impl ::std::error::Error for $name {}

        impl From<$crate::error::FieldError> for $name {
            fn from(error: $crate::error::FieldError) -> Self {
                Self::Field(error)
            }
        }
    };
}
pub(crate) use structure_error;
