//! GF(2^8) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D) and generator 2: the field of Linux md's
//! RAID-6 and of SNIA DDF.
//!
//! Source of the formulas: H. Peter Anvin, "The mathematics of RAID-6". Addition is xor; the block at
//! index `i` of a stripe has the coefficient `2^i` in Q, and the powers of 2 repeat after 255, which
//! bounds the index at 254.

/// The field polynomial's low byte: what is added when a doubling overflows eight bits.
pub(crate) const POLYNOMIAL_LOW: u8 = 0x1D;

/// Number of distinct powers of the generator, and so of data indexes Q can tell apart.
pub(crate) const ORDER: usize = 255;

const EXP: [u8; ORDER] = exp_table();
const LOG: [u8; 256] = log_table();

/// For each factor `c`, its products with the 16 low nibbles, then with the 16 high nibbles: the two
/// shuffle tables of a multiplication by `c`. One cache line holds the tables of two factors.
pub(crate) static NIBBLES: NibbleTables = NibbleTables(nibble_tables());

/// The tables of [`NIBBLES`], aligned so that no factor's entry crosses a cache line.
#[repr(C, align(64))]
pub(crate) struct NibbleTables(pub(crate) [[u8; 32]; 256]);

/// Multiplies by the generator.
pub(crate) const fn double(value: u8) -> u8 {
    (value << 1) ^ (if value & 0x80 == 0 { 0 } else { POLYNOMIAL_LOW })
}

/// Returns `2^power`, for any power.
pub(crate) const fn exp(power: usize) -> u8 {
    EXP[power % ORDER]
}

/// Returns the power of 2 that equals `value`, which must not be zero.
pub(crate) const fn log(value: u8) -> usize {
    assert!(value != 0);
    LOG[value as usize] as usize
}

/// Multiplies in the field.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { exp(log(a) + log(b)) }
}

/// Returns the multiplicative inverse of `value`, which must not be zero.
pub(crate) const fn inverse(value: u8) -> u8 {
    exp(ORDER - log(value))
}

/// Returns the 8 × 8 bit matrix of a multiplication by `factor`, in the operand order of x86's
/// `GF2P8AFFINEQB`: byte `7 - i` selects the input bits whose sum is output bit `i`.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) const fn affine_matrix(factor: u8) -> u64 {
    let mut matrix = 0;
    let mut input_bit = 0;
    while input_bit < 8 {
        let product = mul(factor, 1 << input_bit);
        let mut output_bit = 0;
        while output_bit < 8 {
            if product & (1 << output_bit) != 0 {
                matrix |= 1u64 << ((7 - output_bit) * 8 + input_bit);
            }
            output_bit += 1;
        }
        input_bit += 1;
    }
    matrix
}

const fn exp_table() -> [u8; ORDER] {
    let mut table = [1; ORDER];
    let mut power = 1;
    while power < ORDER {
        table[power] = double(table[power - 1]);
        power += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut power = 0;
    while power < ORDER {
        table[EXP[power] as usize] = power as u8;
        power += 1;
    }
    table
}

const fn nibble_tables() -> [[u8; 32]; 256] {
    let mut tables = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][nibble] = mul(factor as u8, nibble as u8);
            tables[factor][16 + nibble] = mul(factor as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        factor += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook product reduced by 0x11D, sharing no table with the code under test.
    fn mul_by_hand(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b & (1 << bit) != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product & (1 << bit) != 0 {
                product ^= 0x11D << (bit - 8);
            }
        }
        product as u8
    }

    /// `GF2P8AFFINEQB` on one byte with a zero constant, after Intel's description of it.
    fn affine_model(matrix: u64, value: u8) -> u8 {
        let rows = matrix.to_le_bytes();
        (0..8).fold(0, |out, bit| out | ((((rows[7 - bit] & value).count_ones() & 1) as u8) << bit))
    }

    #[test]
    fn known_entries_of_the_exp_and_log_tables() {
        assert_eq!(double(0x80), 0x1D);
        assert_eq!([exp(0), exp(1), exp(7), exp(8), exp(9)], [0x01, 0x02, 0x80, 0x1D, 0x3A]);
        assert_eq!([exp(10), exp(11), exp(12), exp(254), exp(255)], [0x74, 0xE8, 0xCD, 0x8E, 0x01]);
        assert_eq!([log(0x01), log(0x02), log(0x1D), log(0x8E), log(0x03)], [0, 1, 8, 254, 25]);
    }

    #[test]
    fn products_equal_schoolbook_products() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul_by_hand(a, b), "{a:#x} * {b:#x}");
            }
            assert!(a == 0 || mul_by_hand(a, inverse(a)) == 1);
        }
    }

    #[test]
    fn nibble_tables_and_affine_matrices_multiply() {
        for factor in 0..=255u8 {
            let table = &NIBBLES.0[factor as usize];
            for value in 0..=255u8 {
                let expected = mul_by_hand(factor, value);
                let by_nibbles = table[value as usize & 15] ^ table[16 + (value as usize >> 4)];
                assert_eq!(by_nibbles, expected);
                assert_eq!(affine_model(affine_matrix(factor), value), expected);
            }
        }
    }
}
