//! Which file system a folder is on, in words that stay the same over reboots where that can be.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Type and identity of the file system of an existing folder, and the model of the drive it is on, so far as the system tells.
pub(super) fn identity(folder: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_of(&table, folder);
    let kind = mount.as_ref().map_or("an unknown file system", |mount| mount.kind.as_str());
    if is_in_memory(kind) {
        // Memory is memory: its identity would be that of this boot.
        return kind.to_owned();
    }
    let source = mount.as_ref().map(|mount| Path::new(&mount.source));
    let which = source.and_then(|source| uuid(source, Path::new("/dev/disk/by-uuid")));
    let which = which.or_else(|| fsid(folder)).unwrap_or_else(|| device_number(folder));
    let model = source.and_then(|source| model(source, Path::new("/sys")));
    // A server's export, and what else is no device, is known by its name.
    let name = source.filter(|source| !source.starts_with("/dev")).map(|source| source.display().to_string());
    let drive = model.or(name);
    format!("{kind} {which} on {}", drive.as_deref().unwrap_or("a drive that names no model"))
}

/// Whether a kind of file system is one in memory, of which the kind is all its identity.
pub(super) fn is_in_memory(kind: &str) -> bool {
    matches!(kind, "tmpfs" | "ramfs")
}

/// A line of the kernel's table of mounts.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    kind: String,
    source: String,
}

/// The mount that a path is on: of those whose mount point it lies under the deepest, of several there the last.
fn mount_of(table: &str, path: &Path) -> Option<Mount> {
    let mut found: Option<(usize, Mount)> = None;
    for line in table.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(point) = before.split(' ').nth(4).map(unescaped) else { continue };
        let mut words = after.split(' ');
        let (Some(kind), Some(source)) = (words.next(), words.next()) else { continue };
        let depth = point.components().count();
        if path.starts_with(&point) && found.as_ref().is_none_or(|(deepest, _)| depth >= *deepest) {
            let source = unescaped(source).display().to_string();
            found = Some((depth, Mount { kind: kind.to_owned(), source }));
        }
    }
    found.map(|(_, mount)| mount)
}

/// A path as it is: the kernel writes spaces and the like as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut path = text.to_owned();
    for (written, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        path = path.replace(written, meant);
    }
    PathBuf::from(path)
}

/// The UUID under which udev lists a device.
fn uuid(source: &Path, list: &Path) -> Option<String> {
    let device = fs::canonicalize(source).ok()?;
    let mut entries = fs::read_dir(list).ok()?.filter_map(Result::ok);
    let entry = entries.find(|entry| fs::canonicalize(entry.path()).is_ok_and(|path| path == device))?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

/// What the file system calls itself (`statvfs`): of its UUID for most that have one.
fn fsid(folder: &Path) -> Option<String> {
    let id = rustix::fs::statvfs(folder).ok()?.f_fsid;
    (id != 0).then(|| format!("{id:016x}"))
}

/// The number of its device, which may be another one after a reboot.
fn device_number(folder: &Path) -> String {
    fs::metadata(folder).map_or_else(|_| String::new(), |folder| format!("device {:#x}", folder.dev()))
}

/// The model of the drive that a device is, or is a part of.
fn model(source: &Path, sys: &Path) -> Option<String> {
    let device = fs::canonicalize(source).ok()?;
    let entry = fs::canonicalize(sys.join("class/block").join(device.file_name()?)).ok()?;
    let of = |folder: &Path| fs::read_to_string(folder.join("device/model")).ok();
    of(&entry).or_else(|| of(entry.parent()?)).map(|model| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /tmp rw - tmpfs tmpfs rw
41 22 8:17 / /mnt/scratch\\040disk rw,noatime shared:9 - xfs /dev/sdb1 rw,attr2
42 41 8:33 / /mnt/scratch\\040disk rw - ext4 /dev/sdc1 rw
";

    #[test]
    fn the_mount_of_a_folder_is_the_deepest_and_the_last() {
        let of = |path: &str| {
            let mount = mount_of(TABLE, Path::new(path)).unwrap();
            format!("{} {}", mount.kind, mount.source)
        };
        assert_eq!(of("/home/x"), "ext4 /dev/sda1");
        assert_eq!(of("/tmp/x"), "tmpfs tmpfs");
        assert_eq!(of("/tmpfile"), "ext4 /dev/sda1");
        assert_eq!(of("/mnt/scratch disk/a"), "ext4 /dev/sdc1");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn a_device_is_known_by_its_uuid_and_its_drive_by_its_model() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for made in ["dev", "by-uuid", "sys/class/block", "sys/devices/sdb/sdb1", "sys/devices/sdb/device"] {
            fs::create_dir_all(at(made)).unwrap();
        }
        fs::write(at("dev/sdb1"), "").unwrap();
        fs::write(at("sys/devices/sdb/device/model"), "ST31000333AS    \n").unwrap();
        std::os::unix::fs::symlink("../dev/sdb1", at("by-uuid/6f1c")).unwrap();
        std::os::unix::fs::symlink("../../devices/sdb/sdb1", at("sys/class/block/sdb1")).unwrap();
        assert_eq!(uuid(&at("dev/sdb1"), &at("by-uuid")).as_deref(), Some("6f1c"));
        assert_eq!(uuid(&at("dev"), &at("by-uuid")), None);
        assert_eq!(model(&at("dev/sdb1"), &at("sys")).as_deref(), Some("ST31000333AS"));
        assert_eq!(model(&at("dev/sdc1"), &at("sys")), None);
    }

    #[test]
    fn file_systems_of_this_machine_are_told_apart() {
        assert_ne!(identity(Path::new("/proc")), identity(Path::new("/")));
        assert_eq!(identity(Path::new("/")), identity(Path::new("/")));
    }
}
