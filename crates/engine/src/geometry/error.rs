//! What can be impossible about a geometry.

use std::fmt;

use crate::level::{Layout, Level, Raid10Layout};

/// Why an array cannot be laid out so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants and their Display say it")]
pub enum GeometryError {
    TooFewMembers { level: Level, members: usize, needed: u16 },
    TooManyMembers { level: Level, members: usize, allowed: usize },
    OneCopy { layout: Raid10Layout },
    TooManyCopies { layout: Raid10Layout, members: usize },
    CopiesMeet { layout: Raid10Layout, members: usize },
    BlocksMeet { layout: Raid10Layout, members: usize },
    ChunkNotPages { chunk_sectors: u64 },
    ChunkNotPowerOfTwo { level: Level, chunk_sectors: u64 },
    ChunkTooLarge { chunk_sectors: u64 },
    MemberTooLarge { sectors: u64 },
    ArrayTooLarge { sectors: u64 },
    TooSmall { sectors: u64, needed: u64 },
    LayoutOfAnotherLevel { level: Level, layout: Layout },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewMembers { level, members, needed } => {
                write!(f, "{level} on {members} members: it needs at least {needed}")
            }
            Self::TooManyMembers { level, members, allowed } => {
                write!(f, "{level} on {members} members: it takes at most {allowed}")
            }
            Self::TooManyCopies { layout, members } => write!(
                f,
                "layout {} keeps {} copies on {members} members: give it at least as many members as copies",
                Layout::Raid10(*layout),
                u32::from(layout.near) * u32::from(layout.far)
            ),
            Self::OneCopy { layout } => write!(
                f,
                "layout {} keeps one copy, and Linux runs no such array: give it two or more, as n2, or use raid0",
                Layout::Raid10(*layout)
            ),
            Self::CopiesMeet { layout, members } => write!(
                f,
                "layout {} on {members} members puts copies of a block on the same member: Linux warns of it, and it is \
                 not supported here",
                Layout::Raid10(*layout)
            ),
            Self::BlocksMeet { layout, members } => write!(
                f,
                "layout {} with {} near copies on {members} members: Linux lays blocks over each other there, unless the \
                 members are a multiple of {}, and it is not supported here",
                Layout::Raid10(*layout),
                layout.near,
                layout.near
            ),
            Self::ChunkNotPages { chunk_sectors } => write!(
                f,
                "chunk of {chunk_sectors} sectors ({} bytes): it must be a multiple of 4K and not 0",
                chunk_sectors * 512
            ),
            Self::ChunkNotPowerOfTwo { level, chunk_sectors } => {
                write!(f, "chunk of {} KiB: {level} needs a power of two, such as ", chunk_sectors / 2)?;
                let above = chunk_sectors.next_power_of_two() / 2;
                write!(f, "{}K or {above}K", above / 2)
            }
            Self::ChunkTooLarge { chunk_sectors } => {
                write!(f, "chunk of {chunk_sectors} sectors: at most {} (1 TiB)", 1u64 << 31)
            }
            Self::MemberTooLarge { sectors } => write!(
                f,
                "a member of {sectors} sectors: at most {} sectors are supported",
                super::MEMBER_SECTORS_MAX
            ),
            Self::ArrayTooLarge { sectors } => write!(
                f,
                "an array of {sectors} sectors: at most {} sectors (8 EiB) are supported",
                super::ARRAY_SECTORS_MAX
            ),
            Self::TooSmall { sectors, needed } => write!(
                f,
                "the smallest member has {sectors} sectors ({} KiB) for data: it needs at least {needed} \
                 ({} KiB), one chunk of each copy",
                sectors / 2,
                needed / 2
            ),
            Self::LayoutOfAnotherLevel { level, layout } => {
                write!(
                    f,
                    "layout {layout} is none of {level}'s; its default is {}",
                    Layout::default_of(*level)
                )
            }
        }
    }
}

impl std::error::Error for GeometryError {}
