//! `stripewise luks`: containers on files, devices and images.

pub(crate) mod passphrase;
mod payload;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use stripewise_crypt::container::{OpenError, Unlocked, read_header, unlock};
use stripewise_crypt::create::{self, Argon2Costs, FormatError, FormatOptions, FormatVersion, KdfChoice};
use stripewise_crypt::hash::Hash;
use stripewise_crypt::kdf::Limits;
use stripewise_crypt::store::Store;
use stripewise_format::luks::{Encryption, Kdf, Luks, Segment};
use stripewise_host::claim;
use stripewise_host::md::paths::is_storage;

use crate::exit::{Exit, Impossible, cannot_open};
use crate::output::{Document, print};
use passphrase::KeyArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum LuksCommand {
    /// Print the header of a container.
    Dump(DumpArgs),
    /// Create a container; the contents of the file or device are lost.
    Format(Box<FormatArgs>),
    /// Test whether a passphrase or key file opens a container.
    Test(OpenArgs),
    /// Decrypt a container's payload to standard output.
    Read(ReadArgs),
    /// Encrypt standard input into a container's payload.
    Write(WriteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// File or device that holds the container.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum VersionArg {
    Luks1,
    Luks2,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PbkdfArg {
    Pbkdf2,
    Argon2i,
    Argon2id,
}

/// Option names are cryptsetup's.
#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// File or device to format; its contents are lost.
    #[arg(long, value_name = "FILE")]
    destroy: PathBuf,
    /// Format even if the file or device holds data.
    #[arg(long)]
    force: bool,
    /// LUKS version.
    #[arg(long = "type", value_enum, default_value = "luks2")]
    luks_type: VersionArg,
    /// Cipher: aes-xts-plain64 or aes-cbc-essiv:sha256.
    #[arg(long, default_value = "aes-xts-plain64")]
    cipher: String,
    /// Key size in bits [default: 512 for XTS, which is AES-256, and 256 for CBC].
    #[arg(long, value_name = "BITS")]
    key_size: Option<usize>,
    /// Hash of the header: sha1, sha256 or sha512.
    #[arg(long, default_value = "sha256")]
    hash: String,
    /// Key derivation function [default: argon2id, or pbkdf2 for luks1].
    #[arg(long, value_enum)]
    pbkdf: Option<PbkdfArg>,
    /// Memory of Argon2 in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 1 << 20)]
    pbkdf_memory: u32,
    /// Number of Argon2 lanes.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pbkdf_parallel: u32,
    /// Number of PBKDF2 iterations [default: 600000] or Argon2 passes [default: 4].
    #[arg(long, value_name = "N")]
    pbkdf_force_iterations: Option<u32>,
    /// Size of an encrypted sector in bytes: 512, 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    sector_size: u32,
    /// Start of the payload in sectors of 512 bytes [default: as cryptsetup chooses].
    #[arg(long, value_name = "SECTORS")]
    offset: Option<u64>,
    /// Label (LUKS2 only).
    #[arg(long, default_value = "")]
    label: String,
    #[command(flatten)]
    key: KeyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// File or device that holds the container.
    file: PathBuf,
    /// Try only this keyslot, whatever its priority.
    #[arg(long, value_name = "N")]
    key_slot: Option<u32>,
    /// Maximum memory in KiB that Argon2 may take for a keyslot.
    #[arg(long, value_name = "KIB", default_value_t = Limits::default().argon2_memory_kib)]
    pbkdf_memory_max: u32,
    #[command(flatten)]
    key: KeyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    open: OpenArgs,
    /// First byte of the payload to read.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Number of bytes to read [default: to the end].
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    open: OpenArgs,
    /// First byte of the payload to write, a multiple of the encrypted sector size.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
}

pub(crate) fn run(command: &LuksCommand) -> Result<Exit> {
    match command {
        LuksCommand::Dump(args) => dump(args),
        LuksCommand::Format(args) => format(args),
        LuksCommand::Test(args) => test(args),
        LuksCommand::Read(args) => payload::read(args),
        LuksCommand::Write(args) => payload::write(args),
    }
}

fn impossible(file: &Path, why: impl std::fmt::Display) -> anyhow::Error {
    Impossible(format!("{}: {why}", file.display())).into()
}

/// Says where an error was; only the store's own errors are the machine's fault.
fn open_error(file: &Path, error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Io(error) => anyhow::Error::from(error).context(file.display().to_string()),
        error => impossible(file, error),
    }
}

