//! Files that are named for what a command has to say.

use std::ffi::OsString;
use std::fs::{File, FileType, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use stripewise_host::loop_device;
use stripewise_lab::store::is_of_store;

use super::print;
use crate::exit::{Impossible, cannot_open};

/// Whether an output that was named is standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a file that was named; one of that name is replaced when all has been written. `-` is standard output.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<()> {
    if is_stdout(path) {
        return print(text);
    }
    check_replaceable(path)?;
    replace(path, |file| file.write_all(text.as_bytes()))
}

/// Writes a file beside the one of that name, and puts it in its place. What is no file (a pipe, a link, a device), or stands where
/// no other can be made, is written itself.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let old = path.symlink_metadata().ok();
    let beside = old.as_ref().is_none_or(std::fs::Metadata::is_file).then(|| beside(path)).flatten();
    if old.is_some() && beside.is_some() {
        // Whoever may not write it may not replace it either.
        OpenOptions::new().write(true).open(path).map_err(|error| cannot_open(path, error))?;
    }
    let made = beside
        .and_then(|name| Some((OpenOptions::new().write(true).create_new(true).open(&name).ok()?, name)));
    let Some((mut file, name)) = made else {
        let mut file = File::create(path).map_err(|error| cannot_open(path, error))?;
        return write(&mut file).with_context(failed);
    };
    let kept = old.map_or(Ok(()), |old| file.set_permissions(old.permissions()));
    let written = kept.and_then(|()| write(&mut file)).and_then(|()| std::fs::rename(&name, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&name);
    }
    written.with_context(failed)
}

/// The name under which a file is written before it is whole.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}", std::process::id()));
    Some(path.with_file_name(name))
}

/// Refuses what no output replaces, whoever named it.
fn check_replaceable(path: &Path) -> Result<()> {
    let Some(what) = unfit(path) else { return Ok(()) };
    Err(Impossible(format!("{}: {what}", path.display())).into())
}

/// What a path leads to that no output replaces, and what to name instead.
fn unfit(path: &Path) -> Option<String> {
    let is = |is: fn(&FileType) -> bool| path.metadata().is_ok_and(|metadata| is(&metadata.file_type()));
    if is(FileType::is_block_device) {
        // It is written to only if --destroy names it, which no command with an output file has.
        return Some("is a block device, whose content would be overwritten; name a file".to_owned());
    }
    if is(FileType::is_socket) {
        return Some("is a socket; name a file".to_owned());
    }
    if is_of_store(path) {
        let what = "belongs to the results of a study, or is another database; name another file";
        return Some(what.to_owned());
    }
    let device = loop_device(path)?;
    Some(format!("is behind /dev/{device}, which Linux may have mounted or in an array; name another file"))
}

/// Looks whether a file can be written, before the work whose outcome goes there. Leaves everything as it is.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    check_replaceable(path)?;
    let is_new = path.symlink_metadata().is_err();
    if path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        // A reader of a pipe would take it for the end.
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| cannot_open(path, error))?;
    if is_new {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block device of this machine, if it shows any.
    fn block_device() -> Option<PathBuf> {
        let names = std::fs::read_dir("/sys/block").ok()?.flatten();
        let mut paths = names.map(|entry| Path::new("/dev").join(entry.file_name()));
        paths.find(|path| path.metadata().is_ok_and(|found| found.file_type().is_block_device()))
    }

    #[test]
    fn a_block_device_or_a_socket_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in
            block_device().map(|path| (path, "block device")).into_iter().chain([(socket, "socket")])
        {
            // No text, lest the device lose any to a program that writes it.
            for refused in [write_file(&path, ""), check_writable(&path)] {
                let error = refused.unwrap_err();
                assert!(error.is::<Impossible>(), "{error:#}");
                let said = format!("{}: is a {what}", path.display());
                assert!(
                    error.to_string().contains(&said) && error.to_string().contains("name a file"),
                    "{error:#}"
                );
            }
        }
    }

    /// Only root attaches loop devices.
    #[test]
    fn a_file_behind_a_loop_device_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (image, link) = (folder.path().join("disk.img"), folder.path().join("link"));
        std::fs::write(&image, vec![7; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&image, &link).unwrap();
        let losetup = |words: &[&str]| std::process::Command::new("losetup").args(words).output();
        let attached = losetup(&["-f", "--show", image.to_str().unwrap()]);
        let Some(attached) = attached.ok().filter(|output| output.status.success()) else { return };
        let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
        let refused = [write_file(&image, "text"), write_file(&link, "text"), check_writable(&image)];
        losetup(&["-d", &device]).unwrap();
        for result in refused {
            let error = result.unwrap_err();
            assert!(error.is::<Impossible>() && error.to_string().contains(&device), "{error:#}");
        }
        assert!(std::fs::read(&image).unwrap() == vec![7; 1 << 20]);
    }

    #[test]
    fn what_takes_text_as_it_comes_is_written_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| std::fs::read_to_string(&pipe).unwrap());
            check_writable(&pipe).unwrap();
            write_file(&pipe, "to whoever reads").unwrap();
            reader.join().unwrap()
        });
        assert_eq!(read, "to whoever reads");
        write_file(Path::new("/dev/null"), "to nobody").unwrap();
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_file_that_cannot_be_written_whole_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write_file(&path, "old").unwrap();
        let full = |file: &mut File| {
            file.write_all(b"ne")?;
            Err(std::io::ErrorKind::StorageFull.into())
        };
        let error = replace(&path, full).unwrap_err();
        assert!(format!("{error:#}").contains("report.html: "), "{error:#}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        write_file(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_file(&link, "by the link").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "by the link");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }
}
