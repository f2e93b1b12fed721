//! Which core it is, where cores of one instruction set differ in what is best.

/// Whether the CPU is AMD's and as new as Zen 5.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_since_zen_5() -> bool {
    use std::arch::x86_64::__cpuid;
    use std::sync::LazyLock;

    static IS: LazyLock<bool> = LazyLock::new(|| {
        #[allow(unused_unsafe, reason = "safe since Rust 1.94")]
        // SAFETY: every CPU of 64 bits has the instruction, and these leaves.
        let (name, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
        let is_amd = [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
        is_amd && family(version) >= 0x1A
    });
    *IS
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) const fn is_since_zen_5() -> bool {
    false
}

/// The family of a CPU by EAX of CPUID's leaf 1: the extended family counts where the family is 15.
#[cfg(target_arch = "x86_64")]
const fn family(version: u32) -> u32 {
    match version >> 8 & 0xF {
        0xF => 0xF + (version >> 20 & 0xFF),
        family => family,
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::family;

    #[test]
    fn families_are_read_as_the_manuals_have_them() {
        // Zen 3, Zen 4 and Zen 5 of EPYC, and a Xeon.
        let found = [0x00A0_0F11, 0x00A1_0F11, 0x00B0_0F21, 0x0005_0657].map(family);
        assert_eq!(found, [0x19, 0x19, 0x1A, 6]);
    }
}
