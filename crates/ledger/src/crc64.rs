//! CRC-64/NVME of whole transfers, which are rare and at most some megabytes: tables of ours take 16 KiB of the program.

/// The polynomial with its bits reversed: the register shifts to the right.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;
/// Bytes of a step.
const STEP: usize = 8;

/// `TABLES[n][byte]` is the register after `byte` and `n` zero bytes.
static TABLES: [[u64; 256]; STEP] = tables();

const fn tables() -> [[u64; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            let carry = if register & 1 == 1 { POLYNOMIAL } else { 0 };
            register = (register >> 1) ^ carry;
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC-64/NVME of the bytes.
pub(crate) fn crc64_nvme(bytes: &[u8]) -> u64 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let mut register = !0;
    for step in steps {
        let mixed = register ^ u64::from_le_bytes(*step);
        let bytes = mixed.to_le_bytes();
        register = 0;
        for (table, byte) in TABLES.iter().rev().zip(bytes) {
            register ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        let index = (register & 0xff) as u8 ^ byte;
        register = (register >> 8) ^ TABLES[0][usize::from(index)];
    }
    !register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_library() {
        // The check value of the catalogue of CRC algorithms.
        assert_eq!(crc64_nvme(b"123456789"), 0xae8b_1486_0a79_9888);
        let bytes: Vec<u8> = (0..1000_u32).map(|it| (it * 7 + it / 256) as u8).collect();
        for length in (0..40).chain([255, 256, 999, 1000]) {
            let expected = crc_fast::crc64_nvme(&bytes[..length]);
            assert_eq!(crc64_nvme(&bytes[..length]), expected, "{length}");
        }
    }
}
