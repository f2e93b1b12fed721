//! The machine a study runs on.

use std::fs;

/// The CPU's model as the kernel names it; the architecture where it does not.
pub fn host_cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned());
    format!("{name}, {} cores", crate::runner::cores())
}

/// The kernel's name and release.
pub fn host_kernel() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
    let word = |text: Option<String>, or: &str| text.map_or_else(|| or.to_owned(), |t| t.trim().to_owned());
    format!("{} {}", word(read("ostype"), std::env::consts::OS), word(read("osrelease"), "(release unknown)"))
}
