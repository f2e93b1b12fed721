//! The parameters of each kind of model: name, unit, sensible bounds and meaning. Flat tables.

use super::ModelKind;

/// What a parameter must look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Number,
    Whole,
    WholeList,
}

const fn spec(
    name: &'static str,
    unit: &'static str,
    min: f64,
    max: f64,
    shape: Shape,
    about: &'static str,
) -> Spec {
    Spec { name, unit, min, max, shape, about }
}

use Shape::{Number, Whole, WholeList};

const CAPACITY: Spec =
    spec("capacity", "sectors", 2048.0, 1e12, Whole, "sectors of 512 bytes the drive offers");
const LINK_RATE: Spec =
    spec("link_rate", "MB/s", 1.0, 100_000.0, Number, "rate of the link between drive and controller");
const QUEUE_DEPTH: Spec =
    spec("queue_depth", "commands", 1.0, 256.0, Whole, "commands outstanding to one drive at a time");

const HDD: &[Spec] = &[
    CAPACITY,
    spec("rpm", "rpm", 1000.0, 30_000.0, Number, "revolutions a minute"),
    spec("heads", "heads", 1.0, 64.0, Whole, "recording surfaces"),
    spec("zone_cylinders", "cylinders", 1.0, 1e7, WholeList, "cylinders of each zone, outermost first"),
    spec("zone_sectors_per_track", "sectors", 1.0, 1e6, WholeList, "sectors on each track of a zone"),
    spec("seek_min_read", "ms", 0.01, 100.0, Number, "seek to the next cylinder, settled for reading"),
    spec("seek_average_read", "ms", 0.01, 100.0, Number, "mean seek between random places, for reading"),
    spec("seek_max_read", "ms", 0.01, 200.0, Number, "seek across all cylinders, for reading"),
    spec("seek_min_write", "ms", 0.01, 100.0, Number, "seek to the next cylinder, settled for writing"),
    spec("seek_average_write", "ms", 0.01, 100.0, Number, "mean seek between random places, for writing"),
    spec("seek_max_write", "ms", 0.01, 200.0, Number, "seek across all cylinders, for writing"),
    spec("head_switch", "ms", 0.001, 20.0, Number, "change to another head of the same cylinder"),
    spec("track_skew", "ms", 0.001, 20.0, Number, "time the next track of a cylinder starts later"),
    spec(
        "cylinder_skew",
        "ms",
        0.001,
        20.0,
        Number,
        "time the first track of the next cylinder starts later",
    ),
    spec("command_overhead", "ms", 0.0, 20.0, Number, "firmware time of each command, one after another"),
    QUEUE_DEPTH,
    spec(
        "ageing",
        "ms",
        1.0,
        100_000.0,
        Number,
        "age at which a queued command goes before better placed ones",
    ),
    spec("cache", "MiB", 0.01, 65_536.0, Number, "cache memory, for reading and writing"),
    spec("read_segments", "segments", 1.0, 1024.0, Whole, "streams the read cache keeps apart"),
    spec("read_segment_size", "KiB", 4.0, 1_048_576.0, Number, "size of a read segment"),
    spec(
        "read_ahead_min",
        "KiB",
        0.0,
        1_048_576.0,
        Number,
        "read ahead for a sequential reader though other commands wait",
    ),
    spec("write_cache", "MiB", 0.0, 65_536.0, Number, "most dirty data; 0 turns the write cache off"),
    spec("write_extents", "extents", 1.0, 4096.0, Whole, "most separate dirty ranges"),
    spec(
        "write_high_water",
        "ratio",
        0.0,
        1.0,
        Number,
        "share of write cache or extents above which reads wait for them",
    ),
    spec(
        "destage_window",
        "extents",
        1.0,
        4096.0,
        Whole,
        "dirty ranges around the head the drive chooses from",
    ),
    spec(
        "destage_run",
        "KiB",
        4.0,
        1_048_576.0,
        Number,
        "most the drive writes before it looks at its queue",
    ),
    spec("physical_sector", "bytes", 512.0, 65_536.0, Whole, "the least the medium is written by"),
    LINK_RATE,
];

const CONSTANT: &[Spec] = &[
    CAPACITY,
    spec("latency", "us", 0.0, 1e7, Number, "time from command to data, whatever the place"),
    LINK_RATE,
    QUEUE_DEPTH,
];

