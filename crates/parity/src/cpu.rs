//! Which core it is, where cores of one instruction set differ in what is best. What is best is measured
//! (docs/performance.md).

#[cfg(target_arch = "x86_64")]
pub use x86::{is_intel, is_since_zen_4, is_since_zen_5};

/// Whether the CPU is Intel's.
#[cfg(not(target_arch = "x86_64"))]
pub const fn is_intel() -> bool {
    false
}

/// Whether the CPU is AMD's and as new as Zen 4.
#[cfg(not(target_arch = "x86_64"))]
pub const fn is_since_zen_4() -> bool {
    false
}

/// Whether the CPU is AMD's and as new as Zen 5.
#[cfg(not(target_arch = "x86_64"))]
pub const fn is_since_zen_5() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__cpuid, CpuidResult};
    use std::sync::LazyLock;

    /// Whether the CPU is Intel's.
    pub fn is_intel() -> bool {
        vendor(leaf(0)) == *b"GenuineIntel"
    }

    /// Whether the CPU is AMD's and as new as Zen 4.
    pub fn is_since_zen_4() -> bool {
        ZEN.is_some_and(|zen| zen >= 4)
    }

    /// Whether the CPU is AMD's and as new as Zen 5.
    pub fn is_since_zen_5() -> bool {
        ZEN.is_some_and(|zen| zen >= 5)
    }

    /// Which Zen the CPU is; only what is asked above is told apart.
    static ZEN: LazyLock<Option<u32>> = LazyLock::new(|| {
        let is_amd = vendor(leaf(0)) == *b"AuthenticAMD";
        is_amd.then(|| zen(family(leaf(1).eax), leaf(0).eax >= 7 && has_avx512(leaf(7))))
    });

    /// The generation by family: Zen 3 and 4 are one, and the latter has AVX-512.
    const fn zen(family: u32, has_avx512: bool) -> u32 {
        match family {
            0x1A.. => 5,
            0x19 if has_avx512 => 4,
            _ => 3,
        }
    }

    /// Whether CPUID's leaf 7 names AVX-512F, in bit 16 of EBX.
    const fn has_avx512(leaf: CpuidResult) -> bool {
        leaf.ebx >> 16 & 1 == 1
    }

    #[allow(unused_unsafe, reason = "safe since Rust 1.94")]
    fn leaf(number: u32) -> CpuidResult {
        // SAFETY: every CPU of 64 bits has the instruction; of a leaf that it lacks it answers another.
        unsafe { __cpuid(number) }
    }

    /// The vendor's name, which CPUID's leaf 0 has in EBX, EDX, ECX.
    fn vendor(leaf: CpuidResult) -> [u8; 12] {
        let mut name = [0; 12];
        name.copy_from_slice([leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened());
        name
    }

    /// The family by EAX of CPUID's leaf 1: the extended family counts where the family is 15.
    const fn family(version: u32) -> u32 {
        match version >> 8 & 0xF {
            0xF => 0xF + (version >> 20 & 0xFF),
            family => family,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn families_are_read_as_the_manuals_have_them() {
            // Zen 3, Zen 4 and Zen 5 of EPYC, and a Xeon.
            let found = [0x00A0_0F11, 0x00A1_0F11, 0x00B0_0F21, 0x0005_0657].map(family);
            assert_eq!(found, [0x19, 0x19, 0x1A, 6]);
            assert_eq!([zen(0x17, false), zen(0x19, false), zen(0x19, true), zen(0x1A, true)], [3, 3, 4, 5]);
        }

        #[test]
        fn a_cpu_is_of_one_vendor() {
            assert!(!(is_intel() && is_since_zen_4()));
            assert!(is_since_zen_4() || !is_since_zen_5());
        }
    }
}