/// Opens the file; for writing, a device that is mounted or otherwise in use is refused by the kernel, and a file that is a
/// member of a running array by its lock.
fn open_file(file: &Path, writes: bool) -> Result<File> {
    let metadata = std::fs::metadata(file).map_err(|error| cannot_open(file, error))?;
    if !is_storage(&metadata) {
        // A pipe would be waited for without end.
        return Err(impossible(
            file,
            "is neither a regular file nor a block device, which a container is in",
        ));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(writes);
    if writes && metadata.file_type().is_block_device() {
        options.custom_flags(libc::O_EXCL);
    }
    let store = options.open(file).map_err(|error| cannot_open(file, error))?;
    if writes {
        claim(&store).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                impossible(file, "is in use by another stripewise; stop that one first")
            }
            _ => anyhow::Error::new(error).context(file.display().to_string()),
        })?;
    }
    Ok(store)
}

fn open(args: &OpenArgs, writes: bool) -> Result<(File, Unlocked)> {
    let store = open_file(&args.file, writes)?;
    let header = read_header(&store).map_err(|error| open_error(&args.file, error))?;
    let passphrase = args.key.read(false)?;
    let limits = Limits { argon2_memory_kib: args.pbkdf_memory_max, ..Limits::default() };
    let unlocked = unlock(&store, &header, passphrase.bytes(), args.key_slot, limits)
        .map_err(|error| open_error(&args.file, error))?;
    Ok((store, unlocked))
}

fn test(args: &OpenArgs) -> Result<Exit> {
    let (_, unlocked) = open(args, false)?;
    print(&format!("{}: keyslot {} opens\n", args.file.display(), unlocked.keyslot))?;
    Ok(Exit::Done)
}

fn format(args: &FormatArgs) -> Result<Exit> {
    let file = &args.destroy;
    let encryption = Encryption::parse("--cipher", &args.cipher).map_err(|error| impossible(file, error))?;
    let key_bits = args.key_size.unwrap_or(encryption.key_bytes()[1] * 8);
    let pbkdf = args.pbkdf.unwrap_or(match args.luks_type {
        VersionArg::Luks1 => PbkdfArg::Pbkdf2,
        VersionArg::Luks2 => PbkdfArg::Argon2id,
    });
    let costs = Argon2Costs {
        time: args.pbkdf_force_iterations.unwrap_or(4),
        memory_kib: args.pbkdf_memory,
        cpus: args.pbkdf_parallel,
    };
    let options = FormatOptions {
        version: match args.luks_type {
            VersionArg::Luks1 => FormatVersion::Luks1,
            VersionArg::Luks2 => FormatVersion::Luks2,
        },
        encryption,
        key_bytes: key_bits / 8,
        hash: Hash::parse(&args.hash).map_err(|error| impossible(file, error))?,
        kdf: match pbkdf {
            PbkdfArg::Pbkdf2 => {
                KdfChoice::Pbkdf2 { iterations: args.pbkdf_force_iterations.unwrap_or(600_000) }
            }
            PbkdfArg::Argon2i => KdfChoice::Argon2i(costs),
            PbkdfArg::Argon2id => KdfChoice::Argon2id(costs),
        },
        sector_bytes: args.sector_size,
        payload_offset_bytes: args.offset.map(|sectors| sectors.saturating_mul(512)),
        label: args.label.clone(),
    };
    if !key_bits.is_multiple_of(8) {
        return Err(impossible(file, format_args!("--key-size {key_bits}: must be a multiple of 8 bits")));
    }
    let store = open_file(file, true)?;
    if !args.force
        && let Some(what) = holds(&store).with_context(|| file.display().to_string())?
    {
        return Err(impossible(file, format_args!("holds {what}; --force overwrites it")));
    }
    let passphrase = args.key.read(true)?;
    create::format(&store, &options, passphrase.bytes()).map_err(|error| match error {
        FormatError::Io(error) => anyhow::Error::from(error).context(file.display().to_string()),
        error => impossible(file, error),
    })?;
    Ok(Exit::Done)
}