const SSD: &[Spec] = &[
    CAPACITY,
    spec("channels", "channels", 1.0, 64.0, Whole, "channels between controller and flash"),
    spec("dies_per_channel", "dies", 1.0, 64.0, Whole, "dies on each channel"),
    spec("planes", "planes", 1.0, 16.0, Whole, "planes of a die that are programmed together"),
    spec("page_size", "KiB", 1.0, 64.0, Whole, "data of a page"),
    spec("program_pages", "pages", 1.0, 16.0, Whole, "pages of a plane programmed together: 1, or 3 for TLC"),
    spec("pages_per_block", "pages", 16.0, 16_384.0, Whole, "pages of an erase block"),
    spec("read_time", "us", 1.0, 1000.0, Number, "from a page's cells to the die's register"),
    spec("program_time", "us", 10.0, 20_000.0, Number, "from the register to the cells"),
    spec("erase_time", "us", 100.0, 100_000.0, Number, "erasing a block on all planes"),
    spec("channel_rate", "MB/s", 10.0, 10_000.0, Number, "rate of one channel"),
    spec("programs_max", "dies", 1.0, 4096.0, Whole, "dies that program at the same time"),
    spec(
        "overprovisioning",
        "ratio",
        0.01,
        10.0,
        Number,
        "flash beyond the capacity, as a share of the capacity",
    ),
    spec(
        "collection_cost",
        "ratio",
        0.0,
        10.0,
        Number,
        "program time a byte moved by garbage collection takes, that of a byte written being 1",
    ),
    spec("mapping_unit", "KiB", 1.0, 64.0, Whole, "smallest piece the drive keeps track of"),
    spec("write_buffer", "MiB", 0.01, 65_536.0, Number, "most data acknowledged and not yet in the flash"),
    spec(
        "power_loss_protection",
        "flag",
        0.0,
        1.0,
        Whole,
        "1: what is in the buffer survives, a flush waits for nothing",
    ),
    spec(
        "volatile_cache",
        "flag",
        0.0,
        1.0,
        Whole,
        "1: the drive tells of a write cache, and is sent flushes; 0: it is sent none",
    ),
    spec("read_ahead", "KiB", 0.0, 65_536.0, Whole, "read beyond a sequential read; 0 for none"),
    spec("read_streams", "streams", 1.0, 1024.0, Whole, "sequential streams told apart"),
    spec("command_overhead", "us", 0.0, 1000.0, Number, "firmware time of each command, one after another"),
    spec(
        "read_latency",
        "us",
        0.0,
        1000.0,
        Number,
        "time of a read besides overhead, flash and transfer; commands overlap",
    ),
    spec(
        "write_latency",
        "us",
        0.0,
        1000.0,
        Number,
        "time of a write besides overhead and transfer; commands overlap",
    ),
    spec("controller_rate", "MB/s", 1.0, 100_000.0, Number, "bytes the drive moves between buffer and link"),
    LINK_RATE,
    QUEUE_DEPTH,
];

const BUS: &[Spec] = &[
    spec("rate", "MB/s", 1.0, 1_000_000.0, Number, "bytes the bus moves for all its controllers together"),
    spec("command_cost", "us", 0.0, 10_000.0, Number, "time each command holds the bus besides its data"),
];

const CONTROLLER: &[Spec] = &[
    spec("rate", "MB/s", 1.0, 1_000_000.0, Number, "bytes the bus moves for all its drives together"),
    spec("command_cost", "us", 0.0, 10_000.0, Number, "time each command holds the bus besides its data"),
    spec("command_size_max", "KiB", 4.0, 1_048_576.0, Whole, "largest command"),
    spec("queue_depth", "commands", 1.0, 256.0, Whole, "commands outstanding to one drive; 1 without NCQ"),
    spec("ports", "drives", 1.0, 1024.0, Whole, "most drives attached"),
];

