//! Where a passphrase comes from.

use std::fs::File;
use std::io::{BufRead, IsTerminal, Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use stripewise_crypt::key::Secret;

use crate::exit::{Impossible, cannot_open};

/// cryptsetup's limits: a key file, a passphrase that is typed.
const KEY_FILE_BYTES_MAX: u64 = 8 << 20;
const PASSPHRASE_BYTES_MAX: u64 = 512;

/// A passphrase is asked for on the terminal, or is the first line of standard input, unless a key file is given.
#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "the names of the options")]
pub(crate) struct KeyArgs {
    /// Read the key from this file, every byte of it; `-` is standard input [default: a passphrase from the terminal, or
    /// from the first line of standard input].
    #[arg(long, value_name = "FILE")]
    luks_key_file: Option<PathBuf>,
    /// Start of the key in the key file, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "luks_key_file")]
    luks_keyfile_offset: u64,
    /// Length of the key in the key file, in bytes [default: to the end].
    #[arg(long, value_name = "BYTES", requires = "luks_key_file")]
    luks_keyfile_size: Option<u64>,
}

impl KeyArgs {
    /// Whether a key file is named.
    pub(crate) fn is_given(&self) -> bool {
        self.luks_key_file.is_some()
    }

    /// Whether the key comes from standard input.
    pub(crate) fn takes_stdin(&self) -> bool {
        match &self.luks_key_file {
            Some(path) => path.as_os_str() == "-",
            None => !std::io::stdin().is_terminal(),
        }
    }

    /// Reads the key. `is_new`: a passphrase that is typed is asked for twice.
    pub(crate) fn read(&self, is_new: bool) -> Result<Secret> {
        let Some(path) = &self.luks_key_file else { return passphrase(is_new) };
        let name = path.display().to_string();
        let limit = self.luks_keyfile_size.unwrap_or(KEY_FILE_BYTES_MAX + 1).min(KEY_FILE_BYTES_MAX + 1);
        let bytes = if self.takes_stdin() {
            self.part(&mut std::io::stdin().lock(), limit)
        } else {
            let mut file = File::open(path).map_err(|error| cannot_open(path, error))?;
            // In a pipe there is no place to go to.
            match file.seek(SeekFrom::Start(self.luks_keyfile_offset)) {
                Ok(_) => take(&mut file, limit),
                Err(_) => self.part(&mut file, limit),
            }
        };
        let key = bytes.with_context(|| name.clone())?;
        let found = key.bytes().len() as u64;
        let refuse = |why: String| Err(Impossible(format!("{name}: {why}")).into());
        match self.luks_keyfile_size {
            _ if found > KEY_FILE_BYTES_MAX => refuse(format!(
                "a key file has at most {KEY_FILE_BYTES_MAX} bytes; use --luks-keyfile-size to take a part"
            )),
            Some(size) if found < size => refuse(format!(
                "only {found} bytes from offset {} on; --luks-keyfile-size asks for {size}",
                self.luks_keyfile_offset
            )),
            _ if found == 0 => refuse("no bytes to read; a key has at least one".to_owned()),
            _ => Ok(key),
        }
    }

    /// The key of what is read from its beginning on.
    fn part(&self, source: &mut impl Read, limit: u64) -> std::io::Result<Secret> {
        std::io::copy(&mut source.take(self.luks_keyfile_offset), &mut std::io::sink())?;
        take(source, limit)
    }
}

/// Reads to the end or the limit, without leaving copies behind as a growing vector does.
fn take(source: &mut impl Read, limit: u64) -> std::io::Result<Secret> {
    let mut buffer = Secret::zeroed(limit as usize);
    let mut filled = 0;
    while filled < buffer.bytes().len() {
        match source.read(&mut buffer.bytes_mut()[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(Secret::from(buffer.bytes()[..filled].to_vec()))
}

fn passphrase(is_new: bool) -> Result<Secret> {
    if std::io::stdin().is_terminal() {
        let typed = Secret::from(rpassword::prompt_password("Passphrase: ")?.into_bytes());
        if is_new && Secret::from(rpassword::prompt_password("Again: ")?.into_bytes()) != typed {
            return Err(Impossible("the two passphrases differ".to_owned()).into());
        }
        return Ok(typed);
    }
    let mut line = Vec::with_capacity(PASSPHRASE_BYTES_MAX as usize + 1);
    std::io::stdin().lock().take(PASSPHRASE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        let problem = "standard input: ends before a passphrase; for an empty one, send an empty line";
        return Err(Impossible(problem.to_owned()).into());
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.len() as u64 > PASSPHRASE_BYTES_MAX {
        return Err(Impossible(format!(
            "the passphrase is too long: it has at most {PASSPHRASE_BYTES_MAX} bytes"
        ))
        .into());
    }
    Ok(line.into())
}
