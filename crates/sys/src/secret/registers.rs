//! Registers after work with keys: what a function may leave in them as it likes.
//!
//! Nobody reads them, but the frame of a signal that comes later has them, on whatever stack it finds.

use std::arch::asm;

/// Wipes all registers that the caller does not expect to find again.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub fn clear_registers() {
    // SAFETY: each instruction writes registers alone, all of which are declared; those of AVX and AVX-512 run where the
    // processor and the system have them. Neither memory nor stack is touched.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            asm!(
                "vpxorq zmm16, zmm16, zmm16",
                "vpxorq zmm17, zmm17, zmm17",
                "vpxorq zmm18, zmm18, zmm18",
                "vpxorq zmm19, zmm19, zmm19",
                "vpxorq zmm20, zmm20, zmm20",
                "vpxorq zmm21, zmm21, zmm21",
                "vpxorq zmm22, zmm22, zmm22",
                "vpxorq zmm23, zmm23, zmm23",
                "vpxorq zmm24, zmm24, zmm24",
                "vpxorq zmm25, zmm25, zmm25",
                "vpxorq zmm26, zmm26, zmm26",
                "vpxorq zmm27, zmm27, zmm27",
                "vpxorq zmm28, zmm28, zmm28",
                "vpxorq zmm29, zmm29, zmm29",
                "vpxorq zmm30, zmm30, zmm30",
                "vpxorq zmm31, zmm31, zmm31",
                clobber_abi("sysv64"),
                options(nostack, preserves_flags),
            );
        }
        if is_x86_feature_detected!("avx") {
            asm!("vzeroall", clobber_abi("sysv64"), options(nostack, preserves_flags));
        } else {
            asm!(
                "pxor xmm0, xmm0",
                "pxor xmm1, xmm1",
                "pxor xmm2, xmm2",
                "pxor xmm3, xmm3",
                "pxor xmm4, xmm4",
                "pxor xmm5, xmm5",
                "pxor xmm6, xmm6",
                "pxor xmm7, xmm7",
                "pxor xmm8, xmm8",
                "pxor xmm9, xmm9",
                "pxor xmm10, xmm10",
                "pxor xmm11, xmm11",
                "pxor xmm12, xmm12",
                "pxor xmm13, xmm13",
                "pxor xmm14, xmm14",
                "pxor xmm15, xmm15",
                clobber_abi("sysv64"),
                options(nostack, preserves_flags),
            );
        }
        asm!(
            "xor eax, eax",
            "xor ecx, ecx",
            "xor edx, edx",
            "xor esi, esi",
            "xor edi, edi",
            "xor r8d, r8d",
            "xor r9d, r9d",
            "xor r10d, r10d",
            "xor r11d, r11d",
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

/// Wipes all registers that the caller does not expect to find again.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
pub fn clear_registers() {
    // SAFETY: each instruction writes one register alone, all of which are declared. Neither memory nor stack is touched.
    unsafe {
        asm!(
            "movi v0.2d, #0",
            "movi v1.2d, #0",
            "movi v2.2d, #0",
            "movi v3.2d, #0",
            "movi v4.2d, #0",
            "movi v5.2d, #0",
            "movi v6.2d, #0",
            "movi v7.2d, #0",
            "movi v16.2d, #0",
            "movi v17.2d, #0",
            "movi v18.2d, #0",
            "movi v19.2d, #0",
            "movi v20.2d, #0",
            "movi v21.2d, #0",
            "movi v22.2d, #0",
            "movi v23.2d, #0",
            "movi v24.2d, #0",
            "movi v25.2d, #0",
            "movi v26.2d, #0",
            "movi v27.2d, #0",
            "movi v28.2d, #0",
            "movi v29.2d, #0",
            "movi v30.2d, #0",
            "movi v31.2d, #0",
            "mov x0, xzr",
            "mov x1, xzr",
            "mov x2, xzr",
            "mov x3, xzr",
            "mov x4, xzr",
            "mov x5, xzr",
            "mov x6, xzr",
            "mov x7, xzr",
            "mov x8, xzr",
            "mov x9, xzr",
            "mov x10, xzr",
            "mov x11, xzr",
            "mov x12, xzr",
            "mov x13, xzr",
            "mov x14, xzr",
            "mov x15, xzr",
            "mov x16, xzr",
            "mov x17, xzr",
            clobber_abi("C"),
            options(nostack, preserves_flags),
        );
    }
}