/// What is there already: headers and file systems begin in the first MiB, md's old superblocks lie at the end.
fn holds(store: &File) -> std::io::Result<Option<String>> {
    const LOOKED_AT_BYTES: u64 = 1 << 20;
    if let Ok(header) = read_header(store) {
        return Ok(Some(format!("a LUKS container (UUID {})", header.uuid())));
    }
    let len = store.len_bytes()?;
    let mut piece = vec![0; len.min(LOOKED_AT_BYTES) as usize];
    for (offset, place) in [(0, "first"), (len - piece.len() as u64, "last")] {
        store.read_at(offset, &mut piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(Some(format!("data in its {place} MiB")));
        }
    }
    Ok(None)
}

fn dump(args: &DumpArgs) -> Result<Exit> {
    let store = open_file(&args.file, false)?;
    let header = read_header(&store).map_err(|error| open_error(&args.file, error))?;
    let of_header = |error| open_error(&args.file, OpenError::Header(error));
    let keyslots = header.keyslots().map_err(of_header)?;
    if args.json {
        let slots: Vec<_> =
            keyslots.iter().map(|(number, slot)| json!({"keyslot": number, "value": slot})).collect();
        let mut document = json!({ "version": version(&header), "uuid": header.uuid(), "keyslots": slots });
        match &header {
            Luks::V1(_) => document["payload"] = json!(header.payload().map_err(of_header)?),
            Luks::V2(v2, copies) => {
                document["copies"] = json!(copies.to_string());
                document["label"] = json!(v2.label);
                document["seqid"] = json!(v2.seqid);
                document["segments"] = json!(v2.segments);
                document["digests"] = json!(v2.digests);
                document["config"] = json!(v2.config);
            }
        }
        Document::new("stripewise.luks-dump/1", &document).print()?;
        return Ok(Exit::Done);
    }
    print(&dump_text(&header, &keyslots))?;
    Ok(Exit::Done)
}

fn version(header: &Luks) -> u32 {
    match header {
        Luks::V1(_) => 1,
        Luks::V2(..) => 2,
    }
}

fn dump_text(header: &Luks, keyslots: &[(u32, stripewise_format::luks::Keyslot)]) -> String {
    let mut text = format!("version    {}\nUUID       {}\n", version(header), header.uuid());
    let mut segments = Vec::new();
    match header {
        Luks::V1(v1) => segments.push((0, v1.payload())),
        Luks::V2(v2, copies) => {
            let _ = writeln!(text, "header     {} bytes, seqid {}: {copies}", v2.header_bytes, v2.seqid);
            let _ = writeln!(text, "label      {}", if v2.label.is_empty() { "none" } else { &v2.label });
            segments.extend(v2.segments.iter().map(|(number, segment)| (*number, segment.clone())));
            if !v2.config.requirements.mandatory.is_empty() {
                let _ = writeln!(text, "requires   {}", v2.config.requirements.mandatory.join(", "));
            }
        }
    }
    for (number, segment) in segments {
        let _ = write!(
            text,
            "payload {number}  {}, sectors of {}, from byte {}, size {}, iv offset {}",
            segment.encryption, segment.sector_size, segment.offset.0, segment.size, segment.iv_tweak.0
        );
        if segment.kind != Segment::CRYPT {
            let _ = write!(text, ", {}", segment.kind);
        }
        if let Some(integrity) = segment.integrity_name() {
            let _ = write!(text, ", integrity {integrity}");
        }
        text.push('\n');
    }
    for (number, slot) in keyslots {
        let kdf = match &slot.kdf {
            Kdf::Pbkdf2 { hash, iterations, .. } => format!("pbkdf2 {hash}, {iterations} iterations"),
            Kdf::Argon2i(c) => {
                format!("argon2i, time {}, memory {} KiB, cpus {}", c.time, c.memory, c.cpus)
            }
            Kdf::Argon2id(c) => {
                format!("argon2id, time {}, memory {} KiB, cpus {}", c.time, c.memory, c.cpus)
            }
        };
        let _ = writeln!(
            text,
            "keyslot {number}  key of {} bits, {kdf}; area at byte {}, {} bytes, {} {} bits, {} stripes {}, priority {:?}",
            slot.key_size * 8,
            slot.area.offset.0,
            slot.area.size.0,
            slot.area.encryption,
            slot.area.key_size * 8,
            slot.af.stripes,
            slot.af.hash,
            slot.priority
        );
    }
    if let Luks::V2(v2, _) = header {
        for unusable in &v2.unusable {
            let _ = writeln!(text, "keyslot {}  not usable here: {}", unusable.keyslot, unusable.reason);
        }
    }
    text
}
