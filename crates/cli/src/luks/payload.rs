//! A payload to a pipe and from one.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use stripewise_crypt::store::Store;

use super::{ReadArgs, WriteArgs, impossible, open};
use crate::exit::{Exit, Impossible};
use crate::output::unwritten;

const PIECE_BYTES: usize = 1 << 20;

/// Decrypts to standard output; any bytes, not only whole sectors.
pub(super) fn read(args: &ReadArgs) -> Result<Exit> {
    let file = &args.open.file;
    let (store, unlocked) = open(&args.open, false)?;
    let payload = unlocked.payload;
    let end = match args.size {
        Some(size) => args.offset.checked_add(size),
        None => Some(payload.len_bytes.max(args.offset)),
    };
    let end = end.filter(|end| *end <= payload.len_bytes).ok_or_else(|| {
        let len = payload.len_bytes;
        impossible(file, format_args!("the payload has {len} bytes; --offset and --size reach past its end"))
    })?;
    let sector_bytes = u64::from(payload.cipher.sector_bytes());
    let mut piece = vec![0; PIECE_BYTES];
    let mut out = std::io::stdout().lock();
    let mut at = args.offset;
    while at < end {
        let start = at / sector_bytes * sector_bytes;
        let stop = end.next_multiple_of(sector_bytes).min(start + PIECE_BYTES as u64);
        let piece = &mut piece[..(stop - start) as usize];
        payload.read_at(&store, start, piece).with_context(|| file.display().to_string())?;
        let wanted = (at - start) as usize..(end.min(stop) - start) as usize;
        out.write_all(&piece[wanted]).map_err(|e| unwritten(e, "standard output"))?;
        at = stop;
    }
    out.flush().map_err(|e| unwritten(e, "standard output"))?;
    Ok(Exit::Done)
}

/// Encrypts standard input; what remains of its last sector keeps its contents.
pub(super) fn write(args: &WriteArgs) -> Result<Exit> {
    let file = &args.open.file;
    if args.open.key.takes_stdin() {
        let why = "standard input carries the data; give the key with --luks-key-file";
        return Err(Impossible(why.to_owned()).into());
    }
    let (store, unlocked) = open(&args.open, true)?;
    let payload = unlocked.payload;
    let sector_bytes = payload.cipher.sector_bytes() as usize;
    if !args.offset.is_multiple_of(sector_bytes as u64) {
        return Err(impossible(
            file,
            format_args!("--offset {}: must be a multiple of {sector_bytes}", args.offset),
        ));
    }
    let (mut piece, mut bounce) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut input = std::io::stdin().lock();
    let mut at = args.offset;
    loop {
        let mut filled = 0;
        while filled < PIECE_BYTES {
            match input.read(&mut piece[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            break;
        }
        let whole = filled.next_multiple_of(sector_bytes);
        if at.checked_add(filled as u64).is_none_or(|end| end > payload.len_bytes) {
            let len = payload.len_bytes;
            if at == args.offset {
                return Err(impossible(
                    file,
                    format_args!("the payload has {len} bytes; the input is longer"),
                ));
            }
            store.flush().with_context(|| file.display().to_string())?;
            let file = file.display();
            bail!(
                "{file}: the payload has {len} bytes; the input is longer, and was written up to byte {at}"
            );
        }
        if whole > filled {
            let last = &mut bounce[..sector_bytes];
            payload
                .read_at(&store, at + (whole - sector_bytes) as u64, last)
                .with_context(|| file.display().to_string())?;
            piece[filled..whole].copy_from_slice(&last[sector_bytes - (whole - filled)..]);
        }
        payload
            .write_at(&store, at, &piece[..whole], &mut bounce[..whole])
            .with_context(|| file.display().to_string())?;
        at += filled as u64;
    }
    store.flush().with_context(|| file.display().to_string())?;
    Ok(Exit::Done)
}