const CPU: &[Spec] = &[
    spec("cores", "cores", 1.0, 1024.0, Whole, "cores; md's thread of the array uses the first"),
    spec("xor_rate", "MB/s", 1.0, 1e7, Number, "xor of one block into another, bytes of one block"),
    spec("pq_rate", "MB/s", 1.0, 1e7, Number, "P and Q together, bytes of data"),
    spec("memory_rate", "MB/s", 1.0, 1e7, Number, "bytes read and written in memory"),
    spec("copy_rate", "MB/s", 1.0, 1e7, Number, "copy, bytes of one side"),
    spec("copy_traffic", "ratio", 1.0, 10.0, Number, "bytes that pass the memory for each byte copied"),
    spec("aes_cbc_encrypt_rate", "MB/s", 1.0, 1e6, Number, "AES-256 in CBC mode on one core, encryption"),
    spec("aes_cbc_decrypt_rate", "MB/s", 1.0, 1e6, Number, "AES-256 in CBC mode on one core, decryption"),
    spec("aes_xts_rate", "MB/s", 1.0, 1e6, Number, "AES-256 in XTS mode on one core, either way"),
    spec("request_submit", "us", 0.0, 1e5, Number, "submitting one request to the array"),
    spec("request_complete", "us", 0.0, 1e5, Number, "completing one request of the array"),
    spec("page_cost", "us", 0.0, 1e4, Number, "each 4 KiB page of a request past the page cache"),
    spec("cached_request", "us", 0.0, 1e5, Number, "a request through the page cache, from call to return"),
    spec("cached_page", "us", 0.0, 1e4, Number, "finding each 4 KiB page of it, without the copy"),
    spec("member_io_cost", "us", 0.0, 1e5, Number, "each I/O of the array to a member"),
    spec(
        "row_io_cost",
        "us",
        0.0,
        1e5,
        Number,
        "each page beyond the first of an I/O that passes the stripe cache, of which Linux makes one for each page",
    ),
    spec("command_cost", "us", 0.0, 1e5, Number, "each command to a drive, with its interrupt"),
    spec("row_cost", "us", 0.0, 1e5, Number, "each row of the stripe cache of which parity is computed"),
    spec(
        "row_update_cost",
        "us",
        0.0,
        1e5,
        Number,
        "each row whose parity is brought up to date from what was read of it",
    ),
];

const BLOCK: &[Spec] = &[
    spec("request_size_max", "KiB", 4.0, 1_048_576.0, Whole, "largest request after merging"),
    spec(
        "nr_requests",
        "requests",
        1.0,
        100_000.0,
        Whole,
        "requests queued for a member, reads and writes each",
    ),
    spec(
        "fua",
        "flag",
        0.0,
        1.0,
        Whole,
        "1: a forced write (FUA) is one command; 0: a write and a flush, as the kernel does not use a drive's FUA",
    ),
    spec("read_expire", "ms", 0.0, 1e6, Number, "time a read may be queued before it goes next"),
    spec("write_expire", "ms", 0.0, 1e6, Number, "time a write may be queued before it goes next"),
    spec(
        "expire_batch",
        "requests",
        1.0,
        100_000.0,
        Whole,
        "requests served in order from one that was queued too long on",
    ),
    spec(
        "slice_sync",
        "ms",
        0.0,
        1e6,
        Number,
        "turn of a process that reads on; 0 for a scheduler without turns",
    ),
    spec(
        "slice_target",
        "ms",
        0.0,
        1e6,
        Number,
        "what the turns of all take at most, if they can; 0 for no such goal",
    ),
    spec("slice_idle", "ms", 0.0, 1e6, Number, "time a drive is kept for a process that has nothing queued"),
    spec("slice_async", "ms", 0.0, 1e6, Number, "turn of all other requests"),
    spec(
        "slice_close",
        "KiB",
        0.0,
        1e9,
        Whole,
        "distance up to which another process's read goes on instead; 0 for none",
    ),
    spec(
        "slice_near",
        "KiB",
        0.0,
        1e9,
        Whole,
        "distance up to which a process's next read counts as reading on",
    ),
    spec(
        "crypt_threads",
        "threads",
        0.0,
        1024.0,
        Whole,
        "threads dm-crypt has for one device; 0 for one on every core",
    ),
    spec(
        "crypt_buffer",
        "MiB",
        0.0,
        2048.0,
        Whole,
        "writes that dm-crypt has encrypted and under way at most; 0 for no bound",
    ),
];

/// The parameters of a kind of model.
pub(crate) const fn of(kind: ModelKind) -> &'static [Spec] {
    match kind {
        ModelKind::Hdd => HDD,
        ModelKind::Ssd => SSD,
        ModelKind::Constant => CONSTANT,
        ModelKind::Bus => BUS,
        ModelKind::Controller => CONTROLLER,
        ModelKind::Cpu => CPU,
        ModelKind::Block => BLOCK,
    }
}
